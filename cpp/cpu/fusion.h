// Makes the tape that runs on the CPU from one of MLX's primitives: each group of elementwise ones
// becomes one kernel, and others are lowered one by one.
#pragma once

#include "../tape.h"

namespace ort_mlx::cpu {

// `inputs` are like the tape's inputs; only their shapes and dtypes are read.
Tape fuse(const Tape& tape, const std::vector<mx::array>& inputs, int threads);

}  // namespace ort_mlx::cpu
