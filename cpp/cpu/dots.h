// Inner loops of products whose weights are stored in fewer bits than float32 has; built once for
// each instruction set.
#pragma once

#include <cstdint>

namespace ort_mlx::cpu {

enum class Half : uint8_t { kFloat16, kBfloat16 };

// A row of MLX's affine quantisation with 2, 4 or 8 bits: `count` words of 32 bits, each of
// 32 / bits weights, the lowest bits first. Weight = scale * bits + bias, one of each for a group
// of 2^group_shift words.
struct Packed {
  const uint32_t* words;
  const float* scales;
  const float* biases;
  int64_t count;
  int group_shift;
  int bits;
};

// The functions of Packed meet its weights in planes: the first of every word, then the second of
// every word, and so on. That needs no shuffling.
struct Dots {
  float (*dot)(const float* a, const float* b, int64_t n);
  // `sums` are those of each group's elements of `planes`. All of it has to be finite.
  float (*dot_packed)(const Packed& row, const float* planes, const float* sums);
  void (*unpack)(float* planes, const Packed& row);
  void (*widen)(float* to, const uint16_t* from, Half type, int64_t n);
  float (*dot_halves)(const float* a, const uint16_t* b, Half type, int64_t n);
  // to[i] += weight * from[i]
  void (*accumulate_halves)(float* to, const uint16_t* from, Half type, float weight, int64_t n);
};

const Dots& dots();

}  // namespace ort_mlx::cpu
