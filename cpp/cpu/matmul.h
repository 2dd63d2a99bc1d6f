// Matrix products in float32 on OpenBLAS.
#pragma once

#include "kernel.h"

namespace ort_mlx::cpu {

// alpha * a b + beta * c, over any leading dimensions; c is there for three inputs.
class BlasMatmul : public CpuKernel {
 public:
  BlasMatmul(mx::Stream stream, int threads, float alpha, float beta)
      : CpuKernel(stream, threads), alpha_(alpha), beta_(beta) {}

  void run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  const char* name() const override { return "BlasMatmul"; }
  bool is_equivalent(const mx::Primitive& other) const override;

 private:
  float alpha_;
  float beta_;
};

}  // namespace ort_mlx::cpu
