#include "closure.h"

#include <mlx/transforms.h>

#include <cstring>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "borrowed.h"
#include "cpu/execute.h"
#include "cpu/parallel.h"

namespace ort_mlx {

mx::array make_placeholder(mx::Shape shape, mx::Dtype dtype) {
  return mx::array(std::move(shape), dtype, nullptr, {});
}

enum class Form {
  kWhole,   // a graph, of which constants are folded and equal calls merged
  kSample,  // a graph as it was traced
  kBody,    // a part of a graph, of which the rest is not computed yet
};

class Capture {
 public:
  Capture(std::vector<mx::array> placeholders, const std::vector<mx::array>& outputs, int threads,
          Form form)
      : outputs_(outputs),
        threads_(threads > 0 ? threads : cpu::default_threads()),
        form_(form),
        as_traced_(form == Form::kSample) {
    for (const auto& p : placeholders) varying_.emplace(p.id(), true);
    order_nodes();
    if (form == Form::kBody) {
      add_outside(placeholders);
    } else {
      evaluate_constants();
    }
    closure_->tape_.input_count = placeholders.size();
    for (size_t i = 0; i < placeholders.size(); ++i) ids_[placeholders[i].id()] = i;
    number_constants();
    for (const auto& a : order_) add(a);
    for (const auto& a : outputs_) closure_->tape_.outputs.push_back(ids_.at(a.id()));
    closure_->tape_.value_count = next_id_;
    if (as_traced_) {
      closure_->placeholders_ = placeholders;
      closure_->threads_ = threads_;
    } else {
      closure_->prepare(placeholders, threads_);
    }
  }

  const std::vector<mx::array>& outside() const { return outside_; }

  std::shared_ptr<const Closure> take(std::vector<IndexCheck> checks = {}) {
    closure_->checks_ = std::move(checks);
    return std::move(closure_);
  }

 private:
  static bool is_leaf(const mx::array& a) {
    return !a.has_primitive() || a.status() != mx::array::Status::unscheduled;
  }

  // Fills order_ with the nodes that depend on a placeholder, producers first, one output for each.
  void order_nodes() {
    struct Visit {
      mx::array array;
      size_t next = 0;
    };
    std::vector<Visit> stack;
    for (const auto& output : outputs_) {
      if (!varying_.contains(output.id())) stack.push_back({output});
      while (!stack.empty()) {
        Visit& top = stack.back();
        if (varying_.contains(top.array.id())) {
          stack.pop_back();
        } else if (is_leaf(top.array)) {
          if (top.array.status() == mx::array::Status::unscheduled && form_ != Form::kBody) {
            throw std::logic_error("ort_mlx: a trace read a placeholder of another trace");
          }
          varying_.emplace(top.array.id(), false);
          leaves_.push_back(top.array);  // keeps the id from being reused
          stack.pop_back();
        } else if (top.next < top.array.inputs().size()) {
          mx::array input = top.array.inputs()[top.next++];
          if (!varying_.contains(input.id())) stack.push_back({std::move(input)});
        } else {
          finish(top.array);
          stack.pop_back();
        }
      }
    }
  }

  void finish(const mx::array& a) {
    bool varies = as_traced_;
    for (const auto& in : a.inputs()) varies = varies || varying_.at(in.id());
    for (const auto& out : a.outputs()) varying_.emplace(out.id(), varies);
    (varies ? order_ : leaves_).push_back(a);
  }

  // What varying nodes and the outputs read that does not vary itself.
  template <class Visitor>
  void for_each_constant(Visitor visit) {
    for (const auto& a : order_) {
      for (const auto& in : a.inputs()) {
        if (!varying_.at(in.id())) visit(in);
      }
    }
    for (const auto& out : outputs_) {
      if (!varying_.at(out.id())) visit(out);
    }
  }

  // What is not computed yet and does not depend on the placeholders is an input too.
  void add_outside(std::vector<mx::array>& placeholders) {
    std::unordered_set<std::uintptr_t> seen;
    for_each_constant([&](const mx::array& a) {
      const bool is_known = a.status() != mx::array::Status::unscheduled;
      if (!is_known && seen.insert(a.id()).second) outside_.push_back(a);
    });
    placeholders.insert(placeholders.end(), outside_.begin(), outside_.end());
  }

