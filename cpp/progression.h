// One closure for a progression of keys, such as the steps of a decoder whose cache grows by a row.
//
// The graph is traced at several steps of the progression. Where every shape, parameter and small
// constant is a linear function of the step, at each of them, the closures are united into one that
// takes the step as a number. The steps that were traced include both ends of the range it is used
// for: a threshold in between would put different lines through the two ends.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "closure.h"

namespace ort_mlx {

// Samples as `Closure::sample` makes them, with the step of each: the first is 0, the second is
// not. `checks` has the input and the size of each index check, for each sample. Throws
// std::runtime_error with the reason when they are not linear.
std::shared_ptr<const Closure> unite(
    const std::vector<std::shared_ptr<const Closure>>& samples, const std::vector<int64_t>& steps,
    const std::vector<std::vector<std::pair<size_t, int64_t>>>& checks);

}  // namespace ort_mlx
