// A closure: an MLX graph as an immutable tape. It is captured once from a trace and replayed from
// any thread, without the GIL and without MLX's own compile cache.
#pragma once

#include <mlx/array.h>
#include <mlx/primitives.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tape.h"

namespace ort_mlx {

namespace mx = mlx::core;

// An array that stands for an input while tracing: it has a shape and a dtype, but no data.
mx::array make_placeholder(mx::Shape shape, mx::Dtype dtype);

// Values of an input that must lie in [-size, size), because they index an axis of that size.
struct IndexCheck {
  size_t input;
  Line size;
};

namespace cpu {
class Program;
}

class Closure {
 public:
  // Walks the graph behind `outputs` back to `placeholders`. What does not depend on them is
  // evaluated once and kept; equal calls on equal inputs are merged. On the CPU the graph becomes a
  // program of kernels of our own, which use `threads` threads (0: one for each processor).
  static std::shared_ptr<const Closure> capture(const std::vector<mx::array>& placeholders,
                                                const std::vector<mx::array>& outputs,
                                                int threads = 0,
                                                std::vector<IndexCheck> checks = {});

  // The closure of a part of a graph, and the values that it reads from the rest: they are its
  // inputs after the placeholders.
  static std::pair<std::shared_ptr<const Closure>, std::vector<mx::array>> capture_body(
      const std::vector<mx::array>& placeholders, const std::vector<mx::array>& outputs,
      int threads);

  // The graph as it was traced, nothing folded or merged: what `unite` compares.
  static std::shared_ptr<const Closure> sample(const std::vector<mx::array>& placeholders,
                                               const std::vector<mx::array>& outputs,
                                               int threads = 0);

  // The graph again, on these inputs. Computed at once by the program where there is one and no
  // input is part of another trace; otherwise lazy, like any MLX graph. `step` is for a closure
  // that serves a progression. `targets`: for each output the memory where it is wanted, or null;
  // what is computed elsewhere, or later, is not copied there.
  std::vector<mx::array> replay(std::vector<mx::array> inputs, int64_t step = 0,
                                const std::vector<void*>& targets = {}) const;

  // What is known of an output that can be computed in the caller's memory.
  struct Placeable {
    mx::Shape shape;
    mx::Dtype dtype;
    int32_t shared_input;  // whose memory that may be: an input, or -1
  };
  size_t output_count() const { return tape_.outputs.size(); }
  std::optional<Placeable> placeable(size_t output, int64_t step) const;

  const std::vector<IndexCheck>& checks() const { return checks_; }
  size_t input_count() const { return tape_.input_count; }
  size_t node_count() const { return tape_.nodes.size(); }
  // Of a sample: every node, for those who want to know what MLX is asked to do.
  struct Described {
    using Arrays = std::vector<std::pair<mx::Dtype, mx::Shape>>;
    std::string primitive;
    Arrays inputs, outputs;
  };
  std::vector<Described> nodes() const;
  // Memory that only this closure holds on to: its tape, and constants it folded itself.
  size_t nbytes() const { return nbytes_; }

 private:
  static std::vector<mx::array> grown(const Tape::Node& node, std::vector<mx::array> inputs,
                                      int64_t step);
  // Called when the tape is complete: makes the program, where there can be one.
  void prepare(const std::vector<mx::array>& placeholders, int threads);
  friend class Capture;
  friend class Uniter;

  size_t nbytes_ = 0;
  Tape tape_;
  std::vector<mx::array> placeholders_;  // these and the threads: kept by a sample, for `unite`
  int threads_ = 0;
  std::shared_ptr<const cpu::Program> program_;  // null where MLX evaluates the tape
  std::vector<IndexCheck> checks_;
};

}  // namespace ort_mlx
