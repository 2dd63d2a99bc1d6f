#include "fusion.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <unordered_map>

#include "elementwise.h"
#include "instructions.h"
#include "lowering.h"

namespace ort_mlx::cpu {

namespace {

constexpr size_t kMostMembers = 64;
constexpr size_t kMostInputs = 32;
constexpr int kShortestRow = 32;  // of a reduction: below, single instructions are too short
constexpr uint32_t kNone = ~0u;

// A shape, and how it grows along a progression.
struct Extent {
  mx::Shape shape;
  std::vector<int64_t> slopes;  // empty where it does not grow
  bool operator==(const Extent&) const = default;

  int64_t row() const { return shape.empty() ? 0 : shape.back(); }
  // One element for each row.
  Extent rows() const {
    Extent made = *this;
    made.shape.back() = 1;
    if (!made.slopes.empty()) made.slopes.back() = 0;
    if (std::all_of(made.slopes.begin(), made.slopes.end(), [](int64_t s) { return s == 0; })) {
      made.slopes.clear();
    }
    return made;
  }
};

Extent extent_of(const Tape::Node& node, size_t output) {
  Extent made{node.shapes[output], {}};
  if (node.growth == nullptr) return made;
  bool grows = false;
  for (const Line& line : node.growth->shapes[output]) {
    made.slopes.push_back(line.slope);
    grows = grows || line.slope != 0;
  }
  if (!grows) made.slopes.clear();
  return made;
}

// How a node takes part in a group: its instruction, and the shape that the group works on.
struct Part {
  enum class Kind { kElement, kReduce, kRow, kSpread };

  Op op;
  Kind kind;
  Extent extent;
  double cost = 1;
};

class Fusion {
 public:
  Fusion(const Tape& tape, const std::vector<mx::array>& inputs, int threads)
      : tape_(tape), threads_(threads) {
    for (const auto* arrays : {&inputs, &tape.constants}) {
      for (const auto& a : *arrays) {
        values_.push_back({a.shape(), a.dtype()});
        extents_.push_back({a.shape(), {}});
      }
    }
    for (const auto& node : tape_.nodes) {
      grows_ = grows_ || node.growth != nullptr;
      first_output_.push_back(static_cast<uint32_t>(values_.size()));
      for (size_t k = 0; k < node.shapes.size(); ++k) {
        values_.push_back({node.shapes[k], node.dtypes[k]});
        extents_.push_back(extent_of(node, k));
      }
    }
    reads_.assign(values_.size(), 0);
    for (const auto& node : tape_.nodes) {
      for (uint32_t id : node.inputs) ++reads_[id];
    }
    for (uint32_t id : tape_.outputs) ++reads_[id];
    group_of_.assign(values_.size(), kNone);
    new_ids_.resize(values_.size());
    made_.input_count = tape_.input_count;
    next_id_ = static_cast<uint32_t>(tape_.input_count + tape_.constants.size());
    for (uint32_t id = 0; id < next_id_; ++id) new_ids_[id] = id;
  }

  Tape take() {
    parts_.resize(tape_.nodes.size());
    for (size_t i = 0; i < tape_.nodes.size(); ++i) {
      parts_[i] = part_of(tape_.nodes[i]);
      if (!parts_[i].has_value() || !join(i)) emit_alone(i);
    }
    for (size_t g = 0; g < groups_.size(); ++g) close(static_cast<uint32_t>(g));
    for (uint32_t id : tape_.outputs) made_.outputs.push_back(new_ids_[id]);
    made_.constants = tape_.constants;
    made_.growing_constants = tape_.growing_constants;
    made_.value_count = next_id_;
    return std::move(made_);
  }

 private:
  struct Group {
    Extent extent;
    std::vector<size_t> members;
    std::vector<uint32_t> inputs;  // from outside, each once
    bool has_rows = false;
    bool is_open = true;
  };

  static bool has_long_rows(const Extent& extent) {
    return extent.row() >= kShortestRow && extent.row() <= kLongestRow;
  }

