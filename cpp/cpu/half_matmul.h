// Matrix products of 16-bit floats.
#pragma once

#include "kernel.h"

namespace ort_mlx::cpu {

// alpha * a b + beta * c in float32, rounded once to float16 or bfloat16, over any leading
// dimensions; c is there for three inputs.
class HalfMatmul : public CpuKernel {
 public:
  HalfMatmul(mx::Stream stream, int threads, float alpha, float beta)
      : CpuKernel(stream, threads), alpha_(alpha), beta_(beta) {}

  void run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  const char* name() const override { return "HalfMatmul"; }
  bool is_equivalent(const mx::Primitive& other) const override {
    const auto& o = static_cast<const HalfMatmul&>(other);
    return alpha_ == o.alpha_ && beta_ == o.beta_;
  }

 private:
  float alpha_;
  float beta_;
};

}  // namespace ort_mlx::cpu
