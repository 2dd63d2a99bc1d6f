#include "vector.h"

#include "dots.h"

namespace ort_mlx::cpu {

// Both tables of an instruction set.
#define ORT_MLX_DECLARE_LOOPS(isa) \
  namespace isa {                  \
  extern const Vectors kVectors;   \
  extern const Dots kDots;         \
  }

ORT_MLX_DECLARE_LOOPS(baseline)
#ifdef ORT_MLX_X86
ORT_MLX_DECLARE_LOOPS(avx2)
ORT_MLX_DECLARE_LOOPS(avx512)
#endif

namespace {

struct Loops {
  const Vectors& vectors;
  const Dots& dots;
};

Loops best() {
#ifdef ORT_MLX_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    const bool is_wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                         __builtin_cpu_supports("avx512vl");
    return is_wide ? Loops{avx512::kVectors, avx512::kDots} : Loops{avx2::kVectors, avx2::kDots};
  }
#endif
  return {baseline::kVectors, baseline::kDots};
}

const Loops& chosen() {
  static const Loops loops = best();
  return loops;
}

}  // namespace

const Vectors& vectors() { return chosen().vectors; }
const Dots& dots() { return chosen().dots; }

}  // namespace ort_mlx::cpu
