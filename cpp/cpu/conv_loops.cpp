// Compiled once for each instruction set, as vector_loops.cpp is and with the same restriction.

#include "conv_loops.h"

namespace ort_mlx::cpu::ORT_MLX_ISA {

namespace {

constexpr int kLanes = 16;
constexpr int kMostVectors = 4;  // sums at a time: as many as the latency of one addition hides

// Of the compiler, which splits it where registers are shorter. Sums of it stay in registers, which
// those of an array of floats do not.
using Lanes =
    float __attribute__((vector_size(kLanes * sizeof(float)), aligned(alignof(float)), may_alias));

// Vector `v` of those that start at x.
const Lanes& lanes_at(const float* x, int v) {
  return *reinterpret_cast<const Lanes*>(x + v * kLanes);
}
Lanes& lanes_at(float* x, int v) { return *reinterpret_cast<Lanes*>(x + v * kLanes); }

template <int vectors>
void shifted_block(float* to, const float* from, const int64_t* offsets, const float* weights,
                   int64_t taps) {
  Lanes sums[vectors] = {};
  for (int64_t t = 0; t < taps; ++t) {
    const float* x = from + offsets[t];
    for (int v = 0; v < vectors; ++v) sums[v] += lanes_at(x, v) * weights[t];
  }
  for (int v = 0; v < vectors; ++v) lanes_at(to, v) = sums[v];
}

// In blocks. The last vector overlaps the one before it; where there is none, single elements
// remain.
void sum_shifted(float* to, const float* from, const int64_t* offsets, const float* weights,
                 int64_t taps, int64_t n) {
  constexpr int kBlock = kLanes * kMostVectors;
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    shifted_block<kMostVectors>(to + i, from + i, offsets, weights, taps);
  }
  for (; i + kLanes <= n; i += kLanes) shifted_block<1>(to + i, from + i, offsets, weights, taps);
  if (i < n && n >= kLanes) {
    i = n - kLanes;
    shifted_block<1>(to + i, from + i, offsets, weights, taps);
    return;
  }
  for (; i < n; ++i) {
    float sum = 0.0f;
    for (int64_t t = 0; t < taps; ++t) sum += from[offsets[t] + i] * weights[t];
    to[i] = sum;
  }
}

// Rows are short: a call of memcpy for each would cost more than they do.
void copy_row(float* to, const float* from, int64_t stride, int64_t n) {
  if (stride != 1) {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
    return;
  }
  if (n < kLanes) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) to[i] = from[i];
    return;
  }
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) lanes_at(to + i, 0) = lanes_at(from + i, 0);
  lanes_at(to + n - kLanes, 0) = lanes_at(from + n - kLanes, 0);
}

void copy_rows(float* to, int64_t to_row, const float* from, int64_t from_row, int64_t stride,
               int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r) copy_row(to + r * to_row, from + r * from_row, stride, n);
}

// Sums of a tile that fit the registers: vectors along the panel, and rows of weights.
#if defined(__AVX512F__)
constexpr int kPanelVectors = 3, kTileRows = 8;
#elif defined(__AVX2__)
constexpr int kPanelVectors = 1, kTileRows = 6;
#elif defined(__aarch64__)
constexpr int kPanelVectors = 1, kTileRows = 6;
#else
constexpr int kPanelVectors = 1, kTileRows = 3;
#endif

void gather_pieces(float* to, int64_t width, const float* from, int64_t plane, int64_t planes,
                   const Piece* pieces, int64_t count, int64_t stride) {
  const bool is_whole = count == 1 && pieces[0].length == width && stride == 1;
  const auto vectors = static_cast<int>(width / kLanes);
  for (int64_t p = 0; p < planes; ++p, from += plane, to += width) {
    if (is_whole) {
      const float* x = from + pieces[0].from;
      for (int v = 0; v < vectors; ++v) lanes_at(to, v) = lanes_at(x, v);
      continue;
    }
    for (int v = 0; v < vectors; ++v) lanes_at(to, v) = Lanes{};
    for (int64_t i = 0; i < count; ++i) {
      const Piece& piece = pieces[i];
      copy_row(to + piece.to, from + piece.from, stride, piece.length);
    }
  }
}

template <int rows, int vectors>
void multiply_tile(const PanelProduct& p, int64_t row) {
  Lanes sums[rows][vectors] = {};
  const float* weights = p.weights + row * p.weights_stride;
  const int64_t stride = p.weights_stride;
  const float* panel = p.panel;
  for (int64_t k = 0; k < p.depth; ++k, ++weights, panel += vectors * kLanes) {
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < vectors; ++v) {
        sums[r][v] += lanes_at(panel, v) * weights[r * stride];
      }
    }
  }
  for (int r = 0; r < rows; ++r) {
    float* to = p.to + (row + r) * p.to_stride;
    if (p.columns == vectors * kLanes) {
      for (int v = 0; v < vectors; ++v) {
        lanes_at(to, v) = p.is_first ? sums[r][v] : sums[r][v] + lanes_at(to, v);
      }
    } else {
      float made[vectors * kLanes];
      for (int v = 0; v < vectors; ++v) lanes_at(made, v) = sums[r][v];
      for (int64_t i = 0; i < p.columns; ++i) to[i] = p.is_first ? made[i] : to[i] + made[i];
    }
  }
}

template <int rows, int vectors>
void multiply_rows(const PanelProduct& p, int64_t row) {
  for (; row + rows <= p.rows; row += rows) multiply_tile<rows, vectors>(p, row);
  if constexpr (rows > 1) multiply_rows<rows / 2, vectors>(p, row);
}

template <int vectors = kPanelVectors>
void multiply_panel(const PanelProduct& p) {
  if constexpr (vectors > 1) {
    if (p.width < vectors * kLanes) return multiply_panel<vectors - 1>(p);
  }
  multiply_rows<kTileRows, vectors>(p, 0);
}

}  // namespace

extern const ConvLoops kConvLoops;
const ConvLoops kConvLoops = {sum_shifted,   copy_rows,       kLanes, kLanes * kPanelVectors,
                              gather_pieces, multiply_panel<>};

}  // namespace ort_mlx::cpu::ORT_MLX_ISA
