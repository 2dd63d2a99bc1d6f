#include "progression.h"

#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "regrow.h"

namespace ort_mlx {

namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw std::runtime_error("not a progression: " + why);
}

bool same_bytes(const mx::array& a, const mx::array& b) {
  if (a.id() == b.id()) return true;
  if (!a.flags().row_contiguous || !b.flags().row_contiguous) refuse("a computed constant changes");
  return std::memcmp(a.data<char>(), b.data<char>(), a.nbytes()) == 0;
}

constexpr size_t kMaxGrowingElements = 4096;

}  // namespace

class Uniter {
 public:
  Uniter(const std::vector<std::shared_ptr<const Closure>>& samples,
         const std::vector<int64_t>& steps)
      : samples_(samples), first_(*samples.at(0)), fit_(steps) {
    for (const auto& sample : samples) {
      if (sample->tape_.nodes.size() != first_.tape_.nodes.size() ||
          sample->tape_.constants.size() != first_.tape_.constants.size() ||
          sample->tape_.outputs != first_.tape_.outputs) {
        refuse("the graphs have different nodes");
      }
    }
    values_.resize(first_.tape_.value_count);
    settle_constants();
    for (size_t i = 0; i < first_.tape_.nodes.size(); ++i) unite_node(i);
    emit();
  }

  void unite_checks(const std::vector<std::vector<std::pair<size_t, int64_t>>>& checks) {
    for (size_t i = 0; i < checks.at(0).size(); ++i) {
      std::vector<int64_t> sizes;
      for (const auto& sample : checks) {
        if (sample.size() != checks[0].size() || sample[i].first != checks[0][i].first) {
          refuse("the indices are used in different ways");
        }
        sizes.push_back(sample[i].second);
      }
      closure_->checks_.push_back({checks[0][i].first, fit_.line(sizes)});
    }
  }

  std::shared_ptr<const Closure> take() { return std::move(closure_); }

 private:
  size_t first_constant() const { return first_.tape_.input_count; }

  // A constant that is the same in every sample is settled; a small one may grow.
  void settle_constants() {
    for (size_t i = 0; i < first_.tape_.constants.size(); ++i) {
      const mx::array& base = first_.tape_.constants[i];
      bool is_same = true;
      for (const auto& sample : samples_) {
        const mx::array& other = sample->tape_.constants[i];
        if (other.dtype() != base.dtype() || other.shape() != base.shape()) {
          refuse("a constant changes its shape");
        }
        is_same = is_same && same_bytes(base, other);
      }
      if (is_same) {
        values_[first_constant() + i] = base;
      } else {
        growing_.emplace(first_constant() + i, grow(i));
      }
    }
  }

  GrowingConstant grow(size_t i) const {
    std::vector<mx::array> at;
    for (const auto& sample : samples_) at.push_back(sample->tape_.constants[i]);
    if (at[0].size() > kMaxGrowingElements) refuse("a large constant changes");
    return fit_.constant(at);
  }

  void unite_node(size_t i) {
    const Tape::Node& node = first_.tape_.nodes[i];
    std::vector<const Tape::Node*> at;
    for (const auto& sample : samples_) {
      const Tape::Node& other = sample->tape_.nodes[i];
      if (other.inputs != node.inputs || other.shapes.size() != node.shapes.size() ||
          std::strcmp(other.primitive->name(), node.primitive->name()) != 0) {
        refuse("the graphs have different nodes");
      }
      at.push_back(&other);
    }
    Tape::Node made{node.primitive, node.inputs, node.shapes, node.dtypes, growth_of(at)};
    const size_t id = node_ids_.empty() ? first_constant() + first_.tape_.constants.size()
                                        : node_ids_.back() + united_.back().shapes.size();
    node_ids_.push_back(id);
    if (made.growth == nullptr && all_settled(made.inputs)) settle(made, id);
    united_.push_back(std::move(made));
  }

