// Convolutions of planar images: products of weights with panels of patches, a few output pixels of
// every input at a time, which are gathered in the order in which they are multiplied.
#pragma once

#include "geometry.h"

namespace ort_mlx::cpu {

// x [batch, channels, height, width], w [outputs, kernel_height, kernel_width, channels / groups],
// out [batch, outputs, out_height, out_width].
void convolve_planar(const Geometry& g, int threads, const float* x, const float* w, float* out);

}  // namespace ort_mlx::cpu
