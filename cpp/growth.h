// How a node of a closure changes along a progression of keys.
#pragma once

#include <mlx/array.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace ort_mlx {

namespace mx = mlx::core;

// A whole number that is linear in the step.
struct Line {
  int64_t base = 0;
  int64_t slope = 0;
  int64_t at(int64_t step) const { return base + slope * step; }
};
using Lines = std::vector<Line>;

mx::Shape shape_at(const Lines& lines, int64_t step);

struct Growth {
  std::vector<Lines> shapes;  // of each output
  // Makes the outputs where the primitive itself changes; empty where only the shapes do.
  std::function<std::vector<mx::array>(const std::vector<mx::array>& inputs, int64_t step)> rebuild;
};

// A small constant whose elements are linear in the step.
struct GrowingConstant {
  size_t index;  // among the closure's constants
  mx::array base;
  mx::array slope;
  mx::array at(int64_t step) const;
};

}  // namespace ort_mlx
