// The sizes of a convolution, and which of its positions meet.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace ort_mlx::cpu {

struct Window {
  std::array<int, 2> stride;
  std::array<int, 2> dilation;
  std::array<int, 2> pad_before;
  bool operator==(const Window&) const = default;
};

struct Geometry {
  int64_t batch, height, width, channels;
  int64_t out_height, out_width, outputs;
  int64_t kernel_height, kernel_width, groups;
  Window window;

  int64_t pixels() const { return height * width; }
  int64_t out_pixels() const { return out_height * out_width; }
  int64_t group_channels() const { return channels / groups; }
  int64_t group_outputs() const { return outputs / groups; }
  int64_t taps() const { return kernel_height * kernel_width; }
  int64_t patch() const { return taps() * group_channels(); }
  bool is_pointwise() const {
    return kernel_height == 1 && kernel_width == 1 && window.stride == std::array{1, 1} &&
           window.pad_before == std::array{0, 0} && out_height == height && out_width == width;
  }
  // Where on `axis` the kernel's position lies for the first output position.
  int64_t input_offset(int axis, int64_t kernel_index) const {
    return kernel_index * window.dilation[axis] - window.pad_before[axis];
  }
};

// The output positions [first, last) whose input position offset + stride * o is inside [0, size).
inline std::pair<int64_t, int64_t> inside(int64_t offset, int64_t stride, int64_t size,
                                          int64_t count) {
  const int64_t first = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
  const int64_t last = size - offset <= 0 ? 0 : (size - offset - 1) / stride + 1;
  return {std::min(first, count), std::clamp(last, std::min(first, count), count)};
}

}  // namespace ort_mlx::cpu
