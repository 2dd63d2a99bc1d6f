// A body run again and again as one node of a graph: a loop that is not unrolled, on the CPU.
#pragma once

#include <mlx/array.h>

#include <cstdint>
#include <vector>

namespace ort_mlx {

namespace mx = mlx::core;

// The trace of a loop's body.
struct Body {
  // The iteration's number where it is counted, the carried values, a row of each source.
  std::vector<mx::array> placeholders;
  // Whether to go on where that is conditional, the carried values, and rows to be stacked.
  std::vector<mx::array> outputs;
  bool is_counted;      // the first placeholder is the iteration's number, an int64
  bool is_conditional;  // the first output is a bool; then no rows are stacked
};

// The body's last carried values and the stacked rows, after at most `trips` > 0 iterations. What
// the body reads from outside is computed once. A node of the graph that `carried` and `sources`
// are part of; computed at once when `is_traced` is false.
std::vector<mx::array> repeat(const Body& body, int64_t trips, std::vector<mx::array> carried,
                              const std::vector<mx::array>& sources, int threads, bool is_traced);

}  // namespace ort_mlx
