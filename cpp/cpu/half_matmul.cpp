#include "half_matmul.h"

#include <algorithm>

#include "blas.h"
#include "copies.h"
#include "dots.h"
#include "halves.h"
#include "layout.h"
#include "parallel.h"
#include "stack.h"

namespace ort_mlx::cpu {

namespace {

constexpr int64_t kFewRows = 4;             // of a: more are worth widening b for BLAS
constexpr int64_t kTile = 128;              // columns of b at a time, for BLAS
constexpr int64_t kWideTile = 1024;         // as they are read
constexpr int64_t kWorthSharing = 1 << 17;  // multiplications, for a second thread

using Buffer = std::vector<float>;

// The matrix in float32, without gaps.
void widen_matrix(const Stack& stack, const mx::array& a, int64_t offset, Buffer& to) {
  const int64_t rows = stack.rows(), columns = stack.columns();
  to.resize(static_cast<size_t>(rows * columns));
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = offset + r * stack.row_stride();
    if (stack.column_stride() == 1) {
      read_floats(to.data() + r * columns, a, at, columns);
      continue;
    }
    for (int64_t c = 0; c < columns; ++c) {
      read_floats(to.data() + r * columns + c, a, at + c * stack.column_stride(), 1);
    }
  }
}

// A matrix of k rows, whose rows or columns lie without gaps.
struct Operand {
  const uint16_t* data;
  Half type;
  int64_t k, ld;
  bool is_transposed;
};

bool reads_narrow(int64_t m) { return m <= kFewRows || !blas_is_loaded(); }

// result[m, size] = a[m, k] times columns of b from `at` on.
void multiply(const Buffer& a, int64_t m, const Operand& b, int64_t at, int64_t size, float* result,
              Buffer& tile) {
  const int64_t k = b.k;
  if (reads_narrow(m)) {
    std::fill_n(result, m * size, 0.0f);
    for (int64_t i = 0; i < m; ++i) {
      const float* row = a.data() + i * k;
      for (int64_t c = 0; b.is_transposed && c < size; ++c) {
        result[i * size + c] = dots().dot_halves(row, b.data + (at + c) * b.ld, b.type, k);
      }
      for (int64_t r = 0; !b.is_transposed && r < k; ++r) {
        const uint16_t* from = b.data + r * b.ld + at;
        dots().accumulate_halves(result + i * size, from, b.type, row[r], size);
      }
    }
    return;
  }
  tile.resize(static_cast<size_t>(k * size));
  const int64_t lines = b.is_transposed ? size : k, length = b.is_transposed ? k : size;
  const uint16_t* from = b.data + (b.is_transposed ? at * b.ld : at);
  for (int64_t i = 0; i < lines; ++i) {
    dots().widen(tile.data() + i * length, from + i * b.ld, b.type, length);
  }
  sgemm(m, size, k, 1.0f, {a.data(), k, false}, {tile.data(), length, b.is_transposed}, 0.0f,
        result, size);
}

bool is_operand(const Stack& b) {
  return (b.row_stride() == 1 && b.column_stride() >= b.rows()) ||
         (b.column_stride() == 1 && b.row_stride() >= b.columns());
}

}  // namespace

void HalfMatmul::run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  mx::array& out = outputs[0];
  allocate(out);
  if (out.size() == 0) return;
  const bool adds = inputs.size() == 3 && beta_ != 0;
  Stack a(inputs[0]), c = adds ? Stack(inputs[2], out.shape()) : a;
  const mx::array right =
      is_operand(Stack(inputs[1])) ? inputs[1] : row_major(inputs[1], threads());
  Stack b(right);
  merge_rows(a, b, c);
  const bool is_transposed = b.column_stride() != 1 || b.row_stride() < b.columns();
  const int64_t m = a.rows(), k = a.columns(), n = b.columns();
  const int64_t matrices = static_cast<int64_t>(out.size()) / (m * n);
  const int workers = matrices * m * n * k < kWorthSharing ? 1 : threads();
  // Many small products share the threads between them; few large ones are split each.
  const bool split_stack = matrices >= 2 * workers;
  parallel_ranges(split_stack ? workers : 1, matrices, 1, [&](int64_t first, int64_t last) {
    Buffer left;
    for (int64_t i = first; i < last; ++i) {
      widen_matrix(a, inputs[0], a.offset(i), left);
      const Operand operand{right.data<uint16_t>() + b.offset(i),
                            right.dtype() == mx::float16 ? Half::kFloat16 : Half::kBfloat16, k,
                            is_transposed ? b.column_stride() : b.row_stride(), is_transposed};
      parallel_ranges(split_stack ? 1 : workers, n, kTile, [&](int64_t from, int64_t to) {
        const int64_t width = reads_narrow(m) ? kWideTile : kTile;
        Buffer tile, result(static_cast<size_t>(m * std::min(width, to - from)));
        for (int64_t at = from; at < to; at += width) {
          const int64_t size = std::min(width, to - at);
          multiply(left, m, operand, at, size, result.data(), tile);
          for (int64_t r = 0; r < m; ++r) {
            float* row = result.data() + r * size;
            for (int64_t e = 0; e < size; ++e) {
              float sum = 0.0f;
              if (adds) {
                const int64_t column = (at + e) * c.column_stride();
                read_floats(&sum, inputs[2], c.offset(i) + r * c.row_stride() + column, 1);
              }
              row[e] = alpha_ * row[e] + (adds ? beta_ * sum : 0.0f);
            }
            write_floats(out, (i * m + r) * n + at, row, size);
          }
        }
      });
    }
  });
}

}  // namespace ort_mlx::cpu
