// Splitting work over the processors. One pool serves the process; a call says how many it wants.
#pragma once

#include <cstdint>
#include <functional>

namespace ort_mlx::cpu {

// The threads of a session that names no number: one for each processor.
int default_threads();

// Calls body(first, last) on disjoint ranges that cover [0, count), each a multiple of `unit` long
// but for the last. The calling thread takes part, and does what others have not begun when it is
// done with its own. An exception in a part is rethrown here.
void parallel_ranges(int threads, int64_t count, int64_t unit,
                     const std::function<void(int64_t, int64_t)>& body);

}  // namespace ort_mlx::cpu
