#include "padding.h"

#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <cstring>

#include "dtype.h"

namespace ort_mlx {

int64_t Padding::bucket(int64_t size) const {
  if (multiple > 0) return (size + multiple - 1) / multiple * multiple;
  const auto found = std::lower_bound(sizes.begin(), sizes.end(), size);
  return found == sizes.end() ? size : *found;
}

bool Padder::pad(std::vector<TensorView>& arrays) {
  cropped_.assign(paddings_.size(), -1);
  copies_.resize(paddings_.size());
  bool is_padded = false;
  for (size_t p = 0; p < paddings_.size(); ++p) {
    const Padding& padding = paddings_[p];
    const auto size_at = [&](const Padding::Place& at) { return arrays[at.first].dims[at.second]; };
    const int64_t size = size_at(padding.inputs.front());
    const int64_t bucket = padding.bucket(size);
    // ORT does not see to it that a symbol has one size; sizes that differ are broadcast.
    const bool agree = std::all_of(padding.inputs.begin(), padding.inputs.end(),
                                   [&](const auto& at) { return size_at(at) == size; });
    if (size == 0 || bucket == size || !agree) continue;
    copies_[p].resize(padding.inputs.size());
    for (size_t i = 0; i < padding.inputs.size(); ++i) {
      const auto [index, axis] = padding.inputs[i];
      extend(arrays[index], axis, bucket, copies_[p][i]);
    }
    cropped_[p] = size;
    is_padded = true;
  }
  return is_padded;
}

void Padder::extend(TensorView& view, size_t axis, int64_t size, Copy& into) const {
  size_t outer = 1, inner = element_type(view.dtype).value().bytes(1);
  for (size_t i = 0; i < axis; ++i) outer *= static_cast<size_t>(view.dims[i]);
  for (size_t i = axis + 1; i < view.rank; ++i) inner *= static_cast<size_t>(view.dims[i]);
  const size_t before = static_cast<size_t>(view.dims[axis]) * inner;
  const size_t after = static_cast<size_t>(size) * inner;
  into.bytes.resize(outer * after);
  const char* from = static_cast<const char*>(view.bytes);
  char* to = into.bytes.data();
  for (size_t i = 0; i < outer && inner != 0; ++i, from += before, to += after) {
    std::memcpy(to, from, before);
    for (size_t at = before; at < after; at += inner) {
      std::memcpy(to + at, from + before - inner, inner);
    }
  }
  into.dims.assign(view.dims, view.dims + view.rank);
  into.dims[axis] = size;
  view.bytes = into.bytes.data();
  view.dims = into.dims.data();
}

void Padder::crop(std::vector<mx::array>& outputs) const {
  for (size_t p = 0; p < paddings_.size(); ++p) {
    if (cropped_[p] < 0) continue;
    for (const auto& [index, axis] : paddings_[p].outputs) {
      mx::array& output = outputs[index];
      mx::Shape stop = output.shape();
      stop[axis] = static_cast<int>(cropped_[p]);
      output = mx::contiguous(mx::slice(output, mx::Shape(stop.size(), 0), stop));
    }
  }
  mx::eval(outputs);
}

}  // namespace ort_mlx
