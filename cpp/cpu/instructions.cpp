#include "instructions.h"

namespace ort_mlx::cpu {

const std::unordered_map<std::string_view, Instructions>& instructions() {
  static const auto* entries = new std::unordered_map<std::string_view, Instructions>{
      {"Negative", {Op::kNegative, Op::kIntNegative, {}}},
      {"Abs", {Op::kAbs, Op::kIntAbs, {}}},
      {"Square", {Op::kSquare, Op::kIntSquare, {}}},
      {"Sqrt", {Op::kSqrt, {}, {}, 3}},
      {"Rsqrt", {Op::kRsqrt, {}, {}, 4}},
      {"Exp", {Op::kExp, {}, {}, 5}},
      {"Log", {Op::kLog, {}, {}, 6}},
      {"Erf", {Op::kErf, {}, {}, 9}},
      {"Tanh", {Op::kTanh, {}, {}, 8}},
      {"Sigmoid", {Op::kSigmoid, {}, {}, 6}},
      {"Floor", {Op::kFloor, {}, {}}},
      {"Ceil", {Op::kCeil, {}, {}}},
      {"Round", {Op::kRound, {}, {}}},
      {"Add", {Op::kAdd, Op::kIntAdd, {}}},
      {"Subtract", {Op::kSubtract, Op::kIntSubtract, {}}},
      {"Multiply", {Op::kMultiply, Op::kIntMultiply, Op::kAnd}},
      {"Divide", {Op::kDivide, {}, {}, 2}},
      {"Maximum", {Op::kMaximum, Op::kIntMaximum, Op::kOr}},
      {"Minimum", {Op::kMinimum, Op::kIntMinimum, Op::kAnd}},
      {"Power", {Op::kPower, {}, {}, 40}},
      {"Equal", {Op::kEqual, Op::kIntEqual, Op::kIntEqual}},
      {"NotEqual", {Op::kNotEqual, Op::kIntNotEqual, Op::kIntNotEqual}},
      {"Less", {Op::kLess, Op::kIntLess, Op::kIntLess}},
      {"LessEqual", {Op::kLessEqual, Op::kIntLessEqual, Op::kIntLessEqual}},
      {"Greater", {Op::kGreater, Op::kIntGreater, Op::kIntGreater}},
      {"GreaterEqual", {Op::kGreaterEqual, Op::kIntGreaterEqual, Op::kIntGreaterEqual}},
      {"LogicalAnd", {{}, {}, Op::kAnd}},
      {"LogicalOr", {{}, {}, Op::kOr}},
      {"LogicalNot", {{}, {}, Op::kNot}},
  };
  return *entries;
}

bool is_known(mx::Dtype dtype) {
  return dtype == mx::float32 || dtype == mx::int32 || dtype == mx::bool_;
}

std::optional<Op> conversion(mx::Dtype from, mx::Dtype to) {
  if (to == mx::float32) return from == mx::float32 ? std::nullopt : std::optional(Op::kFloatOfInt);
  if (from == mx::float32) return to == mx::int32 ? Op::kIntOfFloat : Op::kBoolOfFloat;
  return from == to ? std::nullopt : std::optional(Op::kBoolOfInt);
}

}  // namespace ort_mlx::cpu
