// Where a tape's outputs are computed: in memory of the caller's where a kernel can do that, so
// that nothing is copied at the end.
#pragma once

#include <cstdint>
#include <vector>

#include "../tape.h"

namespace ort_mlx::cpu {

// The memory that an output may be computed in, and what else may lie there.
struct Place {
  uint32_t node = 0;    // the node that makes the output
  uint32_t output = 0;  // which of its outputs that is
  // The input of the tape whose memory it may be, since nothing else reads that input; -1 for none.
  int32_t shared_input = -1;
};

// What computes each output of the tape, or a part of the way there, in the caller's memory.
class Placing {
 public:
  Placing() = default;
  explicit Placing(const Tape& tape);

  // For each output of the tape; null where it has to be copied.
  const Place* of_output(size_t output) const {
    return is_placed_[output] ? &places_[output] : nullptr;
  }
  // The output of the tape in whose place a node puts its output `k`; -1 for none.
  int32_t target(size_t node, size_t k) const { return targets_[first_[node] + k]; }

 private:
  void place(const Tape& tape, uint32_t id, int32_t output, const std::vector<uint32_t>& readers);

  std::vector<Place> places_;
  std::vector<uint8_t> is_placed_;
  std::vector<uint32_t> first_;  // for each node, where its outputs are in targets_
  std::vector<int32_t> targets_;
};

}  // namespace ort_mlx::cpu
