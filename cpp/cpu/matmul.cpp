#include "matmul.h"

#include <algorithm>
#include <cstring>

#include "blas.h"
#include "layout.h"
#include "parallel.h"
#include "stack.h"

namespace ort_mlx::cpu {

namespace {

// The matrix as BLAS takes it, copied to `scratch` when its strides are not.
Matrix as_matrix(const Stack& stack, const float* at, std::vector<float>& scratch) {
  const int64_t rows = stack.rows(), columns = stack.columns();
  if (stack.column_stride() == 1 && stack.row_stride() >= columns) {
    return {at, stack.row_stride(), false};
  }
  if (stack.row_stride() == 1 && stack.column_stride() >= rows) {
    return {at, stack.column_stride(), true};
  }
  scratch.resize(static_cast<size_t>(rows * columns));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      scratch[static_cast<size_t>(r * columns + c)] =
          at[r * stack.row_stride() + c * stack.column_stride()];
    }
  }
  return {scratch.data(), std::max<int64_t>(columns, 1), false};
}

void copy_rows(const Stack& from, const float* at, float* to) {
  const int64_t columns = from.columns();
  for (int64_t r = 0; r < from.rows(); ++r, to += columns) {
    const float* row = at + r * from.row_stride();
    if (from.column_stride() == 1) {
      std::memcpy(to, row, static_cast<size_t>(columns) * sizeof(float));
    } else {
      for (int64_t c = 0; c < columns; ++c) to[c] = row[c * from.column_stride()];
    }
  }
}

}  // namespace

bool BlasMatmul::is_equivalent(const mx::Primitive& other) const {
  const auto& o = static_cast<const BlasMatmul&>(other);
  return alpha_ == o.alpha_ && beta_ == o.beta_;
}

void BlasMatmul::run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  mx::array& out = outputs[0];
  allocate(out);
  if (out.size() == 0) return;
  Stack a(inputs[0]), b(inputs[1]);
  const bool adds = inputs.size() == 3 && beta_ != 0;
  Stack c = adds ? Stack(inputs[2], out.shape()) : a;
  merge_rows(a, b, c);
  const float beta = adds ? beta_ : 0.0f;
  const int64_t m = a.rows(), k = a.columns(), n = b.columns();
  const int64_t matrices = static_cast<int64_t>(out.size()) / (m * n);
  float* to = out.data<float>();
  // Many small products share the threads between them; few large ones are split each.
  const bool split_stack = matrices >= 2 * threads();
  parallel_ranges(split_stack ? threads() : 1, matrices, 1, [&](int64_t first, int64_t last) {
    std::vector<float> scratch_a, scratch_b;
    for (int64_t i = first; i < last; ++i) {
      float* result = to + i * m * n;
      if (adds) copy_rows(c, inputs[2].data<float>() + c.offset(i), result);
      if (k == 0) {
        for (int64_t e = 0; e < m * n; ++e) result[e] = adds ? beta * result[e] : 0.0f;
        continue;
      }
      parallel_sgemm(split_stack ? 1 : threads(), m, n, k, alpha_,
                     as_matrix(a, inputs[0].data<float>() + a.offset(i), scratch_a),
                     as_matrix(b, inputs[1].data<float>() + b.offset(i), scratch_b), beta, result,
                     n);
    }
  });
}

}  // namespace ort_mlx::cpu
