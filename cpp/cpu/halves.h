// Floats of any width, read and written as float32.
#pragma once

#include <mlx/array.h>

#include <cstdint>

namespace ort_mlx::cpu {

namespace mx = mlx::core;

// float32, float16 or bfloat16.
bool is_float(mx::Dtype dtype);
// `n` elements of `a`'s memory from element `first` on.
void read_floats(float* to, const mx::array& a, int64_t first, int64_t n);
// The same, rounded to the nearest.
void write_floats(mx::array& a, int64_t first, const float* from, int64_t n);

}  // namespace ort_mlx::cpu
