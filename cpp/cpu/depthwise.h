// Convolutions of each channel by itself: sums of shifted inputs, without gathering patches.
#pragma once

#include "geometry.h"

namespace ort_mlx::cpu {

// x [batch, channels, height, width], w [outputs, kernel_height, kernel_width]. A channel may have
// several outputs.
void depthwise_planar(const Geometry& g, int threads, const float* x, const float* w, float* out);

// x [batch, height, width, channels], w as above. A channel has one output.
void depthwise_interleaved(const Geometry& g, int threads, const float* x, const float* w,
                           float* out);

}  // namespace ort_mlx::cpu
