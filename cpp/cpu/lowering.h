// Better CPU implementations for some MLX primitives, put in their place when a graph is captured.
// Nothing here knows ONNX; on other devices, and for other dtypes, MLX's own are kept.
#pragma once

#include <mlx/array.h>
#include <mlx/primitives.h>

#include <memory>
#include <vector>

namespace ort_mlx::cpu {

namespace mx = mlx::core;

// What is known of a value before it is computed.
struct Value {
  mx::Shape shape;
  mx::Dtype dtype;
};

// A call of a primitive.
struct Call {
  const std::shared_ptr<mx::Primitive>& primitive;
  const std::vector<Value>& inputs;
  const Value& output;  // the first
};

// A primitive that computes what the call's does, or its own when there is nothing better.
std::shared_ptr<mx::Primitive> lower(const Call& call, int threads);

}  // namespace ort_mlx::cpu
