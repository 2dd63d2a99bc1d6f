#include "kernel.h"

#include <mlx/scheduler.h>

#include <stdexcept>

namespace ort_mlx::cpu {

bool CpuKernel::reads(const std::vector<mx::array>&) const { return true; }

void CpuKernel::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  mx::synchronize(stream());
  run(inputs, outputs);
}

void CpuKernel::eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) {
  throw std::logic_error("ort_mlx: a CPU primitive was given to a GPU");
}

}  // namespace ort_mlx::cpu
