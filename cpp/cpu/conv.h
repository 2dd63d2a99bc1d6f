// Convolutions in float32, computed with channels outermost in memory.
#pragma once

#include "geometry.h"
#include "kernel.h"

namespace ort_mlx::cpu {

// x [batch, height, width, channels], w [outputs, height, width, channels / groups], as MLX has
// them; one spatial dimension counts as a height of 1. Channels lie outermost in the result's
// memory, and where they do in x's, nothing is transposed.
class PlanarConvolution : public CpuKernel {
 public:
  PlanarConvolution(mx::Stream stream, int threads, Window window, int groups)
      : CpuKernel(stream, threads), window_(window), groups_(groups) {}

  void run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  const char* name() const override { return "PlanarConvolution"; }
  bool is_equivalent(const mx::Primitive& other) const override;

 private:
  Window window_;
  int groups_;
};

// The transpose of one: `window` is that of the convolution that it undoes the shape of.
class TransposedConvolution : public CpuKernel {
 public:
  TransposedConvolution(mx::Stream stream, int threads, Window window, int groups)
      : CpuKernel(stream, threads), window_(window), groups_(groups) {}

  void run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  const char* name() const override { return "TransposedConvolution"; }
  bool is_equivalent(const mx::Primitive& other) const override;

 private:
  Window window_;
  int groups_;
};

}  // namespace ort_mlx::cpu
