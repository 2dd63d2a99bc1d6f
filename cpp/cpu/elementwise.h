// Groups of elementwise primitives as one: an expression over blocks of elements that stay in the
// first-level cache. Reductions over the last axis may take part; a block is then one row.
#pragma once

#include <utility>
#include <vector>

#include "kernel.h"
#include "layout.h"
#include "vector.h"

namespace ort_mlx::cpu {

// Registers are numbered: first the inputs, then what instructions make.
struct Expression {
  std::vector<mx::Dtype> inputs;  // what memory holds: float32, int32 or bool
  std::vector<mx::Dtype> outputs;
  std::vector<uint16_t> results;  // the register of each output
  std::vector<Instruction> code;
  uint16_t register_count = 0;
  bool has_rows = false;  // whether instructions work on whole rows
  int whole = -1;   // an output, or one of the inputs after them, of the whole shape; -1: none
  double cost = 0;  // of one element, in simple operations
};

// Several rows have to fit the second-level cache.
inline constexpr int64_t kLongestRow = 1 << 15;

class Elementwise : public CpuKernel {
 public:
  Elementwise(mx::Stream stream, int threads, mx::Shape shape, Expression expression);

  void run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override;
  const char* name() const override { return "Elementwise"; }

 private:
  mx::Shape shape_;  // where no input or output has it
  Expression expression_;
  bool can_take(size_t input, size_t output) const;

  std::vector<uint16_t> places_;    // for each register, its scratch block
  std::vector<size_t> last_reads_;  // for each register, the last instruction that reads it
  std::vector<size_t> written_;     // for each output, the instruction that makes it
  uint16_t place_count_ = 0;
};

}  // namespace ort_mlx::cpu
