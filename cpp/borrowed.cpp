#include "borrowed.h"

#include <mlx/allocator.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ort_mlx {

namespace {

// A buffer of MLX's CPU allocator has its size in the word before its data, and MLX may look at it.
// What lies before borrowed bytes may not be readable, so the buffer is this one, of no bytes, and
// the borrowed ones are an offset from it.
size_t g_empty_buffer = 0;

}  // namespace

bool can_borrow() {
  static const bool is_plain = [] {
    auto buffer = mx::allocator::allocator().malloc(sizeof(size_t));
    const bool has_header = buffer.raw_ptr() == static_cast<size_t*>(buffer.ptr()) + 1;
    mx::allocator::allocator().free(buffer);
    return has_header;
  }();
  return is_plain;
}

void borrow(mx::array& array, const void* bytes) {
  mx::allocator::Buffer buffer(&g_empty_buffer);
  const auto distance =
      reinterpret_cast<std::uintptr_t>(bytes) - reinterpret_cast<std::uintptr_t>(buffer.raw_ptr());
  const auto is_long = [](int dim) { return dim != 1; };
  const auto& shape = array.shape();
  const bool is_line = std::count_if(shape.begin(), shape.end(), is_long) <= 1;
  const mx::Strides strides = array.strides();
  array.set_data({buffer, [](mx::allocator::Buffer) {}}, array.size(), strides,
                 {true, true, is_line}, static_cast<std::int64_t>(distance));
}

}  // namespace ort_mlx
