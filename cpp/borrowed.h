// Memory of someone else's as MLX knows it on its CPU backend.
#pragma once

#include <mlx/allocator.h>

#include <cstddef>

namespace ort_mlx {

// MLX's CPU backend keeps a buffer's size in the word before its data. It is only read when MLX
// frees or donates the buffer, which it does not do with one it does not own.
inline mlx::core::allocator::Data borrowed(const void* bytes) {
  auto* before = static_cast<char*>(const_cast<void*>(bytes)) - sizeof(size_t);
  return {mlx::core::allocator::Buffer(before), [](mlx::core::allocator::Buffer) {}};
}

}  // namespace ort_mlx
