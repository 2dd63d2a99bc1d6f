// Primitives that only look at the same memory in another way, and copy when that cannot be.
#pragma once

#include "kernel.h"

namespace ort_mlx::cpu {

// Makes `out` a view of `in`, with the flags that MLX's primitives go by.
void view(const mx::array& in, mx::array& out, const mx::Strides& strides, int64_t offset = 0);

// Any of Reshape, Flatten, Unflatten, Squeeze, ExpandDims, StopGradient: the elements in row-major
// order under another shape.
class Reshaped : public CpuKernel {
 public:
  using CpuKernel::CpuKernel;
  void run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  bool reads(const std::vector<mx::array>& inputs) const override;
  const char* name() const override { return "Reshaped"; }
  bool is_equivalent(const mx::Primitive&) const override { return true; }
};

class Transposed : public CpuKernel {
 public:
  Transposed(mx::Stream stream, std::vector<int> axes)
      : CpuKernel(stream, 1), axes_(std::move(axes)) {}
  void run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  bool reads(const std::vector<mx::array>&) const override { return false; }
  const char* name() const override { return "Transposed"; }
  bool is_equivalent(const mx::Primitive& other) const override {
    return axes_ == static_cast<const Transposed&>(other).axes_;
  }
  const std::vector<int>& axes() const { return axes_; }

 private:
  std::vector<int> axes_;
};

class Broadcasted : public CpuKernel {
 public:
  explicit Broadcasted(mx::Stream stream) : CpuKernel(stream, 1) {}
  void run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  bool reads(const std::vector<mx::array>&) const override { return false; }
  const char* name() const override { return "Broadcasted"; }
  bool is_equivalent(const mx::Primitive&) const override { return true; }
};

// One output for each start; every output has its own shape.
class Sliced : public CpuKernel {
 public:
  Sliced(mx::Stream stream, std::vector<mx::Shape> starts, mx::Shape steps)
      : CpuKernel(stream, 1), starts_(std::move(starts)), steps_(std::move(steps)) {}
  void run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  bool reads(const std::vector<mx::array>&) const override { return false; }
  const char* name() const override { return "Sliced"; }
  bool is_equivalent(const mx::Primitive& other) const override {
    const auto& o = static_cast<const Sliced&>(other);
    return starts_ == o.starts_ && steps_ == o.steps_;
  }

 private:
  std::vector<mx::Shape> starts_;
  mx::Shape steps_;
};

}  // namespace ort_mlx::cpu
