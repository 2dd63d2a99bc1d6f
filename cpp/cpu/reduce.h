// Sums, maxima and minima in float32 over any axes of any memory order.
#pragma once

#include "kernel.h"
#include "vector.h"

namespace ort_mlx::cpu {

class Reduced : public CpuKernel {
 public:
  // `op`: kRowSum, kRowMax or kRowMin.
  Reduced(mx::Stream stream, int threads, Op op, std::vector<int> axes)
      : CpuKernel(stream, threads), op_(op), axes_(std::move(axes)) {}
  void run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  const char* name() const override { return "Reduced"; }
  bool is_equivalent(const mx::Primitive& other) const override {
    const auto& o = static_cast<const Reduced&>(other);
    return op_ == o.op_ && axes_ == o.axes_;
  }

 private:
  Op op_;
  std::vector<int> axes_;
};

}  // namespace ort_mlx::cpu
