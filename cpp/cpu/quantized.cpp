#include "quantized.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "blas.h"
#include "copies.h"
#include "dots.h"
#include "halves.h"
#include "layout.h"
#include "parallel.h"

namespace ort_mlx::cpu {

namespace {

constexpr int64_t kFewRows = 8;             // of x: more are worth packing the weights for BLAS
constexpr int64_t kTile = 64;               // rows of weights that are unpacked at a time
constexpr int64_t kWorthSharing = 1 << 17;  // multiplications, for a second thread

// The rows of x in planes, as dots.h meets the weights.
std::vector<float> planes_of(const mx::array& x, int64_t m, int64_t k, int64_t per_word) {
  std::vector<float> row(static_cast<size_t>(k)), planes(static_cast<size_t>(m * k));
  const int64_t words = k / per_word;
  for (int64_t r = 0; r < m; ++r) {
    read_floats(row.data(), x, r * k, k);
    float* to = planes.data() + r * k;
    for (int64_t plane = 0; plane < per_word; ++plane) {
      for (int64_t i = 0; i < words; ++i) *to++ = row[static_cast<size_t>(i * per_word + plane)];
    }
  }
  return planes;
}

// The sum of each group of a row of x.
std::vector<float> sums_of(const mx::array& x, int64_t k, int64_t group_size) {
  std::vector<float> row(static_cast<size_t>(k)), sums;
  read_floats(row.data(), x, 0, k);
  for (auto at = row.begin(); at != row.end(); at += group_size) {
    sums.push_back(std::accumulate(at, at + group_size, 0.0f));
  }
  return sums;
}

// Rows of packed weights; their factors in float32, copied when they are of another type.
class PackedRows {
 public:
  PackedRows(const std::vector<mx::array>& inputs, int bits, int64_t words, int64_t groups)
      : inputs_(inputs),
        bits_(bits),
        group_shift_(std::countr_zero(static_cast<uint64_t>(words / groups))),
        words_(words),
        groups_(groups) {}

  void load(int64_t first, int64_t rows) {
    first_ = first;
    scales_ = factors(inputs_[2], scales_held_, rows);
    biases_ = factors(inputs_[3], biases_held_, rows);
  }

  // The r-th of those loaded.
  Packed row(int64_t r) const {
    return {inputs_[1].data<uint32_t>() + (first_ + r) * words_,
            scales_ + r * groups_,
            biases_ + r * groups_,
            words_,
            group_shift_,
            bits_};
  }

 private:
  const float* factors(const mx::array& a, std::vector<float>& held, int64_t rows) const {
    if (a.dtype() == mx::float32) return a.data<float>() + first_ * groups_;
    held.resize(static_cast<size_t>(rows * groups_));
    read_floats(held.data(), a, first_ * groups_, rows * groups_);
    return held.data();
  }

  const std::vector<mx::array>& inputs_;
  const int bits_, group_shift_;
  const int64_t words_, groups_;
  int64_t first_ = 0;
  const float* scales_ = nullptr;
  const float* biases_ = nullptr;
  std::vector<float> scales_held_, biases_held_;
};

}  // namespace

void QuantizedProduct::run(const std::vector<mx::array>& given, std::vector<mx::array>& outputs) {
  mx::array& out = outputs[0];
  allocate(out);
  if (out.size() == 0) return;
  std::vector<mx::array> inputs;
  for (const auto& a : given) inputs.push_back(row_major(a, threads()));
  const mx::array& x = inputs[0];
  const int64_t k = x.shape(-1), n = inputs[1].shape(0), m = static_cast<int64_t>(x.size()) / k;
  const int64_t per_word = 32 / bits_, words = k / per_word, groups = k / group_size_;
  const auto planes = planes_of(x, m, k, per_word);
  const auto sums = sums_of(x, k, group_size_);
  const bool uses_blas = m > kFewRows && blas_is_loaded();
  const int workers = m * n * k < kWorthSharing ? 1 : threads();

  parallel_ranges(workers, n, uses_blas ? kTile : 16, [&](int64_t first, int64_t last) {
    PackedRows weights(inputs, bits_, words, groups);
    std::vector<float> tile(static_cast<size_t>(uses_blas ? kTile * k : k));
    std::vector<float> result(static_cast<size_t>(m * kTile));
    for (int64_t at = first; at < last; at += kTile) {
      const int64_t size = std::min(kTile, last - at);
      weights.load(at, size);
      for (int64_t r = 0; r < size; ++r) {
        const Packed row = weights.row(r);
        if (m == 1) {
          result[static_cast<size_t>(r)] = dots().dot_packed(row, planes.data(), sums.data());
          // Infinities do not survive the terms being taken apart; the weights as they are do.
          if (std::isfinite(result[static_cast<size_t>(r)])) continue;
        }
        float* unpacked = tile.data() + (uses_blas ? r * k : 0);
        dots().unpack(unpacked, row);
        for (int64_t i = 0; !uses_blas && i < m; ++i) {
          result[static_cast<size_t>(i * size + r)] =
              dots().dot(planes.data() + i * k, unpacked, k);
        }
      }
      if (uses_blas) {
        sgemm(m, size, k, 1.0f, {planes.data(), k, false}, {tile.data(), k, true}, 0.0f,
              result.data(), size);
      }
      for (int64_t i = 0; i < m; ++i) write_floats(out, i * n + at, result.data() + i * size, size);
    }
  });
}

}  // namespace ort_mlx::cpu
