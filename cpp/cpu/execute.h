// Running a tape on the CPU without MLX's scheduler: our kernels on the calling thread, one after
// the other, and MLX's own primitives on their stream, waited for when one of ours needs their
// results.
#pragma once

#include "../tape.h"
#include "kernel.h"
#include "placing.h"

namespace ort_mlx::cpu {

class Program {
 public:
  // The tape with kernels of ours wherever there are some. Null when not all of it is on one CPU
  // stream. `inputs` are like the tape's inputs.
  static std::shared_ptr<const Program> prepare(const Tape& tape,
                                                const std::vector<mx::array>& inputs, int threads);

  // The outputs, computed. The inputs have been computed as well. `targets`: for each output the
  // memory where it is wanted, or null; empty for nowhere in particular. It may come elsewhere.
  std::vector<mx::array> run(std::vector<mx::array> inputs, int64_t step,
                             const std::vector<void*>& targets) const;

  const Tape& tape() const { return tape_; }
  const Placing& placing() const { return placing_; }

 private:
  struct Step {
    CpuKernel* kernel;             // owned by the tape's node; null for a primitive of MLX
    std::vector<uint8_t> is_last;  // for each input, whether it is read for the last time
  };
  class Run;

  Program(Tape tape, mx::Stream stream, int threads)
      : tape_(std::move(tape)), placing_(tape_), stream_(stream), threads_(threads) {}

  Tape tape_;
  Placing placing_;
  mx::Stream stream_;
  int threads_;
  std::vector<Step> steps_;
};

}  // namespace ort_mlx::cpu