  std::optional<Part> part_of(const Tape::Node& node) const {
    const std::string_view name = node.primitive->name();
    if (node.primitive->stream().device != mx::Device::cpu || node.shapes.size() != 1 ||
        node.inputs.empty()) {
      return std::nullopt;
    }
    for (uint32_t id : node.inputs) {
      if (!is_known(values_[id].dtype)) return std::nullopt;
    }
    if (!is_known(node.dtypes[0]) || (node.growth != nullptr && node.growth->rebuild)) {
      return std::nullopt;
    }
    const Value& x = values_[node.inputs[0]];
    const Extent extent = extent_of(node, 0);
    // Inputs of a progression may grow, and do not say how.
    const bool is_certain = !grows_ || node.inputs[0] >= tape_.input_count;
    const Extent& from = extents_[node.inputs[0]];
    if (name == "Broadcast") {
      if (!is_certain || !has_long_rows(extent) || from != extent.rows()) return std::nullopt;
      return Part{Op::kSpread, Part::Kind::kSpread, extent};
    }
    if (name == "Sum" || name == "Max" || name == "Min") {
      const auto axes = static_cast<const mx::Reduce&>(*node.primitive).state().second;
      if (!is_certain || x.dtype != mx::float32 || !has_long_rows(from) || axes.size() != 1 ||
          axes[0] != static_cast<int>(x.shape.size()) - 1 || extent != from.rows()) {
        return std::nullopt;
      }
      const Op op = name == "Sum" ? Op::kRowSum : name == "Max" ? Op::kRowMax : Op::kRowMin;
      return Part{op, Part::Kind::kReduce, from};
    }
    if (name == "Softmax") {
      if (x.dtype != mx::float32 || extent.row() < 1 || extent.row() > kLongestRow) {
        return std::nullopt;
      }
      return Part{Op::kRowSoftmax, Part::Kind::kRow, extent, 8};
    }
    if (name == "Select") return Part{Op::kSelect, Part::Kind::kElement, extent};
    if (name == "AsType") {
      const auto op = conversion(x.dtype, node.dtypes[0]);
      if (!op.has_value()) return std::nullopt;
      return Part{*op, Part::Kind::kElement, extent};
    }
    const auto entry = instructions().find(name);
    if (entry == instructions().end()) return std::nullopt;
    const Instructions& known = entry->second;
    const auto& op = x.dtype == mx::float32 ? known.of_float
                     : x.dtype == mx::int32 ? known.of_int
                                            : known.of_bool;
    if (!op.has_value()) return std::nullopt;
    return Part{*op, Part::Kind::kElement, extent, known.cost};
  }

  // Whether a node that works on `shape` fits the group: on its elements, or on one for each row.
  static bool fits(const Group& group, const Extent& extent) {
    return group.extent == extent || (group.has_rows && group.extent.rows() == extent);
  }

  // Puts node `i` into an open group. Everything that an open group reads from outside has been
  // emitted, so that a group can be closed at any time and groups never wait for each other.
  bool join(size_t i) {
    const auto& node = tape_.nodes[i];
    const Part& part = *parts_[i];
    if (part.kind == Part::Kind::kSpread && group_of_[node.inputs[0]] == kNone) return false;
    uint32_t target = kNone;
    for (uint32_t id : node.inputs) {
      const uint32_t g = group_of_[id];
      if (g == kNone || g == target) continue;
      if (target == kNone) {
        if (accepts(groups_[g], part)) {
          target = g;
        } else {
          close(g);
        }
      } else if (!merge(target, g)) {
        close(g);
      }
    }
    if (target != kNone && groups_[target].members.size() >= kMostMembers) {
      close(target);
      target = kNone;
    }
    if (target == kNone) {
      if (part.kind == Part::Kind::kSpread) return false;
      target = static_cast<uint32_t>(groups_.size());
      groups_.emplace_back();
    }
    Group& group = groups_[target];
    if (part.kind != Part::Kind::kElement) group.has_rows = true;
    if (group.members.empty() || part.kind != Part::Kind::kElement) group.extent = part.extent;
    group.members.push_back(i);
    group_of_[first_output_[i]] = target;
    for (uint32_t id : node.inputs) add_input(group, id, target);
    if (group.inputs.size() > kMostInputs) close(target);
    return true;
  }

  // A group of one element for each row becomes one of rows when something spreads it.
  bool accepts(const Group& group, const Part& part) const {
    switch (part.kind) {
      case Part::Kind::kElement:
        return fits(group, part.extent);
      case Part::Kind::kReduce:
      case Part::Kind::kRow:
        return group.extent == part.extent;
      case Part::Kind::kSpread:
        return group.has_rows && group.extent == part.extent;
    }
    return false;
  }

  bool merge(uint32_t into, uint32_t from) {
    Group &a = groups_[into], &b = groups_[from];
    const bool b_is_rows = a.has_rows && !b.has_rows && b.extent == a.extent.rows();
    const bool a_is_rows = b.has_rows && !a.has_rows && a.extent == b.extent.rows();
    if (a.extent != b.extent && !b_is_rows && !a_is_rows) return false;
    if (a.members.size() + b.members.size() > kMostMembers) return false;
    a.members.insert(a.members.end(), b.members.begin(), b.members.end());
    std::sort(a.members.begin(), a.members.end());
    if (a_is_rows) a.extent = b.extent;
    a.has_rows = a.has_rows || b.has_rows;
    for (size_t i : b.members) group_of_[first_output_[i]] = into;
    for (uint32_t id : b.inputs) add_input(a, id, into);
    b.members.clear();
    b.is_open = false;
    return true;
  }

  void add_input(Group& group, uint32_t id, uint32_t index) {
    if (group_of_[id] == index) return;
    if (std::find(group.inputs.begin(), group.inputs.end(), id) == group.inputs.end()) {
      group.inputs.push_back(id);
    }
  }

