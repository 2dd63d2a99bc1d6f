// Matrix products in float32 on OpenBLAS.
#pragma once

#include "lowering.h"

namespace ort_mlx::cpu {

// alpha * a b + beta * c, over any leading dimensions; c is there for three inputs.
class BlasMatmul : public CpuPrimitive {
 public:
  BlasMatmul(mx::Stream stream, int threads, float alpha, float beta)
      : CpuPrimitive(stream, threads), alpha_(alpha), beta_(beta) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override;
  const char* name() const override { return "BlasMatmul"; }
  bool is_equivalent(const mx::Primitive& other) const override;

 private:
  float alpha_;
  float beta_;
};

}  // namespace ort_mlx::cpu
