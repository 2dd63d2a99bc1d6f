// ORT tensors as MLX arrays, and MLX arrays as ORT outputs.
#pragma once

#include <mlx/array.h>

#include <atomic>
#include <cstdint>

#include "dtype.h"
#include "ort.h"

namespace ort_mlx {

namespace mx = mlx::core;

// What a tensor is, without its owner.
struct TensorView {
  const void* bytes;
  int dtype;  // ORT element type
  const int64_t* dims;
  size_t rank;
};

TensorView view_of(const Runtime& ort, const OrtValue* value);

// The number of elements.
size_t count_of(const TensorView& tensor);

// How the elements are laid out. Throws for a type that no MLX array can hold.
ElementType type_of(const TensorView& tensor);

// The size in ORT's memory.
size_t byte_size(const TensorView& tensor);

// Throws for a dimension that MLX cannot index.
mx::Shape shape_of(const TensorView& tensor);

// Bytes wrapped in place and bytes copied at the boundary, since the library was loaded.
struct BoundaryBytes {
  std::atomic<uint64_t> wrapped{0};
  std::atomic<uint64_t> copied_in{0};
  std::atomic<uint64_t> copied_out{0};
};
BoundaryBytes& boundary_bytes();

// An array over the tensor's memory. Where MLX's buffers are plain memory it is that memory itself,
// never copied and never written, and the caller keeps it alive; elsewhere MLX adopts it where the
// backend allows, else copies. Narrow types are unpacked, which copies.
mx::array wrap(const TensorView& tensor);

// An array with a copy of the tensor's elements.
mx::array copy_in(const TensorView& tensor);

// The elements in row-major order, as an output has them. An empty array is left alone: on a GPU
// MLX gives some of them no memory, and mx::contiguous would read through a null pointer.
mx::array row_major(const mx::array& value);

// The memory of output `index` of the kernel; null when nobody reads it, or it is of another dtype.
void* output_memory(const Runtime& ort, OrtKernelContext* context, size_t index,
                    const mx::Shape& shape, mx::Dtype dtype);

// Writes an evaluated, row-contiguous array into output `index` of the kernel, if it is not there.
void copy_out(const Runtime& ort, OrtKernelContext* context, size_t index, const mx::array& value);

}  // namespace ort_mlx
