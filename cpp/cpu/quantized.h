// Products with affinely quantised weights.
#pragma once

#include "kernel.h"

namespace ort_mlx::cpu {

// x w^T in float32, rounded once to x's dtype. Inputs: x [..., k]; the weights [n, k * bits / 32]
// in MLX's packing, 2, 4 or 8 bits each; their scales and biases [n, k / group_size].
class QuantizedProduct : public CpuKernel {
 public:
  QuantizedProduct(mx::Stream stream, int threads, int group_size, int bits)
      : CpuKernel(stream, threads), group_size_(group_size), bits_(bits) {}

  void run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  const char* name() const override { return "QuantizedProduct"; }
  bool is_equivalent(const mx::Primitive& other) const override {
    const auto& o = static_cast<const QuantizedProduct&>(other);
    return group_size_ == o.group_size_ && bits_ == o.bits_;
  }

 private:
  int group_size_;
  int bits_;
};

}  // namespace ort_mlx::cpu