  void evaluate_constants() {
    std::vector<mx::array> pending;
    for_each_constant([&](const mx::array& a) {
      if (a.status() == mx::array::Status::unscheduled) pending.push_back(a);
    });
    for (const auto& a : pending) closure_->nbytes_ += a.nbytes();
    mx::eval(std::move(pending));
  }

  void number_constants() {
    next_id_ = closure_->tape_.input_count;
    for_each_constant([&](const mx::array& a) {
      if (!ids_.try_emplace(a.id(), next_id_).second) return;
      closure_->tape_.constants.push_back(a);
      ++next_id_;
    });
  }

  void add(const mx::array& a) {
    Tape::Node node{a.primitive_ptr(), {}, {}, {}, {}};
    for (const auto& in : a.inputs()) node.inputs.push_back(ids_.at(in.id()));
    const auto outputs = a.outputs();
    const size_t hash = hash_of(node);
    auto [first, last] = seen_.equal_range(hash);
    for (; first != last && !as_traced_; ++first) {
      const auto& [index, id] = first->second;
      if (!is_same(closure_->tape_.nodes[index], node, outputs)) continue;
      for (size_t i = 0; i < outputs.size(); ++i) ids_[outputs[i].id()] = id + i;
      return;
    }
    seen_.emplace(hash, std::pair(closure_->tape_.nodes.size(), next_id_));
    for (const auto& out : outputs) {
      node.shapes.push_back(out.shape());
      node.dtypes.push_back(out.dtype());
      ids_[out.id()] = next_id_++;
    }
    closure_->nbytes_ += sizeof(Tape::Node) + node.inputs.size() * sizeof(uint32_t) +
                         outputs.size() * (sizeof(mx::Shape) + sizeof(mx::Dtype));
    closure_->tape_.nodes.push_back(std::move(node));
  }

  static size_t hash_of(const Tape::Node& node) {
    size_t hash = std::hash<std::string_view>{}(node.primitive->name());
    for (uint32_t id : node.inputs) hash = hash * 1099511628211ULL + id;
    return hash;
  }

  static bool is_same(const Tape::Node& known, const Tape::Node& node,
                      const std::vector<mx::array>& outputs) {
    if (known.inputs != node.inputs || known.shapes.size() != outputs.size()) return false;
    if (std::strcmp(known.primitive->name(), node.primitive->name()) != 0) return false;
    if (known.primitive->stream() != node.primitive->stream()) return false;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (known.dtypes[i] != outputs[i].dtype() || known.shapes[i] != outputs[i].shape()) {
        return false;
      }
    }
    return known.primitive->is_equivalent(*node.primitive);
  }

  const std::vector<mx::array>& outputs_;
  const int threads_;
  const Form form_;
  const bool as_traced_;  // fold and merge nothing
  std::vector<mx::array> outside_;
  std::shared_ptr<Closure> closure_ = std::make_shared<Closure>();
  std::unordered_map<std::uintptr_t, bool> varying_;  // whether an array depends on a placeholder
  std::vector<mx::array> order_;
  std::vector<mx::array> leaves_;
  std::unordered_map<std::uintptr_t, uint32_t> ids_;
  uint32_t next_id_ = 0;
  std::unordered_multimap<size_t, std::pair<size_t, uint32_t>> seen_;
};

std::shared_ptr<const Closure> Closure::capture(const std::vector<mx::array>& placeholders,
                                                const std::vector<mx::array>& outputs, int threads,
                                                std::vector<IndexCheck> checks) {
  return Capture(placeholders, outputs, threads, Form::kWhole).take(std::move(checks));
}

std::pair<std::shared_ptr<const Closure>, std::vector<mx::array>> Closure::capture_body(
    const std::vector<mx::array>& placeholders, const std::vector<mx::array>& outputs,
    int threads) {
  Capture made(placeholders, outputs, threads, Form::kBody);
  std::vector<mx::array> outside = made.outside();
  return {made.take(), std::move(outside)};
}

std::shared_ptr<const Closure> Closure::sample(const std::vector<mx::array>& placeholders,
                                               const std::vector<mx::array>& outputs, int threads) {
  return Capture(placeholders, outputs, threads, Form::kSample).take();
}

