// Memory orders: kernels write their results in the order that their inputs lie in, so that a
// channels-last value that is stored channels first needs no transpose.
#pragma once

#include <mlx/array.h>

#include <vector>

namespace ort_mlx::cpu {

namespace mx = mlx::core;

// An order of dimensions in memory, outermost first.
using Order = std::vector<int>;

// The order of the first of `inputs` that has the shape and no gaps, else of the first that has the
// shape and gaps, as a slice has; row-major without one.
Order order_of(const std::vector<mx::array>& inputs, const mx::Shape& shape);
// Gives `out` memory in this order; one that has a place already keeps it where the order allows.
void allocate(mx::array& out, const Order& order);
void allocate(mx::array& out);  // row-major
bool has_order(const mx::array& a, const Order& order);

// A loop nest: sizes and, for one operand, the strides to go with them, outermost first.
struct Nest {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t total() const;
};

// The elements of an operand, broadcast to `shape`, as met when walking it in `order`. As few
// dimensions as possible, and at least one.
Nest nest_of(const mx::Strides& strides, const mx::Shape& shape, const Order& order);

}  // namespace ort_mlx::cpu
