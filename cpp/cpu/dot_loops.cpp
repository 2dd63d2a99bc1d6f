// Compiled once for each instruction set, as vector_loops.cpp is and with the same restriction.

#include "dots.h"

namespace ort_mlx::cpu::ORT_MLX_ISA {

namespace {

float lane(uint32_t x) { return __builtin_bit_cast(float, x); }

template <Half type>
float widened(uint16_t x) {
  if (type == Half::kBfloat16) return lane(static_cast<uint32_t>(x) << 16);
  const auto wide = static_cast<uint32_t>(static_cast<int16_t>(x));  // the sign in the upper half
  // Scaling moves the exponent's bias, and makes subnormal numbers normal.
  const float scaled = lane(wide << 13 & 0x8fffe000u) * 0x1p112f;
  const uint32_t bits = __builtin_bit_cast(uint32_t, scaled);
  return lane((wide & 0x7c00) == 0x7c00 ? bits | 0x7f800000u : bits);
}

constexpr int kLanes = 16;

template <int width, class F>
int64_t add_terms(float* lanes, int64_t first, int64_t n, F term) {
  if (n - first < width) return first;
#pragma omp simd
  for (int k = 0; k < width; ++k) lanes[k] += term(first + k);
  return first + width;
}

template <int width>
void fold(float* lanes) {
#pragma omp simd
  for (int k = 0; k < width; ++k) lanes[k] += lanes[k + width];
}

// A reduction clause would add the lanes, and all that fills no vector, one by one.
template <class F>
float total(int64_t n, F term) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) add_terms<kLanes>(lanes, i, n, term);
  i = add_terms<8>(lanes, i, n, term);
  i = add_terms<4>(lanes, i, n, term);
  for (; i < n; ++i) lanes[0] += term(i);
  fold<8>(lanes);
  fold<4>(lanes);
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

// Several sums hide the latency of one and keep its error small.
template <class F>
float long_total(int64_t n, F term) {
  const int64_t part = n / (4 * kLanes) * kLanes;
  float lanes[4][kLanes] = {};
  for (int64_t i = 0; i < part; i += kLanes) {
    for (int s = 0; s < 4; ++s) {
      add_terms<kLanes>(lanes[s], i, part, [=](int64_t k) { return term(k + s * part); });
    }
  }
  float sums[4];
  for (int s = 0; s < 4; ++s) {
    fold<8>(lanes[s]);
    fold<4>(lanes[s]);
    sums[s] = (lanes[s][0] + lanes[s][1]) + (lanes[s][2] + lanes[s][3]);
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]) +
         total(n - 4 * part, [=](int64_t i) { return term(i + 4 * part); });
}

float dot(const float* a, const float* b, int64_t n) {
  return long_total(n, [=](int64_t i) { return a[i] * b[i]; });
}

template <int bits>
int32_t level(uint32_t word, int k) {
  return static_cast<int32_t>(word >> (k * bits) & ((1u << bits) - 1));
}

template <int bits>
float dot_packed(const Packed& row, const float* planes) {
  const uint32_t* words = row.words;
  const float *scales = row.scales, *biases = row.biases;
  const int64_t count = row.count;
  return total(count, [=](int64_t i) {
    float of_word = 0.0f;
#pragma GCC unroll 16
    for (int k = 0; k < 32 / bits; ++k) {
      const float weight = scales[i] * static_cast<float>(level<bits>(words[i], k)) + biases[i];
      of_word += weight * planes[k * count + i];
    }
    return of_word;
  });
}

template <int bits>
void unpack(float* planes, const Packed& row) {
  const uint32_t* words = row.words;
  const float *scales = row.scales, *biases = row.biases;
  const int64_t count = row.count;
  for (int k = 0; k < 32 / bits; ++k, planes += count) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      planes[i] = scales[i] * static_cast<float>(level<bits>(words[i], k)) + biases[i];
    }
  }
}

template <int times>
void repeat(float* to, const float* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i, to += times) {
#pragma omp simd
    for (int k = 0; k < times; ++k) to[k] = from[i];
  }
}

void repeat(float* to, const float* from, int64_t n, int64_t times) {
  if (times == 4) return repeat<4>(to, from, n);
  if (times == 8) return repeat<8>(to, from, n);
  if (times == 16) return repeat<16>(to, from, n);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < times; ++k) *to++ = from[i];
  }
}

float dot_packed(const Packed& row, const float* planes) {
  if (row.bits == 2) return dot_packed<2>(row, planes);
  return row.bits == 4 ? dot_packed<4>(row, planes) : dot_packed<8>(row, planes);
}

void unpack(float* planes, const Packed& row) {
  if (row.bits == 2) return unpack<2>(planes, row);
  return row.bits == 4 ? unpack<4>(planes, row) : unpack<8>(planes, row);
}

template <Half type>
void widen(float* to, const uint16_t* from, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = widened<type>(from[i]);
}

void widen(float* to, const uint16_t* from, Half type, int64_t n) {
  return type == Half::kFloat16 ? widen<Half::kFloat16>(to, from, n)
                                : widen<Half::kBfloat16>(to, from, n);
}

template <Half type>
float dot_halves(const float* a, const uint16_t* b, int64_t n) {
  return long_total(n, [=](int64_t i) { return a[i] * widened<type>(b[i]); });
}

float dot_halves(const float* a, const uint16_t* b, Half type, int64_t n) {
  return type == Half::kFloat16 ? dot_halves<Half::kFloat16>(a, b, n)
                                : dot_halves<Half::kBfloat16>(a, b, n);
}

template <Half type>
void accumulate_halves(float* to, const uint16_t* from, float weight, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] += weight * widened<type>(from[i]);
}

void accumulate_halves(float* to, const uint16_t* from, Half type, float weight, int64_t n) {
  return type == Half::kFloat16 ? accumulate_halves<Half::kFloat16>(to, from, weight, n)
                                : accumulate_halves<Half::kBfloat16>(to, from, weight, n);
}

}  // namespace

extern const Dots kDots;
const Dots kDots = {dot, dot_packed, unpack, repeat, widen, dot_halves, accumulate_halves};

}  // namespace ort_mlx::cpu::ORT_MLX_ISA