  void emit_alone(size_t i) {
    Tape::Node node = tape_.nodes[i];
    if (node.growth == nullptr || !node.growth->rebuild) {
      std::vector<Value> inputs;
      for (uint32_t id : node.inputs) inputs.push_back(values_[id]);
      node.primitive =
          lower({tape_.nodes[i].primitive, inputs, values_[first_output_[i]]}, threads_);
    }
    for (uint32_t& id : node.inputs) {
      if (group_of_[id] != kNone) close(group_of_[id]);
      id = new_ids_[id];
    }
    for (size_t k = 0; k < node.shapes.size(); ++k) new_ids_[first_output_[i] + k] = next_id_++;
    made_.nodes.push_back(std::move(node));
  }

  // An input with the extent of the group at every step: one that a member reads element by
  // element, since one from outside of the closure does not say how it grows. The first member that
  // made a group one of rows goes back to such an input.
  int whole_input(const Group& group) const {
    for (size_t i : group.members) {
      if (parts_[i]->kind == Part::Kind::kSpread || parts_[i]->extent != group.extent) continue;
      for (uint32_t id : tape_.nodes[i].inputs) {
        const auto found = std::find(group.inputs.begin(), group.inputs.end(), id);
        if (found != group.inputs.end()) return static_cast<int>(found - group.inputs.begin());
      }
    }
    throw std::logic_error("a group of rows has no input of its extent");
  }

  void close(uint32_t index) {
    Group& group = groups_[index];
    if (!group.is_open) return;
    group.is_open = false;
    std::unordered_map<uint32_t, uint16_t> registers;
    Expression e;
    Tape::Node node;
    auto growth = std::make_shared<Growth>();
    bool grows = false;
    for (uint32_t id : group.inputs) {
      registers.emplace(id, e.register_count++);
      e.inputs.push_back(values_[id].dtype);
      node.inputs.push_back(new_ids_[id]);
    }
    std::unordered_map<uint32_t, uint32_t> inside;  // reads of a value by members
    for (size_t i : group.members) {
      for (uint32_t id : tape_.nodes[i].inputs) ++inside[id];
    }
    for (size_t i : group.members) {
      const auto& member = tape_.nodes[i];
      const Part& part = *parts_[i];
      auto operand = [&](size_t k) {
        return k < member.inputs.size() ? registers.at(member.inputs[k]) : uint16_t{0};
      };
      const bool is_scalar =
          part.kind == Part::Kind::kElement && group.has_rows && part.extent != group.extent;
      const uint16_t to = e.register_count++;
      e.code.push_back({part.op, is_scalar, to, operand(0), operand(1), operand(2)});
      if (!is_scalar) e.cost += part.cost;
      const uint32_t id = first_output_[i];
      registers.emplace(id, to);
      if (reads_[id] > inside[id]) {
        if (!is_scalar && part.kind != Part::Kind::kReduce)
          e.whole = static_cast<int>(e.results.size());
        e.results.push_back(to);
        e.outputs.push_back(member.dtypes[0]);
        node.shapes.push_back(member.shapes[0]);
        node.dtypes.push_back(member.dtypes[0]);
        growth->shapes.push_back(member.growth == nullptr ? Lines{} : member.growth->shapes[0]);
        grows = grows || member.growth != nullptr;
        new_ids_[id] = next_id_++;
      }
      group_of_[id] = kNone;
    }
    if (e.whole < 0) e.whole = static_cast<int>(e.results.size()) + whole_input(group);
    e.has_rows = group.has_rows;
    if (grows) {
      for (size_t k = 0; k < node.shapes.size(); ++k) {
        for (size_t d = 0; growth->shapes[k].size() < node.shapes[k].size(); ++d) {
          growth->shapes[k].push_back({node.shapes[k][d], 0});
        }
      }
      node.growth = std::move(growth);
    }
    const mx::Stream stream = tape_.nodes[group.members[0]].primitive->stream();
    node.primitive =
        std::make_shared<Elementwise>(stream, threads_, group.extent.shape, std::move(e));
    made_.nodes.push_back(std::move(node));
  }

  const Tape& tape_;
  const int threads_;
  Tape made_;
  bool grows_ = false;  // whether it serves a progression
  std::vector<Value> values_;
  std::vector<Extent> extents_;
  std::vector<uint32_t> first_output_;  // of each node
  std::vector<uint32_t> reads_;
  std::vector<uint32_t> group_of_;  // the open group that makes a value
  std::vector<uint32_t> new_ids_;
  std::vector<std::optional<Part>> parts_;
  std::vector<Group> groups_;
  uint32_t next_id_ = 0;
};

}  // namespace

Tape fuse(const Tape& tape, const std::vector<mx::array>& inputs, int threads) {
  return Fusion(tape, inputs, threads).take();
}

}  // namespace ort_mlx::cpu
