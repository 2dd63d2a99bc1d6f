#include "wrap.h"

#include <mlx/ops.h>

#include <cstring>
#include <limits>
#include <string>

#include "borrowed.h"
#include "narrow.h"

namespace ort_mlx {

BoundaryBytes& boundary_bytes() {
  static BoundaryBytes counts;
  return counts;
}

size_t count_of(const TensorView& tensor) {
  size_t n = 1;
  for (size_t i = 0; i < tensor.rank; ++i) n *= static_cast<size_t>(tensor.dims[i]);
  return n;
}

ElementType type_of(const TensorView& tensor) {
  if (auto type = element_type(tensor.dtype)) return *type;
  throw Error(kNotImplemented,
              "ort_mlx: MLX has no array of element type " + std::to_string(tensor.dtype));
}

size_t byte_size(const TensorView& tensor) { return type_of(tensor).bytes(count_of(tensor)); }

mx::Shape shape_of(const TensorView& tensor) {
  mx::Shape shape;
  shape.reserve(tensor.rank);
  for (size_t i = 0; i < tensor.rank; ++i) {
    if (tensor.dims[i] > std::numeric_limits<mx::ShapeElem>::max()) {
      throw Error(kInvalidArgument, "ort_mlx: a dimension of " + std::to_string(tensor.dims[i]) +
                                        " is more than MLX can index (2^31 - 1)");
    }
    shape.push_back(static_cast<mx::ShapeElem>(tensor.dims[i]));
  }
  return shape;
}

TensorView view_of(const Runtime& ort, const OrtValue* value) {
  TensorView view{};
  ort.check(api::GetTensorElementTypeAndShapeDataReference, value, &view.dtype, &view.dims,
            &view.rank);
  ort.check(api::GetTensorData, value, &view.bytes);
  return view;
}

mx::array copy_in(const TensorView& tensor) {
  const ElementType type = type_of(tensor);
  const size_t count = count_of(tensor);
  const size_t n = count * type.held.size();
  mx::array made(mx::allocator::malloc(n), shape_of(tensor), type.held);
  if (type.is_narrow()) {
    unpack_narrow(type, tensor.bytes, count, made.data<char>());
  } else if (n != 0) {
    std::memcpy(made.data<char>(), tensor.bytes, n);
  }
  boundary_bytes().copied_in += n;
  return made;
}

mx::array wrap(const TensorView& tensor) {
  const ElementType type = type_of(tensor);
  const size_t n = byte_size(tensor);
  if (n == 0 || type.is_narrow()) return copy_in(tensor);
  const mx::Shape shape = shape_of(tensor);
  if (!can_borrow()) {
    return mx::array(const_cast<void*>(tensor.bytes), shape, type.held, [](void*) {});
  }
  boundary_bytes().wrapped += n;
  mx::array made(shape, type.held, nullptr, {});
  borrow(made, tensor.bytes);
  made.set_status(mx::array::Status::available);
  return made;
}

mx::array row_major(const mx::array& value) {
  return value.size() == 0 ? value : mx::contiguous(value);
}

namespace {

OrtValue* output(const Runtime& ort, OrtKernelContext* context, size_t index,
                 const mx::Shape& shape) {
  const std::vector<int64_t> dims(shape.begin(), shape.end());
  OrtValue* out = nullptr;
  ort.check(api::KernelContext_GetOutput, context, index, dims.data(), dims.size(), &out);
  return out;
}

}  // namespace

void* output_memory(const Runtime& ort, OrtKernelContext* context, size_t index,
                    const mx::Shape& shape, mx::Dtype dtype) {
  OrtValue* out = output(ort, context, index, shape);
  if (out == nullptr) return nullptr;
  const ElementType type = type_of(view_of(ort, out));
  if (type.is_narrow() || type.held != dtype) return nullptr;
  void* bytes = nullptr;
  ort.check(api::GetTensorMutableData, out, &bytes);
  return bytes;
}

void copy_out(const Runtime& ort, OrtKernelContext* context, size_t index, const mx::array& value) {
  OrtValue* out = output(ort, context, index, value.shape());
  if (out == nullptr) return;  // nobody reads it
  const TensorView target = view_of(ort, out);
  const ElementType type = type_of(target);
  if (value.dtype() != type.held) {
    throw Error(kRuntimeException, "ort_mlx: output " + std::to_string(index) +
                                       " was computed with another element type than the model's");
  }
  void* bytes = nullptr;
  ort.check(api::GetTensorMutableData, out, &bytes);
  if (value.nbytes() == 0 || value.data<char>() == bytes) return;
  if (type.is_narrow()) {
    pack_narrow(type, value.data<char>(), value.size(), bytes);
  } else {
    std::memcpy(bytes, value.data<char>(), value.nbytes());
  }
  boundary_bytes().copied_out += value.nbytes();
}

}  // namespace ort_mlx
