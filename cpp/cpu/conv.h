// Convolutions in float32: products on OpenBLAS over gathered patches, and depthwise ones directly.
#pragma once

#include <array>

#include "lowering.h"

namespace ort_mlx::cpu {

struct Window {
  std::array<int, 2> stride;
  std::array<int, 2> dilation;
  std::array<int, 2> pad_before;
  bool operator==(const Window&) const = default;
};

// x [batch, height, width, channels], w [outputs, height, width, channels / groups], as MLX has
// them; one spatial dimension counts as a height of 1. Follows the memory order of x: where
// channels lie outermost, so do the result's, and no transpose is needed around it.
class BlasConvolution : public CpuPrimitive {
 public:
  BlasConvolution(mx::Stream stream, int threads, Window window, int groups)
      : CpuPrimitive(stream, threads), window_(window), groups_(groups) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override;
  const char* name() const override { return "BlasConvolution"; }
  bool is_equivalent(const mx::Primitive& other) const override;

 private:
  Window window_;
  int groups_;
};

}  // namespace ort_mlx::cpu
