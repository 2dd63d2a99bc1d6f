// A closure: an MLX graph as an immutable tape. It is captured once from a trace and replayed from
// any thread, without the GIL and without MLX's own compile cache.
#pragma once

#include <mlx/array.h>
#include <mlx/primitives.h>

#include <memory>
#include <vector>

#include "growth.h"

namespace ort_mlx {

namespace mx = mlx::core;

// An array that stands for an input while tracing: it has a shape and a dtype, but no data.
mx::array make_placeholder(mx::Shape shape, mx::Dtype dtype);

// Values of an input that must lie in [-size, size), because they index an axis of that size.
struct IndexCheck {
  size_t input;
  Line size;
};

class Closure {
 public:
  // Walks the graph behind `outputs` back to `placeholders`. What does not depend on them is
  // evaluated once and kept; equal calls on equal inputs are merged. On the CPU some primitives are
  // exchanged for better ones, which use `threads` threads (0: one for each processor).
  static std::shared_ptr<const Closure> capture(const std::vector<mx::array>& placeholders,
                                                const std::vector<mx::array>& outputs,
                                                int threads = 0,
                                                std::vector<IndexCheck> checks = {});

  // The graph as it was traced, nothing folded or merged: what `unite` compares.
  static std::shared_ptr<const Closure> sample(const std::vector<mx::array>& placeholders,
                                               const std::vector<mx::array>& outputs,
                                               int threads = 0);

  // The graph again, on these inputs. Lazy, like any MLX graph. `step` is for a closure that serves
  // a progression.
  std::vector<mx::array> replay(std::vector<mx::array> inputs, int64_t step = 0) const;

  const std::vector<IndexCheck>& checks() const { return checks_; }
  size_t input_count() const { return input_count_; }
  size_t node_count() const { return nodes_.size(); }
  // Memory that only this closure holds on to: its tape, and constants it folded itself.
  size_t nbytes() const { return nbytes_; }

 private:
  struct Node {
    std::shared_ptr<mx::Primitive> primitive;
    std::vector<uint32_t> inputs;
    std::vector<mx::Shape> shapes;
    std::vector<mx::Dtype> dtypes;
    std::shared_ptr<const Growth> growth;  // absent where nothing changes along a progression
  };
  static std::vector<mx::array> grown(const Node& node, std::vector<mx::array> inputs,
                                      int64_t step);
  friend class Capture;
  friend class Uniter;

  // A value is known by its position: inputs, then constants, then the outputs of each node.
  size_t input_count_ = 0;
  size_t value_count_ = 0;
  size_t nbytes_ = 0;
  std::vector<mx::array> constants_;
  std::vector<GrowingConstant> growing_constants_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> outputs_;
  std::vector<IndexCheck> checks_;
};

}  // namespace ort_mlx
