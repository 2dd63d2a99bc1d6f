// Inner loops of products whose weights are stored in fewer bits than float32 has; built once for
// each instruction set.
#pragma once

#include <cstdint>

namespace ort_mlx::cpu {

enum class Half : uint8_t { kFloat16, kBfloat16 };

// Part of a row of MLX's affine quantisation with 2, 4 or 8 bits: `words` words of 32 bits, each of
// 32 / bits weights, the lowest bits first. Weight = scale * bits + bias, one of each for a word.
struct Packed {
  const uint32_t* words;
  const float* scales;
  const float* biases;
  int64_t count;  // of words
  int bits;
};

// The functions of Packed meet its weights in planes: the first of every word, then the second of
// every word, and so on. That needs no shuffling.
struct Dots {
  float (*dot)(const float* a, const float* b, int64_t n);
  float (*dot_packed)(const Packed& row, const float* planes);
  void (*unpack)(float* planes, const Packed& row);
  // Each of `n` elements `times` times in a row.
  void (*repeat)(float* to, const float* from, int64_t n, int64_t times);
  void (*widen)(float* to, const uint16_t* from, Half type, int64_t n);
  float (*dot_halves)(const float* a, const uint16_t* b, Half type, int64_t n);
  // to[i] += weight * from[i]
  void (*accumulate_halves)(float* to, const uint16_t* from, Half type, float weight, int64_t n);
};

const Dots& dots();

}  // namespace ort_mlx::cpu
