// Compiled once for each instruction set, as vector_loops.cpp is and with the same restriction.

#include "dots.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

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

// The k-th weight of a word less the middle of its range: -8 to 7 with 4 bits. Symmetric weights
// then need no bias, whose product with a long row would cancel most of the other's.
template <int bits>
constexpr int32_t centred(uint32_t word, int k) {
  constexpr uint32_t kSigns = (bits == 2 ? 0xaaaaaaaau : bits == 4 ? 0x88888888u : 0x80808080u);
  return static_cast<int32_t>((word ^ kSigns) << (32 - bits * (k + 1))) >> (32 - bits);
}

constexpr float middle(int bits) { return static_cast<float>(1 << (bits - 1)); }

// A few groups' factors, one for each of their words.
constexpr int64_t kSpread = 128;

template <int times>
void repeat(float* to, const float* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i, to += times) {
#pragma omp simd
    for (int k = 0; k < times; ++k) to[k] = from[i];
  }
}

void spread(float* to, const float* factors, const Packed& row, int64_t first, int64_t size) {
  const int shift = row.group_shift;
  const float* from = factors + (first >> shift);
  if (shift == 2) return repeat<4>(to, from, size / 4);
  if (shift == 3) return repeat<8>(to, from, size / 8);
  if (shift == 4) return repeat<16>(to, from, size / 16);
  if (shift == 5) return repeat<32>(to, from, size / 32);
  for (int64_t i = 0; i < size; ++i) to[i] = factors[(first + i) >> shift];
}

#ifdef __AVX512F__

// A table of the weights of 4 bits saves telling them from their neighbours and converting them.
template <int bits>
__m512 levels(__m512i words, int k) {
  constexpr auto level = [](int index) {
    return static_cast<float>(centred<bits>(static_cast<uint32_t>(index), 0));
  };
  const __m512 table = _mm512_setr_ps(level(0), level(1), level(2), level(3), level(4), level(5),
                                      level(6), level(7), level(8), level(9), level(10), level(11),
                                      level(12), level(13), level(14), level(15));
  return _mm512_permutexvar_ps(_mm512_srli_epi32(words, static_cast<unsigned>(k * bits)), table);
}

template <>
__m512 levels<8>(__m512i words, int k) {
  const __m512i signs = _mm512_set1_epi32(static_cast<int>(0x80808080u));
  const __m512i high = _mm512_slli_epi32(_mm512_xor_si512(words, signs), 24 - 8 * k);
  return _mm512_cvtepi32_ps(_mm512_srai_epi32(high, 24));
}

template <int bits>
float dot_packed(const Packed& row, const float* planes, const float* sums) {
  const int shift = row.group_shift;
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i group_of_lane = _mm512_srli_epi32(lanes, static_cast<unsigned>(shift));
  const __m512 offset = _mm512_set1_ps(middle(bits));
  __m512 sum = _mm512_setzero_ps(), of_biases = _mm512_setzero_ps();
  for (int64_t i = 0; i < row.count; i += 16) {
    const int64_t left = row.count - i, group = i >> shift;
    const auto mask = static_cast<__mmask16>(left < 16 ? (1 << left) - 1 : 0xffff);
    const int64_t groups = ((left < 16 ? left : 16) + (1 << shift) - 1) >> shift;
    const auto of_groups = static_cast<__mmask16>((1 << groups) - 1);
    const __m512i words = _mm512_maskz_loadu_epi32(mask, row.words + i);
    __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int k = 0; k < 32 / bits; k += 2) {
      const float* plane = planes + k * row.count + i;
      even = _mm512_fmadd_ps(levels<bits>(words, k), _mm512_maskz_loadu_ps(mask, plane), even);
      plane += row.count;
      odd = _mm512_fmadd_ps(levels<bits>(words, k + 1), _mm512_maskz_loadu_ps(mask, plane), odd);
    }
    const __m512 scales = _mm512_maskz_loadu_ps(of_groups, row.scales + group);
    sum = _mm512_fmadd_ps(_mm512_permutexvar_ps(group_of_lane, scales), _mm512_add_ps(even, odd),
                          sum);
    if ((group << shift) != i) continue;  // the group's bias was added with its first words
    const __m512 biases = _mm512_maskz_loadu_ps(of_groups, row.biases + group);
    of_biases = _mm512_fmadd_ps(_mm512_fmadd_ps(scales, offset, biases),
                                _mm512_maskz_loadu_ps(of_groups, sums + group), of_biases);
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(sum, of_biases));
}

#else

template <int bits>
float dot_packed(const Packed& row, const float* planes, const float* sums) {
  const float* factors = row.scales;
  const float* biases = row.biases;
  float sum = total(row.count >> row.group_shift,
                    [=](int64_t g) { return (biases[g] + middle(bits) * factors[g]) * sums[g]; });
  float scales[kSpread];
  for (int64_t first = 0; first < row.count; first += kSpread) {
    const int64_t size = row.count - first < kSpread ? row.count - first : kSpread;
    spread(scales, row.scales, row, first, size);
    const uint32_t* words = row.words + first;
    sum += total(size, [&, first](int64_t i) {
      float of_word = 0.0f;
#pragma GCC unroll 16
      for (int k = 0; k < 32 / bits; ++k) {
        of_word +=
            static_cast<float>(centred<bits>(words[i], k)) * planes[k * row.count + first + i];
      }
      return scales[i] * of_word;
    });
  }
  return sum;
}

#endif

float dot_packed(const Packed& row, const float* planes, const float* sums) {
  if (row.bits == 2) return dot_packed<2>(row, planes, sums);
  return row.bits == 4 ? dot_packed<4>(row, planes, sums) : dot_packed<8>(row, planes, sums);
}

template <int bits>
void unpack(float* planes, const Packed& row) {
  float scales[kSpread], biases[kSpread];
  for (int64_t first = 0; first < row.count; first += kSpread, planes += kSpread) {
    const int64_t size = row.count - first < kSpread ? row.count - first : kSpread;
    spread(scales, row.scales, row, first, size);
    spread(biases, row.biases, row, first, size);
    const uint32_t* words = row.words + first;
    for (int k = 0; k < 32 / bits; ++k) {
      float* plane = planes + k * row.count;
#pragma omp simd
      for (int64_t i = 0; i < size; ++i) {
        plane[i] =
            scales[i] * (static_cast<float>(centred<bits>(words[i], k)) + middle(bits)) + biases[i];
      }
    }
  }
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
const Dots kDots = {dot, dot_packed, unpack, widen, dot_halves, accumulate_halves};

}  // namespace ort_mlx::cpu::ORT_MLX_ISA
