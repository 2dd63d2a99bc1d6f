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

// The same product with fewer and taller matrices: where several in a row of a stack are multiplied
// by one b, as heads of queries by the keys that they share, their rows become those of one matrix.
inline void merge_rows(Stack& a, Stack& b, Stack& c) {
  auto merges = [](const Stack& s) {
    return s.rows() == 1 || s.strides[s.strides.size() - 3] == s.rows() * s.row_stride();
  };
  while (b.shape.size() > 2) {
    const size_t at = b.shape.size() - 3;
    const int64_t copies = b.shape[at];
    if (copies != 1 && (b.strides[at] != 0 || !merges(a) || !merges(c))) return;
    for (Stack* s : {&a, &c}) {
      if (s->rows() == 1) s->strides[at + 1] = s->strides[at];
      s->shape[at + 1] *= static_cast<int>(copies);
    }
    for (Stack* s : {&a, &b, &c}) {
      s->shape.erase(s->shape.begin() + static_cast<int64_t>(at));
      s->strides.erase(s->strides.begin() + static_cast<int64_t>(at));
    }
  }
}

}  // namespace ort_mlx::cpu
