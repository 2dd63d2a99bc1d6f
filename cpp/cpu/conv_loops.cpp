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

const Lanes& lanes_at(const float* x) { return *reinterpret_cast<const Lanes*>(x); }

template <int vectors>
void shifted_block(float* to, const float* from, const int64_t* offsets, const float* weights,
                   int64_t taps) {
  Lanes sums[vectors] = {};
  for (int64_t t = 0; t < taps; ++t) {
    const float* x = from + offsets[t];
    for (int v = 0; v < vectors; ++v) sums[v] += lanes_at(x + v * kLanes) * weights[t];
  }
  for (int v = 0; v < vectors; ++v) *reinterpret_cast<Lanes*>(to + v * kLanes) = sums[v];
}

template <int vectors>
void products_block(float* to, const float* const* from, const float* const* weights, int64_t taps,
                    int64_t at) {
  Lanes sums[vectors] = {};
  for (int64_t t = 0; t < taps; ++t) {
    const float *x = from[t] + at, *w = weights[t] + at;
    for (int v = 0; v < vectors; ++v) {
      sums[v] += lanes_at(x + v * kLanes) * lanes_at(w + v * kLanes);
    }
  }
  for (int v = 0; v < vectors; ++v) *reinterpret_cast<Lanes*>(to + at + v * kLanes) = sums[v];
}

// Blocks over [0, n). The last vector overlaps the one before it; where there is none, `one` makes
// single elements.
template <class Many, class Single, class One>
void in_blocks(int64_t n, Many many, Single single, One one) {
  constexpr int kBlock = kLanes * kMostVectors;
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) many(i);
  for (; i + kLanes <= n; i += kLanes) single(i);
  if (i == n) return;
  if (n >= kLanes) return single(n - kLanes);
  for (; i < n; ++i) one(i);
}

void sum_shifted(float* to, const float* from, const int64_t* offsets, const float* weights,
                 int64_t taps, int64_t n) {
  in_blocks(
      n, [=](int64_t i) { shifted_block<kMostVectors>(to + i, from + i, offsets, weights, taps); },
      [=](int64_t i) { shifted_block<1>(to + i, from + i, offsets, weights, taps); },
      [=](int64_t i) {
        float sum = 0.0f;
        for (int64_t t = 0; t < taps; ++t) sum += from[offsets[t] + i] * weights[t];
        to[i] = sum;
      });
}

void sum_products(float* to, const float* const* from, const float* const* weights, int64_t taps,
                  int64_t n) {
  in_blocks(
      n, [=](int64_t i) { products_block<kMostVectors>(to, from, weights, taps, i); },
      [=](int64_t i) { products_block<1>(to, from, weights, taps, i); },
      [=](int64_t i) {
        float sum = 0.0f;
        for (int64_t t = 0; t < taps; ++t) sum += from[t][i] * weights[t][i];
        to[i] = sum;
      });
}

}  // namespace

extern const ConvLoops kConvLoops;
const ConvLoops kConvLoops = {sum_shifted, sum_products};

}  // namespace ort_mlx::cpu::ORT_MLX_ISA
