#include "halves.h"

#include <algorithm>

#include "dots.h"

namespace ort_mlx::cpu {

bool is_float(mx::Dtype dtype) {
  return dtype == mx::float32 || dtype == mx::float16 || dtype == mx::bfloat16;
}

void read_floats(float* to, const mx::array& a, int64_t first, int64_t n) {
  if (a.dtype() == mx::float32) {
    std::copy_n(a.data<float>() + first, n, to);
    return;
  }
  const Half type = a.dtype() == mx::float16 ? Half::kFloat16 : Half::kBfloat16;
  dots().widen(to, a.data<uint16_t>() + first, type, n);
}

void write_floats(mx::array& a, int64_t first, const float* from, int64_t n) {
  if (a.dtype() == mx::float32) {
    std::copy_n(from, n, a.data<float>() + first);
  } else if (a.dtype() == mx::float16) {
    std::copy_n(from, n, a.data<mx::float16_t>() + first);
  } else {
    std::copy_n(from, n, a.data<mx::bfloat16_t>() + first);
  }
}

}  // namespace ort_mlx::cpu
