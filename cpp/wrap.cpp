#include "wrap.h"

#include <mlx/ops.h>

#include <cstring>
#include <limits>
#include <string>

#include "borrowed.h"
#include "dtype.h"

namespace ort_mlx {

namespace {

mx::Dtype required_dtype(int onnx) {
  if (auto dtype = mlx_dtype(onnx)) return *dtype;
  throw Error(kNotImplemented,
              "ort_mlx: MLX has no array of ONNX element type " + std::to_string(onnx));
}

size_t bytes_of(const mx::Shape& shape, mx::Dtype dtype) {
  size_t n = dtype.size();
  for (auto dim : shape) n *= static_cast<size_t>(dim);
  return n;
}

mx::array copy_of(const void* bytes, const mx::Shape& shape, mx::Dtype dtype) {
  const size_t n = bytes_of(shape, dtype);
  mx::array made(mx::allocator::malloc(n), shape, dtype);
  if (n != 0) std::memcpy(made.data<char>(), bytes, n);
  boundary_bytes().copied_in += n;
  return made;
}

}  // namespace

BoundaryBytes& boundary_bytes() {
  static BoundaryBytes counts;
  return counts;
}

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
  return copy_of(tensor.bytes, shape_of(tensor), required_dtype(tensor.dtype));
}

mx::array wrap(const TensorView& tensor, mx::Device device) {
  const mx::Dtype dtype = required_dtype(tensor.dtype);
  const mx::Shape shape = shape_of(tensor);
  const size_t n = bytes_of(shape, dtype);
  if (n == 0) return copy_of(tensor.bytes, shape, dtype);
  if (device == mx::Device::gpu) {
    return mx::array(const_cast<void*>(tensor.bytes), shape, dtype, [](void*) {});
  }
  boundary_bytes().wrapped += n;
  return mx::array(borrowed(tensor.bytes), shape, dtype);
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
  if (out == nullptr || view_of(ort, out).dtype != onnx_dtype(dtype)) return nullptr;
  void* bytes = nullptr;
  ort.check(api::GetTensorMutableData, out, &bytes);
  return bytes;
}

void copy_out(const Runtime& ort, OrtKernelContext* context, size_t index, const mx::array& value) {
  OrtValue* out = output(ort, context, index, value.shape());
  if (out == nullptr) return;  // nobody reads it
  const TensorView target = view_of(ort, out);
  if (onnx_dtype(value.dtype()) != target.dtype) {
    throw Error(kRuntimeException, "ort_mlx: output " + std::to_string(index) +
                                       " was computed with another element type than the model's");
  }
  void* bytes = nullptr;
  ort.check(api::GetTensorMutableData, out, &bytes);
  if (value.nbytes() == 0 || value.data<char>() == bytes) return;
  std::memcpy(bytes, value.data<char>(), value.nbytes());
  boundary_bytes().copied_out += value.nbytes();
}

}  // namespace ort_mlx