  std::shared_ptr<const Growth> growth_of(const std::vector<const Tape::Node*>& at) const {
    auto growth = std::make_shared<Growth>();
    bool grows = false;
    for (size_t output = 0; output < at[0]->shapes.size(); ++output) {
      std::vector<mx::Shape> shapes;
      for (const auto* node : at) shapes.push_back(node->shapes[output]);
      growth->shapes.push_back(fit_.lines(shapes));
      for (const Line& line : growth->shapes.back()) grows = grows || line.slope != 0;
    }
    std::vector<mx::Primitive*> primitives;
    bool is_same = true;
    for (const auto* node : at) {
      primitives.push_back(node->primitive.get());
      is_same = is_same && (node->primitive == at[0]->primitive ||
                            at[0]->primitive->is_equivalent(*node->primitive));
    }
    if (!is_same) growth->rebuild = regrow(fit_, primitives, at[0]->dtypes);
    return grows || !is_same ? growth : nullptr;
  }

  bool all_settled(const std::vector<uint32_t>& ids) const {
    for (uint32_t id : ids) {
      if (!values_[id].has_value()) return false;
    }
    return true;
  }

  // What does not depend on the inputs or on the step is computed once.
  void settle(const Tape::Node& node, size_t id) {
    std::vector<mx::array> inputs;
    for (uint32_t input : node.inputs) inputs.push_back(*values_[input]);
    for (auto& made : mx::array::make_arrays(node.shapes, node.dtypes, node.primitive, inputs)) {
      values_[id++] = std::move(made);
    }
  }

  void emit() {
    closure_->tape_.input_count = first_.tape_.input_count;
    std::vector<uint32_t> ids(first_.tape_.value_count);
    std::vector<bool> is_numbered(first_.tape_.value_count, false);
    for (size_t i = 0; i < first_.tape_.input_count; ++i) {
      ids[i] = static_cast<uint32_t>(i);
      is_numbered[i] = true;
    }
    auto number_constant = [&](uint32_t old) {
      if (is_numbered[old]) return;
      const auto growing = growing_.find(old);
      if (growing == growing_.end() && !values_[old].has_value()) return;
      const size_t index = closure_->tape_.constants.size();
      if (growing != growing_.end()) {
        closure_->tape_.growing_constants.push_back(
            {index, growing->second.base, growing->second.slope});
        closure_->tape_.constants.push_back(growing->second.base);
      } else {
        closure_->tape_.constants.push_back(*values_[old]);
      }
      ids[old] = static_cast<uint32_t>(closure_->tape_.input_count + index);
      is_numbered[old] = true;
    };
    for (size_t i = 0; i < united_.size(); ++i) {
      if (values_[node_ids_[i]].has_value()) continue;
      for (uint32_t input : united_[i].inputs) number_constant(input);
    }
    for (uint32_t output : first_.tape_.outputs) number_constant(output);
    mx::eval(closure_->tape_.constants);

    uint32_t next =
        static_cast<uint32_t>(closure_->tape_.input_count + closure_->tape_.constants.size());
    for (size_t i = 0; i < united_.size(); ++i) {
      if (values_[node_ids_[i]].has_value()) continue;
      Tape::Node node = united_[i];
      for (uint32_t& input : node.inputs) input = ids[input];
      for (size_t k = 0; k < node.shapes.size(); ++k) ids[node_ids_[i] + k] = next++;
      closure_->nbytes_ += sizeof(Tape::Node) + sizeof(Growth);
      closure_->tape_.nodes.push_back(std::move(node));
    }
    for (uint32_t output : first_.tape_.outputs) closure_->tape_.outputs.push_back(ids[output]);
    closure_->tape_.value_count = next;
    closure_->prepare(first_.placeholders_, first_.threads_);
  }

  const std::vector<std::shared_ptr<const Closure>>& samples_;
  const Closure& first_;
  const LineFit fit_;
  std::shared_ptr<Closure> closure_ = std::make_shared<Closure>();
  std::vector<std::optional<mx::array>> values_;  // settled values, by id in the samples
  std::unordered_map<size_t, GrowingConstant> growing_;
  std::vector<Tape::Node> united_;
  std::vector<size_t> node_ids_;  // the id of each node's first output, in the samples
};

std::shared_ptr<const Closure> unite(
    const std::vector<std::shared_ptr<const Closure>>& samples, const std::vector<int64_t>& steps,
    const std::vector<std::vector<std::pair<size_t, int64_t>>>& checks) {
  if (samples.size() < 2 || samples.size() != steps.size() || samples.size() != checks.size() ||
      steps[0] != 0 || steps[1] == 0) {
    throw std::invalid_argument("ort_mlx: a progression needs samples from step 0 on");
  }
  Uniter uniter(samples, steps);
  uniter.unite_checks(checks);
  return uniter.take();
}

}  // namespace ort_mlx
