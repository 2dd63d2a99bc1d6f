#include "quantized.h"

#include <algorithm>

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
constexpr int64_t kSpread = 4;              // of them whose factors are spread at a time
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

}  // namespace

void QuantizedProduct::run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  mx::array& out = outputs[0];
  allocate(out);
  if (out.size() == 0) return;
  const mx::array x = row_major(inputs[0], threads()), w = row_major(inputs[1], threads());
  const mx::array scales = row_major(inputs[2], threads());
  const mx::array biases = row_major(inputs[3], threads());
  const int64_t k = x.shape(-1), n = w.shape(0), m = static_cast<int64_t>(x.size()) / k;
  const int64_t per_word = 32 / bits_, words = k / per_word, groups = k / group_size_;
  const auto planes = planes_of(x, m, k, per_word);
  const bool uses_blas = m > kFewRows && blas_is_loaded();
  const int workers = m * n * k < kWorthSharing ? 1 : threads();

  parallel_ranges(workers, n, uses_blas ? kTile : 16, [&](int64_t first, int64_t last) {
    std::vector<float> of_groups(static_cast<size_t>(kSpread * groups));
    std::vector<float> of_words(static_cast<size_t>(2 * kSpread * words));
    float *scale = of_words.data(), *bias = scale + kSpread * words;
    std::vector<float> tile(static_cast<size_t>(m == 1 ? 0 : kTile * k));
    std::vector<float> result(static_cast<size_t>(m * kTile));
    auto spread = [&](const mx::array& factors, int64_t r, int64_t rows, float* to) {
      read_floats(of_groups.data(), factors, r * groups, rows * groups);
      dots().repeat(to, of_groups.data(), rows * groups, group_size_ / per_word);
    };
    for (int64_t at = first; at < last; at += kTile) {
      const int64_t size = std::min(kTile, last - at);
      for (int64_t r = 0; r < size; ++r) {
        // Several rows' at once: a processor waits when it loads what it has only just stored.
        const int64_t place = r % kSpread;
        if (place == 0) {
          spread(scales, at + r, std::min(kSpread, size - r), scale);
          spread(biases, at + r, std::min(kSpread, size - r), bias);
        }
        const Packed row{w.data<uint32_t>() + (at + r) * words, scale + place * words,
                         bias + place * words, words, bits_};
        if (m == 1) {
          result[static_cast<size_t>(r)] = dots().dot_packed(row, planes.data());
          continue;
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
