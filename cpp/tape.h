// What a closure replays: the nodes of a graph in order, over values known by number.
#pragma once

#include <mlx/array.h>
#include <mlx/primitives.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "growth.h"

namespace ort_mlx {

namespace mx = mlx::core;

// A value is known by its position: inputs, then constants, then the outputs of each node.
struct Tape {
  struct Node {
    std::shared_ptr<mx::Primitive> primitive;
    std::vector<uint32_t> inputs;
    std::vector<mx::Shape> shapes;
    std::vector<mx::Dtype> dtypes;
    std::shared_ptr<const Growth> growth;  // absent where nothing changes along a progression
  };

  size_t input_count = 0;
  size_t value_count = 0;
  std::vector<mx::array> constants;
  std::vector<GrowingConstant> growing_constants;
  std::vector<Node> nodes;
  std::vector<uint32_t> outputs;
};

}  // namespace ort_mlx
