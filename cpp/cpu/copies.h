// Primitives that move elements of any dtype: concatenation, padding, taking rows, plain copies.
#pragma once

#include "kernel.h"

namespace ort_mlx::cpu {

// Copies elements between arrays of one shape and dtype, whatever their strides. `to` has memory.
void copy(const mx::array& from, mx::array& to, int threads);
// The elements without gaps in row-major order: the array itself when they lie so.
mx::array row_major(const mx::array& a, int threads);

class Contiguous : public CpuKernel {
 public:
  using CpuKernel::CpuKernel;
  void run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  bool reads(const std::vector<mx::array>& inputs) const override;
  const char* name() const override { return "RowMajor"; }
  bool is_equivalent(const mx::Primitive&) const override { return true; }
};

class Concatenated : public CpuKernel {
 public:
  Concatenated(mx::Stream stream, int threads, int axis)
      : CpuKernel(stream, threads), axis_(axis) {}
  void run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  const char* name() const override { return "Concatenated"; }
  bool is_equivalent(const mx::Primitive& other) const override {
    return axis_ == static_cast<const Concatenated&>(other).axis_;
  }

 private:
  int axis_;
};

// `low`: how far in the first element comes to lie, for each dimension.
class Padded : public CpuKernel {
 public:
  Padded(mx::Stream stream, int threads, mx::Shape low)
      : CpuKernel(stream, threads), low_(std::move(low)) {}
  void run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  const char* name() const override { return "Padded"; }
  bool is_equivalent(const mx::Primitive& other) const override {
    return low_ == static_cast<const Padded&>(other).low_;
  }

 private:
  mx::Shape low_;
};

// Rows of the first dimension, by one array of int32 or int64 indices; negative ones count back.
class RowsTaken : public CpuKernel {
 public:
  using CpuKernel::CpuKernel;
  void run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  const char* name() const override { return "RowsTaken"; }
  bool is_equivalent(const mx::Primitive&) const override { return true; }
};

}  // namespace ort_mlx::cpu
