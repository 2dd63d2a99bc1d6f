// The instruction sets that the inner loops are built for. Apart from vector.h, which the loops
// themselves include: what they include must have no inline functions to be built for each set.
#pragma once

#include <string>
#include <vector>

namespace ort_mlx::cpu {

// Those that this processor has, the best one last, which is used unless another is asked for: so
// that tests reach them all.
std::vector<std::string> instruction_sets();
void use_instruction_set(const std::string& name);

}  // namespace ort_mlx::cpu
