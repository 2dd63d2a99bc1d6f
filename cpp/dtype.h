// The element types, by ORT's numbers: how ORT lays them out, and the MLX dtypes that hold them.
#pragma once

#include <mlx/dtype.h>

#include <cstddef>
#include <optional>

namespace ort_mlx {

namespace mx = mlx::core;

// A narrow type is one that MLX has no arrays of. Arrays of a wider dtype hold its values, one to
// an element; narrow.h converts.
struct ElementType {
  int ort;
  mx::Dtype held;
  size_t bits;  // of one element in ORT's memory, packed low bits first

  bool is_narrow() const { return bits < 8 * held.size(); }
  size_t bytes(size_t count) const { return (count * bits + 7) / 8; }
};

inline constexpr ElementType kElementTypes[] = {
    {1, mx::float32, 32},   {2, mx::uint8, 8},     {3, mx::int8, 8},     {4, mx::uint16, 16},
    {5, mx::int16, 16},     {6, mx::int32, 32},    {7, mx::int64, 64},   {9, mx::bool_, 8},
    {10, mx::float16, 16},  {11, mx::float64, 64}, {12, mx::uint32, 32}, {13, mx::uint64, 64},
    {16, mx::bfloat16, 16}, {17, mx::float16, 8},  // float8e4m3fn
    {18, mx::float16, 8},                          // float8e4m3fnuz
    {19, mx::float16, 8},                          // float8e5m2
    {20, mx::float16, 8},                          // float8e5m2fnuz
    {21, mx::uint8, 4},                            // uint4
    {22, mx::int8, 4},                             // int4
    {23, mx::float16, 4},                          // float4e2m1
    {24, mx::uint8, 2},                            // uint2
    {25, mx::int8, 2},                             // int2
    {26, mx::bfloat16, 8},                         // float8e8m0
};

// The layout of an element type of ORT, or nothing when no MLX array can hold it.
inline std::optional<ElementType> element_type(int ort) {
  for (const auto& type : kElementTypes) {
    if (type.ort == ort) return type;
  }
  return std::nullopt;
}

}  // namespace ort_mlx
