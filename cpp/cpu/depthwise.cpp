#include "depthwise.h"

#include <memory>
#include <vector>

#include "conv_loops.h"
#include "parallel.h"
#include "subnormals.h"

namespace ort_mlx::cpu {

namespace {

constexpr int64_t kSerialWork = 1 << 16;  // multiply-adds not worth waking another thread
constexpr int64_t kLongRow = 64;          // worth summing by itself

// A padded plane, taken apart by the strides: phase (i, j) has every element whose row is i and
// whose column is j modulo the stride. Whatever the stride, what a tap meets then lies as the
// outputs do, and rows of all outputs can be summed as one.
class Phases {
 public:
  explicit Phases(const Geometry& g) : g_(g) {
    for (int axis = 0; axis < 2; ++axis) {
      const int64_t kernel = axis == 0 ? g.kernel_height : g.kernel_width;
      const int64_t reach = (kernel - 1) * g.window.dilation[axis];
      counts_[axis] = std::min<int64_t>(g.window.stride[axis], reach + 1);
      sizes_[axis] = (axis == 0 ? g.out_height : g.out_width) + reach / g.window.stride[axis];
    }
    for (int64_t kh = 0; kh < g.kernel_height; ++kh) {
      for (int64_t kw = 0; kw < g.kernel_width; ++kw) offsets_.push_back(offset_of(kh, kw));
    }
    // Zeros, of which no plane covers those outside of the input.
    elements_ = std::make_unique<float[]>(
        static_cast<size_t>(counts_[0] * counts_[1] * sizes_[0] * sizes_[1]));
    sums_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(flat_size()));
  }

  void load(const float* plane) {
    float* to = elements_.get();
    const int64_t stride_h = g_.window.stride[0], stride_w = g_.window.stride[1];
    for (int64_t i = 0; i < counts_[0]; ++i) {
      const int64_t row = i - g_.window.pad_before[0];
      const auto [top, bottom] = inside(row, stride_h, g_.height, sizes_[0]);
      for (int64_t j = 0; j < counts_[1]; ++j, to += sizes_[0] * sizes_[1]) {
        const int64_t column = j - g_.window.pad_before[1];
        const auto [first, last] = inside(column, stride_w, g_.width, sizes_[1]);
        if (top == bottom || first == last) continue;
        conv_loops().copy_rows(
            to + top * sizes_[1] + first, sizes_[1],
            plane + (row + top * stride_h) * g_.width + column + first * stride_w,
            stride_h * g_.width, stride_w, bottom - top, last - first);
      }
    }
  }

  void sum(const float* weights, float* out) const {
    const auto& loops = conv_loops();
    const auto taps = static_cast<int64_t>(offsets_.size());
    if (g_.out_width >= kLongRow || sizes_[1] == g_.out_width) {
      const bool is_flat = sizes_[1] == g_.out_width;
      const int64_t rows = is_flat ? 1 : g_.out_height;
      const int64_t n = is_flat ? g_.out_pixels() : g_.out_width;
      for (int64_t r = 0; r < rows; ++r) {
        loops.sum_shifted(out + r * g_.out_width, elements_.get() + r * sizes_[1], offsets_.data(),
                          weights, taps, n);
      }
      return;
    }
    loops.sum_shifted(sums_.get(), elements_.get(), offsets_.data(), weights, taps, flat_size());
    loops.copy_rows(out, g_.out_width, sums_.get(), sizes_[1], 1, g_.out_height, g_.out_width);
  }

 private:
  // Up to the last output; the elements between rows are sums of no meaning.
  int64_t flat_size() const { return (g_.out_height - 1) * sizes_[1] + g_.out_width; }

  int64_t offset_of(int64_t kh, int64_t kw) const {
    const int64_t row = kh * g_.window.dilation[0], column = kw * g_.window.dilation[1];
    const int64_t sh = g_.window.stride[0], sw = g_.window.stride[1];
    const int64_t phase = row % sh * counts_[1] + column % sw;
    return (phase * sizes_[0] + row / sh) * sizes_[1] + column / sw;
  }

  const Geometry& g_;
  std::array<int64_t, 2> counts_, sizes_;  // of phases, and of the elements of each
  std::vector<int64_t> offsets_;           // of each tap
  std::unique_ptr<float[]> elements_, sums_;
};

int useful_threads(const Geometry& g, int threads) {
  return g.batch * g.outputs * g.out_pixels() * g.taps() < kSerialWork ? 1 : threads;
}

}  // namespace

void convolve_depthwise(const Geometry& g, int threads, const float* x, const float* w,
                        float* out) {
  const int64_t each = g.group_outputs();
  parallel_ranges(useful_threads(g, threads), g.batch * g.outputs, each,
                  [&](int64_t first, int64_t last) {
                    const SubnormalsAsZero fast;
                    Phases phases(g);
                    for (int64_t i = first; i < last; ++i) {
                      if (i % each == 0) phases.load(x + i / each * g.pixels());
                      phases.sum(w + i % g.outputs * g.taps(), out + i * g.out_pixels());
                    }
                  });
}

}  // namespace ort_mlx::cpu
