// Inputs made as long as a bucket says along one dimension, so that one closure serves several
// lengths. Python has proven that no op of the plan mixes positions along it.
#pragma once

#include <mlx/array.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "wrap.h"

namespace ort_mlx {

// One dimension of the model and where it is.
struct Padding {
  using Place = std::pair<size_t, size_t>;  // which array, which axis
  std::vector<int64_t> sizes;               // the buckets in order; or else
  int64_t multiple = 0;                     // a bucket is a multiple of this
  std::vector<Place> inputs;
  std::vector<Place> outputs;

  // The smallest bucket for a size; the size itself where there is none.
  int64_t bucket(int64_t size) const;
};

// Pads the inputs of a Run and crops its outputs. What is added repeats the last position, so it
// does nothing that a real one does not do.
class Padder {
 public:
  explicit Padder(std::vector<Padding> paddings) : paddings_(std::move(paddings)) {}

  // Replaces views by those of padded copies; they are valid until the next call. Whether it did.
  bool pad(std::vector<TensorView>& arrays);
  // Undoes it in the outputs of the same Run.
  void crop(std::vector<mx::array>& outputs) const;

 private:
  struct Copy {
    std::vector<char> bytes;
    std::vector<int64_t> dims;
  };
  void extend(TensorView& view, size_t axis, int64_t size, Copy& into) const;

  std::vector<Padding> paddings_;
  std::vector<int64_t> cropped_;           // for each padding the real size in this Run, or -1
  std::vector<std::vector<Copy>> copies_;  // for each padding and each of its inputs
};

}  // namespace ort_mlx
