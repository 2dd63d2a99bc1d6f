#include "lowering.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <unordered_map>

#include "blas.h"
#include "conv.h"
#include "copies.h"
#include "half_matmul.h"
#include "halves.h"
#include "matmul.h"
#include "quantized.h"
#include "reduce.h"
#include "updates.h"
#include "views.h"

namespace ort_mlx::cpu {

namespace {

using Lower = std::shared_ptr<mx::Primitive> (*)(const Call& call, int threads);

// MLX keeps the types of its primitives to itself, so they are told apart by name.
template <class P>
const P& primitive_of(const Call& call) {
  return static_cast<const P&>(*call.primitive);
}

std::shared_ptr<mx::Primitive> product(const Call& call, int threads, float alpha, float beta) {
  if (!is_float(call.output.dtype)) return nullptr;
  const mx::Stream stream = call.primitive->stream();
  if (call.output.dtype != mx::float32) {
    return std::make_shared<HalfMatmul>(stream, threads, alpha, beta);
  }
  return blas_is_loaded() ? std::make_shared<BlasMatmul>(stream, threads, alpha, beta) : nullptr;
}

std::shared_ptr<mx::Primitive> lower_matmul(const Call& call, int threads) {
  return product(call, threads, 1.0f, 0.0f);
}

std::shared_ptr<mx::Primitive> lower_addmm(const Call& call, int threads) {
  const auto [alpha, beta] = primitive_of<mx::AddMM>(call).state();
  return product(call, threads, alpha, beta);
}

std::shared_ptr<mx::Primitive> lower_quantized(const Call& call, int threads) {
  const auto [group_size, bits, mode, is_transposed] =
      primitive_of<mx::QuantizedMatmul>(call).state();
  if (mode != mx::QuantizationMode::Affine || !is_transposed || call.inputs.size() != 4) {
    return nullptr;
  }
  if (bits != 2 && bits != 4 && bits != 8) return nullptr;
  if (call.inputs[1].shape.size() != 2) return nullptr;
  for (size_t i : {0, 2, 3}) {
    if (!is_float(call.inputs[i].dtype)) return nullptr;
  }
  return std::make_shared<QuantizedProduct>(call.primitive->stream(), threads, group_size, bits);
}

std::shared_ptr<mx::Primitive> lower_convolution(const Call& call, int threads) {
  const auto [strides, before, after, dilation, input_dilation, groups, flip] =
      primitive_of<mx::Convolution>(call).state();
  const mx::Shape& x = call.inputs[0].shape;
  if (x.size() < 3 || x.size() > 4) return nullptr;
  auto pair = [](const std::vector<int>& v, int absent) {
    return v.size() == 2 ? std::array{v[0], v[1]} : std::array{absent, v[0]};
  };
  const auto all_one = [](const std::vector<int>& v) {
    return std::all_of(v.begin(), v.end(), [](int d) { return d == 1; });
  };
  const mx::Stream stream = call.primitive->stream();
  Window window{pair(strides, 1), pair(dilation, 1), pair(before, 0)};
  if (!flip && all_one(input_dilation)) {
    return std::make_shared<PlanarConvolution>(stream, threads, window, groups);
  }
  if (!flip || !all_one(strides) || !blas_is_loaded()) return nullptr;
  // A mirrored kernel over spread input: the transpose of a convolution with that stride.
  window.stride = pair(input_dilation, 1);
  const mx::Shape& w = call.inputs[1].shape;
  for (int axis = 0; axis < 2; ++axis) {
    const int size = x.size() == 3 ? (axis == 0 ? 1 : w[1]) : w[1 + axis];
    window.pad_before[axis] = (size - 1) * window.dilation[axis] - window.pad_before[axis];
  }
  return std::make_shared<TransposedConvolution>(stream, threads, window, groups);
}

std::shared_ptr<mx::Primitive> lower_reshape(const Call& call, int threads) {
  return std::make_shared<Reshaped>(call.primitive->stream(), threads);
}

std::shared_ptr<mx::Primitive> lower_transpose(const Call& call, int) {
  return std::make_shared<Transposed>(call.primitive->stream(),
                                      primitive_of<mx::Transpose>(call).state());
}

std::shared_ptr<mx::Primitive> lower_broadcast(const Call& call, int) {
  return std::make_shared<Broadcasted>(call.primitive->stream());
}

std::shared_ptr<mx::Primitive> lower_slice(const Call& call, int) {
  auto [starts, ends, steps] = primitive_of<mx::Slice>(call).state();
  return std::make_shared<Sliced>(call.primitive->stream(), std::vector{starts}, steps);
}

std::shared_ptr<mx::Primitive> lower_split(const Call& call, int) {
  const auto [indices, axis] = primitive_of<mx::Split>(call).state();
  const size_t rank = call.output.shape.size();
  std::vector<mx::Shape> starts(1, mx::Shape(rank, 0));
  for (int at : indices) {
    starts.emplace_back(rank, 0);
    starts.back()[axis] = at;
  }
  return std::make_shared<Sliced>(call.primitive->stream(), std::move(starts), mx::Shape(rank, 1));
}

std::shared_ptr<mx::Primitive> lower_contiguous(const Call& call, int threads) {
  return std::make_shared<Contiguous>(call.primitive->stream(), threads);
}

std::shared_ptr<mx::Primitive> lower_concatenate(const Call& call, int threads) {
  return std::make_shared<Concatenated>(call.primitive->stream(), threads,
                                        primitive_of<mx::Concatenate>(call).state());
}

std::shared_ptr<mx::Primitive> lower_pad(const Call& call, int threads) {
  const auto [axes, low, high] = primitive_of<mx::Pad>(call).state();
  mx::Shape starts(call.output.shape.size(), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    starts[axes[i] < 0 ? axes[i] + static_cast<int>(call.output.shape.size()) : axes[i]] = low[i];
  }
  return std::make_shared<Padded>(call.primitive->stream(), threads, std::move(starts));
}

bool is_index(mx::Dtype dtype) { return dtype == mx::int32 || dtype == mx::int64; }

// Whole rows of the first dimension, by one array of indices.
std::shared_ptr<mx::Primitive> lower_gather(const Call& call, int threads) {
  const auto [axes, sizes] = primitive_of<mx::Gather>(call).state();
  const mx::Shape& x = call.inputs[0].shape;
  if (call.inputs.size() != 2 || axes != std::vector{0} || sizes[0] != 1) return nullptr;
  for (size_t i = 1; i < x.size(); ++i) {
    if (sizes[i] != x[i]) return nullptr;
  }
  if (!is_index(call.inputs[1].dtype)) return nullptr;
  return std::make_shared<RowsTaken>(call.primitive->stream(), threads);
}

std::shared_ptr<mx::Primitive> lower_slice_update(const Call& call, int threads) {
  if (!is_index(call.inputs[2].dtype) || call.inputs[1].dtype != call.output.dtype) return nullptr;
  return std::make_shared<BlockWritten>(call.primitive->stream(), threads,
                                        primitive_of<mx::DynamicSliceUpdate>(call).state());
}

std::shared_ptr<mx::Primitive> lower_scatter_axis(const Call& call, int threads) {
  const auto [reduction, axis] = primitive_of<mx::ScatterAxis>(call).state();
  if (!is_index(call.inputs[1].dtype) || call.inputs[1].shape != call.inputs[2].shape ||
      call.inputs[2].dtype != call.output.dtype) {
    return nullptr;
  }
  return std::make_shared<ElementsWritten>(call.primitive->stream(), threads, axis);
}

template <Op op>
std::shared_ptr<mx::Primitive> lower_reduce(const Call& call, int threads) {
  return std::make_shared<Reduced>(call.primitive->stream(), threads, op,
                                   primitive_of<mx::Reduce>(call).state().second);
}

struct Entry {
  Lower lower;
  enum class Takes { kAnything, kFloats } takes;
};

const std::unordered_map<std::string_view, Entry>& table() {
  using Takes = Entry::Takes;
  static const auto* entries = new std::unordered_map<std::string_view, Entry>{
      {"Matmul", {lower_matmul, Takes::kAnything}},
      {"AddMM", {lower_addmm, Takes::kAnything}},
      {"QuantizedMatmul", {lower_quantized, Takes::kAnything}},
      {"Convolution", {lower_convolution, Takes::kFloats}},
      {"Sum", {lower_reduce<Op::kRowSum>, Takes::kFloats}},
      {"Max", {lower_reduce<Op::kRowMax>, Takes::kFloats}},
      {"Min", {lower_reduce<Op::kRowMin>, Takes::kFloats}},
      {"Reshape", {lower_reshape, Takes::kAnything}},
      {"Flatten", {lower_reshape, Takes::kAnything}},
      {"Unflatten", {lower_reshape, Takes::kAnything}},
      {"Squeeze", {lower_reshape, Takes::kAnything}},
      {"ExpandDims", {lower_reshape, Takes::kAnything}},
      {"StopGradient", {lower_reshape, Takes::kAnything}},
      {"Transpose", {lower_transpose, Takes::kAnything}},
      {"Broadcast", {lower_broadcast, Takes::kAnything}},
      {"BroadcastAxes", {lower_broadcast, Takes::kAnything}},
      {"Slice", {lower_slice, Takes::kAnything}},
      {"Split", {lower_split, Takes::kAnything}},
      {"Contiguous", {lower_contiguous, Takes::kAnything}},
      {"Concatenate", {lower_concatenate, Takes::kAnything}},
      {"Pad", {lower_pad, Takes::kAnything}},
      {"Gather", {lower_gather, Takes::kAnything}},
      {"DynamicSliceUpdate", {lower_slice_update, Takes::kAnything}},
      {"ScatterAxis", {lower_scatter_axis, Takes::kAnything}},
  };
  return *entries;
}

}  // namespace

std::shared_ptr<mx::Primitive> lower(const Call& call, int threads) {
  const auto& own = call.primitive;
  if (own->stream().device != mx::Device::cpu) return own;
  const auto entry = table().find(own->name());
  if (entry == table().end()) return own;
  using Takes = Entry::Takes;
  const auto [make, takes] = entry->second;
  if (takes != Takes::kAnything && call.output.dtype != mx::float32) return own;
  auto better = make(call, threads);
  return better == nullptr ? own : better;
}

}  // namespace ort_mlx::cpu
