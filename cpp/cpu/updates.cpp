#include "updates.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "copies.h"
#include "layout.h"
#include "views.h"

namespace ort_mlx::cpu {

namespace {

int64_t element(const mx::array& a, int64_t at) {
  return a.dtype() == mx::int64 ? a.data<int64_t>()[at] : a.data<int32_t>()[at];
}

// Walks all but one axis of a shape, and hands out the offset of each line in several arrays.
class Lines {
 public:
  Lines(const mx::Shape& shape, int axis) : shape_(shape), axis_(axis), at_(shape.size(), 0) {}

  int64_t offset(const mx::array& a) const {
    int64_t sum = 0;
    for (size_t i = 0; i < at_.size(); ++i) sum += at_[i] * a.strides()[i];
    return sum;
  }

  bool next() {
    for (size_t i = at_.size(); i-- > 0;) {
      if (static_cast<int>(i) == axis_) continue;
      if (++at_[i] < shape_[i]) return true;
      at_[i] = 0;
    }
    return false;
  }

 private:
  const mx::Shape& shape_;
  int axis_;
  mx::Shape at_;
};

template <class T>
void write_elements(const mx::array& places, const mx::array& elements, mx::array& out, int axis) {
  const int64_t size = out.shape(axis);
  const int64_t from_stride = elements.strides()[axis], to_stride = out.strides()[axis];
  Lines lines(elements.shape(), axis);
  do {
    const int64_t place_at = lines.offset(places);
    const T* from = elements.data<T>() + lines.offset(elements);
    T* to = out.data<T>() + lines.offset(out);
    for (int i = 0; i < elements.shape(axis); ++i) {
      int64_t place = element(places, place_at + i * places.strides()[axis]);
      if (place < -size || place >= size) {
        throw std::out_of_range("a write at " + std::to_string(place) + " of an axis of " +
                                std::to_string(size));
      }
      if (place < 0) place += size;
      to[place * to_stride] = from[i * from_stride];
    }
  } while (lines.next());
}

}  // namespace

void Update::run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const mx::array& whole = inputs[0];
  mx::array& out = outputs[0];
  const bool has_place = out.data_shared_ptr() != nullptr;
  if (!has_place && whole.is_donatable() && whole.flags().row_contiguous) {
    out.copy_shared_buffer(whole);
  } else {
    allocate(out);
    if (out.size() != 0 && out.data<char>() != whole.data<char>()) copy(whole, out, threads());
  }
  if (out.size() != 0 && inputs[1].size() != 0) write(inputs, out);
}

void BlockWritten::write(const std::vector<mx::array>& inputs, mx::array& out) {
  const mx::array& block = inputs[1];
  int64_t offset = 0;
  for (size_t i = 0; i < axes_.size(); ++i) {
    const int axis = axes_[i];
    const int64_t room = out.shape(axis) - block.shape(axis);
    const int64_t start = element(inputs[2], static_cast<int64_t>(i));
    offset += std::clamp<int64_t>(start, 0, room) * out.strides()[axis];
  }
  mx::array window(block.shape(), out.dtype(), nullptr, {});
  view(out, window, out.strides(), offset);
  copy(block, window, threads());
}

void ElementsWritten::write(const std::vector<mx::array>& inputs, mx::array& out) {
  switch (out.itemsize()) {
    case 1:
      return write_elements<uint8_t>(inputs[1], inputs[2], out, axis_);
    case 2:
      return write_elements<uint16_t>(inputs[1], inputs[2], out, axis_);
    case 4:
      return write_elements<uint32_t>(inputs[1], inputs[2], out, axis_);
    default:
      return write_elements<uint64_t>(inputs[1], inputs[2], out, axis_);
  }
}

}  // namespace ort_mlx::cpu
