#include "views.h"

#include <optional>

#include "copies.h"

namespace ort_mlx::cpu {

namespace {

// The strides of `in` under another shape of as many elements, when there are such.
std::optional<mx::Strides> reshaped_strides(const mx::array& in, const mx::Shape& shape) {
  mx::Strides made(shape.size(), 1);
  size_t to = shape.size();
  const mx::Shape& from = in.shape();
  // Runs of input dimensions that lie like one are matched with runs of output dimensions, from the
  // innermost outward.
  for (size_t end = from.size(); end-- > 0;) {
    if (from[end] == 1) continue;
    int64_t left = from[end], stride = in.strides()[end];
    while (end > 0 && (from[end - 1] == 1 || in.strides()[end - 1] == stride * left)) {
      left *= from[--end];
    }
    while (left > 1) {
      if (to == 0) return std::nullopt;
      --to;
      if (left % shape[to] != 0) return std::nullopt;
      made[to] = stride;
      stride *= shape[to];
      left /= shape[to];
    }
  }
  for (size_t i = to; i-- > 0;) made[i] = i + 1 < shape.size() ? made[i + 1] * shape[i + 1] : 1;
  return made;
}

}  // namespace

void view(const mx::array& in, mx::array& out, const mx::Strides& strides, int64_t offset) {
  if (out.size() == 0) {
    out.set_data(mx::allocator::malloc(0));
    return;
  }
  mx::array::Flags flags{true, true, true};
  int64_t rows = 1, columns = 1, elements = 1, span = 1;
  for (size_t i = 0; i < out.ndim(); ++i) {
    const size_t j = out.ndim() - 1 - i;
    if (out.shape()[i] != 1 && strides[i] != columns) flags.col_contiguous = false;
    if (out.shape()[j] != 1 && strides[j] != rows) flags.row_contiguous = false;
    columns *= out.shape()[i];
    rows *= out.shape()[j];
    if (strides[i] != 0) elements *= out.shape()[i];
    if (strides[i] < 0) flags.contiguous = false;
    span += (out.shape()[i] - 1) * (strides[i] < 0 ? -strides[i] : strides[i]);
  }
  flags.contiguous = flags.contiguous && span == elements;
  out.copy_shared_buffer(in, strides, flags, static_cast<size_t>(span), offset);
}

void Reshaped::run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const mx::array& in = inputs[0];
  mx::array& out = outputs[0];
  if (in.size() == 0) return view(in, out, out.strides());
  if (const auto strides = reshaped_strides(in, out.shape())) return view(in, out, *strides);
  mx::array flat(in.shape(), in.dtype(), nullptr, {});
  flat.set_data(mx::allocator::malloc(flat.nbytes()));
  copy(in, flat, threads());
  view(flat, out, *reshaped_strides(flat, out.shape()));
}

bool Reshaped::reads(const std::vector<mx::array>& inputs) const {
  return !inputs[0].flags().row_contiguous;
}

void Transposed::run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  mx::Strides strides(axes_.size());
  for (size_t i = 0; i < axes_.size(); ++i) strides[i] = inputs[0].strides()[axes_[i]];
  view(inputs[0], outputs[0], strides);
}

void Broadcasted::run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const mx::array& in = inputs[0];
  mx::Strides strides(outputs[0].ndim(), 0);
  const size_t missing = strides.size() - in.ndim();
  for (size_t i = 0; i < in.ndim(); ++i) {
    if (in.shape()[i] != 1) strides[missing + i] = in.strides()[i];
  }
  view(in, outputs[0], strides);
}

void Sliced::run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const mx::array& in = inputs[0];
  mx::Strides strides = in.strides();
  for (size_t i = 0; i < strides.size(); ++i) strides[i] *= steps_[i];
  for (size_t k = 0; k < outputs.size(); ++k) {
    int64_t offset = 0;
    for (size_t i = 0; i < strides.size(); ++i) offset += starts_[k][i] * in.strides()[i];
    view(in, outputs[k], strides, offset);
  }
}

}  // namespace ort_mlx::cpu
