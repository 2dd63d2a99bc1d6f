// Primitives that write into a part of an array. The rest is not copied where the result may take
// over the array's memory, as a key/value cache does that its owner shares with us.
#pragma once

#include "kernel.h"

namespace ort_mlx::cpu {

class Update : public CpuKernel {
 public:
  using CpuKernel::CpuKernel;
  void run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) final;
  bool updates_first_input() const final { return true; }

 private:
  virtual void write(const std::vector<mx::array>& inputs, mx::array& out) = 0;
};

// A block at a start that is data: inputs are the array, the block, and its start along `axes`. A
// start from which the block would not fit is moved back until it does.
class BlockWritten : public Update {
 public:
  BlockWritten(mx::Stream stream, int threads, std::vector<int> axes)
      : Update(stream, threads), axes_(std::move(axes)) {}
  const char* name() const override { return "BlockWritten"; }
  bool is_equivalent(const mx::Primitive& other) const override {
    return axes_ == static_cast<const BlockWritten&>(other).axes_;
  }

 private:
  void write(const std::vector<mx::array>& inputs, mx::array& out) override;
  std::vector<int> axes_;
};

// Elements by their place along one axis: inputs are the array, places and elements, the latter two
// of one shape. Negative places count back; one out of range throws.
class ElementsWritten : public Update {
 public:
  ElementsWritten(mx::Stream stream, int threads, int axis)
      : Update(stream, threads), axis_(axis) {}
  const char* name() const override { return "ElementsWritten"; }
  bool is_equivalent(const mx::Primitive& other) const override {
    return axis_ == static_cast<const ElementsWritten&>(other).axis_;
  }

 private:
  void write(const std::vector<mx::array>& inputs, mx::array& out) override;
  int axis_;
};

}  // namespace ort_mlx::cpu
