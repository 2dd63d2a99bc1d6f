// Stacks of matrices: any strides for the leading dimensions, two for the matrix itself.
#pragma once

#include <mlx/array.h>

namespace ort_mlx::cpu {

namespace mx = mlx::core;

struct Stack {
  mx::Shape shape;
  mx::Strides strides;

  explicit Stack(const mx::array& a) : shape(a.shape()), strides(a.strides()) {}
  Stack(const mx::array& a, mx::Shape as)  // broadcast to `as`
      : shape(std::move(as)), strides(shape.size(), 0) {
    const size_t missing = shape.size() - a.ndim();
    for (size_t i = 0; i < a.ndim(); ++i) {
      strides[missing + i] = a.shape(static_cast<int>(i)) == 1 ? 0 : a.strides()[i];
    }
  }

  // Of a matrix from the array's first element.
  int64_t offset(int64_t index) const {
    int64_t at = 0;
    for (size_t i = shape.size() - 2; i-- > 0;) {
      at += index % shape[i] * strides[i];
      index /= shape[i];
    }
    return at;
  }
  int64_t rows() const { return shape[shape.size() - 2]; }
  int64_t columns() const { return shape[shape.size() - 1]; }
  int64_t row_stride() const { return strides[shape.size() - 2]; }
  int64_t column_stride() const { return strides[shape.size() - 1]; }
};

}  // namespace ort_mlx::cpu
