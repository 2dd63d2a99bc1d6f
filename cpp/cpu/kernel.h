// What our CPU primitives have in common.
#pragma once

#include <mlx/array.h>
#include <mlx/primitives.h>

#include <vector>

namespace ort_mlx::cpu {

namespace mx = mlx::core;

// Runs on the calling thread, and on `threads` threads in all where that pays.
class CpuKernel : public mx::Primitive {
 public:
  CpuKernel(mx::Stream stream, int threads) : Primitive(stream), threads_(threads) {}

  // Fills the outputs, whose inputs have been computed.
  virtual void run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) = 0;
  // Whether `run` would read the elements of these inputs, and not only pass them on.
  virtual bool reads(const std::vector<mx::array>& inputs) const;
  // Whether the output is the first input with a part of it changed.
  virtual bool updates_first_input() const { return false; }

  // Inside MLX's own evaluation: waits for what was scheduled before, then runs.
  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) final;
  void eval_gpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) final;

 protected:
  int threads() const { return threads_; }

 private:
  int threads_;
};

}  // namespace ort_mlx::cpu
