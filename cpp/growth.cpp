#include "growth.h"

#include <cstring>
#include <stdexcept>

namespace ort_mlx {

namespace {

template <class T>
void fill(const mx::array& base, const mx::array& slope, int64_t step, mx::array& out) {
  const T *b = base.data<T>(), *s = slope.data<T>();
  T* to = out.data<T>();
  for (size_t i = 0; i < base.size(); ++i)
    to[i] = static_cast<T>(b[i] + s[i] * static_cast<T>(step));
}

}  // namespace

mx::Shape shape_at(const Lines& lines, int64_t step) {
  mx::Shape shape;
  shape.reserve(lines.size());
  for (const Line& line : lines) shape.push_back(static_cast<mx::ShapeElem>(line.at(step)));
  return shape;
}

mx::array GrowingConstant::at(int64_t step) const {
  mx::array out(mx::allocator::malloc(base.nbytes()), base.shape(), base.dtype());
  switch (base.dtype()) {
    case mx::Dtype::Val::int32:
      fill<int32_t>(base, slope, step, out);
      break;
    case mx::Dtype::Val::int64:
      fill<int64_t>(base, slope, step, out);
      break;
    case mx::Dtype::Val::float32:
      fill<float>(base, slope, step, out);
      break;
    default:
      throw std::logic_error("ort_mlx: a growing constant of an unexpected type");
  }
  return out;
}

}  // namespace ort_mlx
