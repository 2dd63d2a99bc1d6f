// Inner loops of convolutions, built once for each instruction set.
#pragma once

#include <cstdint>

namespace ort_mlx::cpu {

struct ConvLoops {
  // to[i] = the sum over taps of weights[t] * from[offsets[t] + i]
  void (*sum_shifted)(float* to, const float* from, const int64_t* offsets, const float* weights,
                      int64_t taps, int64_t n);
  // to[i] = the sum over taps of weights[t][i] * from[t][i]
  void (*sum_products)(float* to, const float* const* from, const float* const* weights,
                       int64_t taps, int64_t n);
};

const ConvLoops& conv_loops();

}  // namespace ort_mlx::cpu
