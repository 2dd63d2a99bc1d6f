// Better CPU implementations for some MLX primitives, put in their place when a graph is captured.
// Nothing here knows ONNX; on other devices, and for other dtypes, MLX's own are kept.
#pragma once

#include <mlx/array.h>
#include <mlx/primitives.h>

#include <memory>

namespace ort_mlx::cpu {

namespace mx = mlx::core;

// A primitive that computes what `node`'s does, or its own when there is nothing better.
std::shared_ptr<mx::Primitive> lower(const mx::array& node, int threads);

// The base of our primitives: they run on the CPU only, on `threads` threads.
class CpuPrimitive : public mx::UnaryPrimitive {
 public:
  CpuPrimitive(mx::Stream stream, int threads) : UnaryPrimitive(stream), threads_(threads) {}
  void eval_gpu(const std::vector<mx::array>&, mx::array&) override;

 protected:
  int threads() const { return threads_; }

 private:
  int threads_;
};

}  // namespace ort_mlx::cpu
