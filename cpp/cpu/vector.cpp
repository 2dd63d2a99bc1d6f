#include "vector.h"

namespace ort_mlx::cpu {

namespace baseline {
extern const Vectors kVectors;
}

#ifdef ORT_MLX_X86
namespace avx2 {
extern const Vectors kVectors;
}
namespace avx512 {
extern const Vectors kVectors;
}
#endif

namespace {

const Vectors& best() {
#ifdef ORT_MLX_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    const bool is_wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                         __builtin_cpu_supports("avx512vl");
    return is_wide ? avx512::kVectors : avx2::kVectors;
  }
#endif
  return baseline::kVectors;
}

}  // namespace

const Vectors& vectors() {
  static const Vectors& chosen = best();
  return chosen;
}

}  // namespace ort_mlx::cpu
