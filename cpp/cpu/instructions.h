// Which instruction of the elementwise kernel computes an MLX primitive, for each kind of element.
#pragma once

#include <mlx/dtype.h>

#include <optional>
#include <string_view>
#include <unordered_map>

#include "elementwise.h"

namespace ort_mlx::cpu {

struct Instructions {
  std::optional<Op> of_float;
  std::optional<Op> of_int;  // and of bool, where that makes sense
  std::optional<Op> of_bool;
  double cost = 1;
};

// By the primitive's name.
const std::unordered_map<std::string_view, Instructions>& instructions();

// Whether the kernel has elements of this type.
bool is_known(mx::Dtype dtype);

// The instruction that converts between two of them, or nothing where the bits stay.
std::optional<Op> conversion(mx::Dtype from, mx::Dtype to);

}  // namespace ort_mlx::cpu
