#include "placing.h"

#include <algorithm>
#include <cstddef>

#include "copies.h"
#include "kernel.h"

namespace ort_mlx::cpu {

Placing::Placing(const Tape& tape) : places_(tape.outputs.size()), is_placed_(tape.outputs.size()) {
  uint32_t count = 0;
  for (const auto& node : tape.nodes) {
    first_.push_back(count);
    count += static_cast<uint32_t>(node.shapes.size());
  }
  targets_.assign(count, -1);
  std::vector<uint32_t> readers(tape.value_count);  // how often a value is read
  for (const auto& node : tape.nodes) {
    for (uint32_t id : node.inputs) ++readers[id];
  }
  for (uint32_t id : tape.outputs) ++readers[id];
  for (size_t i = 0; i < tape.outputs.size(); ++i) {
    place(tape, tape.outputs[i], static_cast<int32_t>(i), readers);
  }
}

// Follows the value with this id to what it is made from, as far as that may lie in the same place.
void Placing::place(const Tape& tape, uint32_t id, int32_t output,
                    const std::vector<uint32_t>& readers) {
  const auto first_value = static_cast<uint32_t>(tape.input_count + tape.constants.size());
  for (bool is_first = true; id >= first_value; is_first = false) {
    const auto node_at = std::upper_bound(first_.begin(), first_.end(), id - first_value) - 1;
    const auto index = static_cast<uint32_t>(node_at - first_.begin());
    const Tape::Node& node = tape.nodes[index];
    const auto* kernel = dynamic_cast<const CpuKernel*>(node.primitive.get());
    int32_t& target = targets_[id - first_value];
    if (kernel == nullptr || target != -1) return;
    if (node.growth != nullptr && node.growth->rebuild) return;
    target = output;
    if (is_first) {
      places_[output].node = index;
      places_[output].output = id - first_value - *node_at;
      is_placed_[output] = 1;
    }
    const uint32_t from = node.inputs.empty() ? 0 : node.inputs[0];
    if (kernel->updates_first_input()) {
      if (readers[from] != 1) return;
      if (from < tape.input_count) places_[output].shared_input = static_cast<int32_t>(from);
    } else if (dynamic_cast<const Contiguous*>(kernel) == nullptr) {
      return;
    }
    id = from;
  }
}

}  // namespace ort_mlx::cpu