namespace {

// Whether computing the array needs the inputs of a trace.
bool is_traced(const std::vector<mx::array>& arrays) {
  std::unordered_map<std::uintptr_t, bool> seen;
  std::vector<mx::array> pending = arrays;
  while (!pending.empty()) {
    const mx::array a = std::move(pending.back());
    pending.pop_back();
    if (a.status() != mx::array::Status::unscheduled || !seen.emplace(a.id(), true).second)
      continue;
    if (!a.has_primitive() || a.is_tracer()) return true;
    pending.insert(pending.end(), a.inputs().begin(), a.inputs().end());
  }
  return false;
}

}  // namespace

void Closure::prepare(const std::vector<mx::array>& placeholders, int threads) {
  program_ = cpu::Program::prepare(tape_, placeholders, threads);
}

std::optional<Closure::Placeable> Closure::placeable(size_t output, int64_t step) const {
  if (program_ == nullptr || !can_borrow()) return std::nullopt;
  const cpu::Place* place = program_->placing().of_output(output);
  if (place == nullptr) return std::nullopt;
  const Tape::Node& node = program_->tape().nodes[place->node];
  return Placeable{node.growth == nullptr ? node.shapes[place->output]
                                          : shape_at(node.growth->shapes[place->output], step),
                   node.dtypes[place->output], place->shared_input};
}

std::vector<Closure::Described> Closure::nodes() const {
  if (tape_.input_count != placeholders_.size()) throw std::invalid_argument("not a sample");
  Described::Arrays values;
  for (const auto* known : {&placeholders_, &tape_.constants}) {
    for (const auto& a : *known) values.emplace_back(a.dtype(), a.shape());
  }
  std::vector<Described> made;
  for (const auto& node : tape_.nodes) {
    Described& described = made.emplace_back();
    described.primitive = node.primitive->name();
    for (uint32_t id : node.inputs) described.inputs.push_back(values.at(id));
    for (size_t k = 0; k < node.shapes.size(); ++k) {
      described.outputs.emplace_back(node.dtypes[k], node.shapes[k]);
    }
    values.insert(values.end(), described.outputs.begin(), described.outputs.end());
  }
  return made;
}

std::vector<mx::array> Closure::replay(std::vector<mx::array> values, int64_t step,
                                       const std::vector<void*>& targets) const {
  if (program_ != nullptr && !is_traced(values)) {
    mx::eval(values);
    return program_->run(std::move(values), step, targets);
  }
  values.reserve(tape_.value_count);
  values.insert(values.end(), tape_.constants.begin(), tape_.constants.end());
  for (const auto& constant : tape_.growing_constants) {
    values[tape_.input_count + constant.index] = constant.at(step);
  }
  for (const Tape::Node& node : tape_.nodes) {
    std::vector<mx::array> inputs;
    inputs.reserve(node.inputs.size());
    for (uint32_t id : node.inputs) inputs.push_back(values[id]);
    if (node.growth != nullptr) {
      for (auto& made : grown(node, std::move(inputs), step)) values.push_back(std::move(made));
    } else if (node.shapes.size() == 1) {
      values.emplace_back(node.shapes[0], node.dtypes[0], node.primitive, std::move(inputs));
    } else {
      for (auto& made : mx::array::make_arrays(node.shapes, node.dtypes, node.primitive, inputs)) {
        values.push_back(std::move(made));
      }
    }
  }
  std::vector<mx::array> outputs;
  outputs.reserve(tape_.outputs.size());
  for (uint32_t id : tape_.outputs) outputs.push_back(values[id]);
  return outputs;
}

std::vector<mx::array> Closure::grown(const Tape::Node& node, std::vector<mx::array> inputs,
                                      int64_t step) {
  if (node.growth->rebuild) return node.growth->rebuild(inputs, step);
  std::vector<mx::Shape> shapes;
  for (const Lines& lines : node.growth->shapes) shapes.push_back(shape_at(lines, step));
  return mx::array::make_arrays(std::move(shapes), node.dtypes, node.primitive, inputs);
}

}  // namespace ort_mlx
