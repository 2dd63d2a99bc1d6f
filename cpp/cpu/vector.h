// The inner loops, built once for each instruction set and chosen for this processor at run time.
#pragma once

#include <cstdint>

namespace ort_mlx::cpu {

// What an instruction computes. Lanes hold a float or, for those marked so, an int32; a bool is the
// int32 0 or 1.
enum class Op : uint8_t {
  // float
  kNegative,
  kAbs,
  kSquare,
  kSqrt,
  kRsqrt,
  kExp,
  kLog,
  kErf,
  kTanh,
  kSigmoid,
  kFloor,
  kCeil,
  kRound,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kMaximum,
  kMinimum,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  // int32
  kIntNegative,
  kIntAbs,
  kIntSquare,
  kIntAdd,
  kIntSubtract,
  kIntMultiply,
  kIntMaximum,
  kIntMinimum,
  kIntEqual,
  kIntNotEqual,
  kIntLess,
  kIntLessEqual,
  kIntGreater,
  kIntGreaterEqual,
  kAnd,
  kOr,
  kNot,
  // either
  kSelect,
  kFloatOfInt,
  kIntOfFloat,
  kBoolOfFloat,
  kBoolOfInt,
  // whole rows: one lane from a row, a row from one lane, a row from a row
  kRowSum,
  kRowMax,
  kRowMin,
  kSpread,
  kRowSoftmax,
};

struct Instruction {
  Op op;
  bool is_scalar = false;                // works on one lane, whatever the block's length
  uint16_t to = 0, a = 0, b = 0, c = 0;  // registers
};

struct Vectors {
  // Runs the code over blocks of `n` lanes; where registers coincide, it is lane by lane.
  void (*run)(const Instruction* code, int64_t count, float* const* registers, int64_t n);
  void (*fill)(float* to, float value, int64_t n);
  void (*gather)(float* to, const float* from, int64_t stride, int64_t n);
  void (*widen_bytes)(float* to, const uint8_t* from, int64_t stride, int64_t n);  // to int32 lanes
  void (*narrow_bytes)(uint8_t* to, const float* from, int64_t n);
  // to[i] += weight * from[i * stride]
  void (*accumulate)(float* to, const float* from, int64_t stride, float weight, int64_t n);
};

const Vectors& vectors();

}  // namespace ort_mlx::cpu
