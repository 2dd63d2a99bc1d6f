// Convolutions of each channel by itself: sums of shifted inputs, without gathering patches.
#pragma once

#include "geometry.h"

namespace ort_mlx::cpu {

// x [batch, channels, height, width], w [outputs, kernel_height, kernel_width]. A channel may have
// several outputs.
void convolve_depthwise(const Geometry& g, int threads, const float* x, const float* w, float* out);

}  // namespace ort_mlx::cpu
