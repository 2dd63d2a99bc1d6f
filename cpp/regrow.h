// Lines through the parameters of MLX primitives, and primitives made again for another step.
#pragma once

#include <mlx/primitives.h>

#include <vector>

#include "growth.h"

namespace ort_mlx {

// Puts lines through what was seen at some steps; throws std::runtime_error where there is none.
class LineFit {
 public:
  explicit LineFit(const std::vector<int64_t>& steps) : steps_(steps) {}

  Line line(const std::vector<int64_t>& values) const;
  Lines lines(const std::vector<mx::Shape>& shapes) const;
  GrowingConstant constant(const std::vector<mx::array>& values) const;

 private:
  const std::vector<int64_t>& steps_;
};

// What makes the outputs of primitives that are of one kind and differ in their parameters.
std::function<std::vector<mx::array>(const std::vector<mx::array>&, int64_t)> regrow(
    const LineFit& fit, const std::vector<mx::Primitive*>& at,
    const std::vector<mx::Dtype>& dtypes);

}  // namespace ort_mlx
