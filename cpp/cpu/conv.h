// Convolutions in float32: products on OpenBLAS over gathered patches, or directly where channels
// are alone.
#pragma once

#include "geometry.h"
#include "kernel.h"

namespace ort_mlx::cpu {

// x [batch, height, width, channels], w [outputs, height, width, channels / groups], as MLX has
// them; one spatial dimension counts as a height of 1. Follows the memory order of x: where
// channels lie outermost, so do the result's, and no transpose is needed around it.
class BlasConvolution : public CpuKernel {
 public:
  BlasConvolution(mx::Stream stream, int threads, Window window, int groups)
      : CpuKernel(stream, threads), window_(window), groups_(groups) {}

  void run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  const char* name() const override { return "BlasConvolution"; }
  bool is_equivalent(const mx::Primitive& other) const override;

 private:
  Window window_;
  int groups_;
};

// The transpose of one: `window` is that of the convolution that it undoes the shape of.
class BlasTransposedConvolution : public CpuKernel {
 public:
  BlasTransposedConvolution(mx::Stream stream, int threads, Window window, int groups)
      : CpuKernel(stream, threads), window_(window), groups_(groups) {}

  void run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  const char* name() const override { return "BlasTransposedConvolution"; }
  bool is_equivalent(const mx::Primitive& other) const override;

 private:
  Window window_;
  int groups_;
};

}  // namespace ort_mlx::cpu
