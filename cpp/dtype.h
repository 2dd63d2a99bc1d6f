// ONNX element types and the MLX dtypes that hold them, in one table.
#pragma once

#include <mlx/dtype.h>

#include <optional>
#include <utility>

namespace ort_mlx {

namespace mx = mlx::core;

inline constexpr std::pair<int, mx::Dtype> kDtypes[] = {
    {1, mx::float32}, {2, mx::uint8},   {3, mx::int8},      {4, mx::uint16},   {5, mx::int16},
    {6, mx::int32},   {7, mx::int64},   {9, mx::bool_},     {10, mx::float16}, {11, mx::float64},
    {12, mx::uint32}, {13, mx::uint64}, {16, mx::bfloat16},
};

// The MLX dtype of an ONNX element type, or nothing when MLX has none.
inline std::optional<mx::Dtype> mlx_dtype(int onnx) {
  for (const auto& [code, dtype] : kDtypes) {
    if (code == onnx) return dtype;
  }
  return std::nullopt;
}

inline std::optional<int> onnx_dtype(mx::Dtype dtype) {
  for (const auto& [code, candidate] : kDtypes) {
    if (candidate == dtype) return code;
  }
  return std::nullopt;
}

}  // namespace ort_mlx
