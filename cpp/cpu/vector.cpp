#include "vector.h"

#include <atomic>
#include <stdexcept>

#include "conv_loops.h"
#include "dots.h"
#include "instruction_sets.h"

namespace ort_mlx::cpu {

// The tables of an instruction set.
#define ORT_MLX_DECLARE_LOOPS(isa)   \
  namespace isa {                    \
  extern const Vectors kVectors;     \
  extern const Dots kDots;           \
  extern const ConvLoops kConvLoops; \
  }

ORT_MLX_DECLARE_LOOPS(baseline)
#ifdef ORT_MLX_X86
ORT_MLX_DECLARE_LOOPS(avx2)
ORT_MLX_DECLARE_LOOPS(avx512)
#endif

namespace {

struct Loops {
  const char* name;
  const Vectors& vectors;
  const Dots& dots;
  const ConvLoops& conv_loops;
};

// The instruction sets that this processor has, the best one last.
std::vector<Loops> supported() {
  std::vector<Loops> sets{{"baseline", baseline::kVectors, baseline::kDots, baseline::kConvLoops}};
#ifdef ORT_MLX_X86
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return sets;
  sets.push_back({"avx2", avx2::kVectors, avx2::kDots, avx2::kConvLoops});
  const bool is_wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                       __builtin_cpu_supports("avx512vl");
  if (is_wide) sets.push_back({"avx512", avx512::kVectors, avx512::kDots, avx512::kConvLoops});
#endif
  return sets;
}

const std::vector<Loops>& sets() {
  static const std::vector<Loops> all = supported();
  return all;
}

std::atomic<const Loops*>& chosen() {
  static std::atomic<const Loops*> loops = &sets().back();
  return loops;
}

}  // namespace

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const auto& set : sets()) names.emplace_back(set.name);
  return names;
}

void use_instruction_set(const std::string& name) {
  for (const auto& set : sets()) {
    if (name == set.name) return chosen().store(&set);
  }
  throw std::invalid_argument("this processor does not have the instruction set " + name);
}

const Vectors& vectors() { return chosen().load(std::memory_order_relaxed)->vectors; }
const Dots& dots() { return chosen().load(std::memory_order_relaxed)->dots; }
const ConvLoops& conv_loops() { return chosen().load(std::memory_order_relaxed)->conv_loops; }

}  // namespace ort_mlx::cpu
