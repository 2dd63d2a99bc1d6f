#include "conv.h"

#include <algorithm>
#include <numeric>

#include "blas.h"
#include "copies.h"
#include "depthwise.h"
#include "layout.h"
#include "parallel.h"
#include "planar_conv.h"

namespace ort_mlx::cpu {

namespace {

constexpr int64_t kProductFloats = 1 << 18;  // 1 MiB of products at a time stays in the cache

// Adds a plane of products to the output pixels that kernel position `tap` reaches.
void scatter_tap(const Geometry& g, const float* products, int64_t tap, float* out) {
  const int64_t row_offset = g.input_offset(0, tap / g.kernel_width);
  const int64_t offset = g.input_offset(1, tap % g.kernel_width), stride = g.window.stride[1];
  const auto [first, last] = inside(offset, stride, g.out_width, g.width);
  for (int64_t h = 0; h < g.height; ++h) {
    const int64_t row = h * g.window.stride[0] + row_offset;
    if (row < 0 || row >= g.out_height) continue;
    float* to = out + row * g.out_width + offset;
    const float* from = products + h * g.width;
    for (int64_t w = first; w < last; ++w) to[w * stride] += from[w];
  }
}

bool lies_planar(const mx::array& x, const Geometry& g) {
  const auto& s = x.strides();
  const size_t last = x.ndim() - 1;
  const bool rows = x.ndim() == 3 || g.height == 1 || s[1] == g.width;
  return (g.channels == 1 || s[last] == g.pixels()) && (g.width == 1 || s[last - 1] == 1) && rows &&
         (g.batch == 1 || s[0] == g.channels * g.pixels());
}

Geometry geometry_of(const mx::array& x, const mx::array& w, const mx::array& out, Window window,
                     int groups) {
  const bool flat = x.ndim() == 3;
  auto height = [&](const mx::array& a) { return flat ? int64_t{1} : a.shape(1); };
  return {.batch = x.shape(0),
          .height = height(x),
          .width = x.shape(-2),
          .channels = x.shape(-1),
          .out_height = height(out),
          .out_width = out.shape(-2),
          .outputs = out.shape(-1),
          .kernel_height = height(w),
          .kernel_width = w.shape(-2),
          .groups = groups,
          .window = window};
}

// Memory with the channels outermost.
void allocate_planar(mx::array& out) {
  if (out.size() == 0) {
    out.set_data(mx::allocator::malloc(0));
    return;
  }
  Order order(out.ndim());
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin() + 1, order.end() - 1, order.end());
  allocate(out, order);
}

// The array itself where it lies so.
mx::array to_planar(const mx::array& x, const Geometry& g, int threads) {
  if (lies_planar(x, g)) return x;
  mx::array planar(x.shape(), x.dtype(), nullptr, {});
  allocate_planar(planar);
  copy(x, planar, threads);
  return planar;
}

}  // namespace

bool PlanarConvolution::is_equivalent(const mx::Primitive& other) const {
  const auto& o = static_cast<const PlanarConvolution&>(other);
  return window_ == o.window_ && groups_ == o.groups_;
}

void PlanarConvolution::run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  mx::array& out = outputs[0];
  const mx::array &x = inputs[0], &w = inputs[1];
  const Geometry g = geometry_of(x, w, out, window_, groups_);
  allocate_planar(out);
  if (out.size() == 0) return;
  const mx::array planar = to_planar(x, g, threads());
  const mx::array rows = row_major(w, threads());  // it may be a view, mirrored for example
  (g.group_channels() == 1 ? convolve_depthwise : convolve_planar)(
      g, threads(), planar.data<float>(), rows.data<float>(), out.data<float>());
}

bool TransposedConvolution::is_equivalent(const mx::Primitive& other) const {
  const auto& o = static_cast<const TransposedConvolution&>(other);
  return window_ == o.window_ && groups_ == o.groups_;
}

// Every input pixel times the weights of a tap is added to the output pixel that the tap reaches.
void TransposedConvolution::run(const std::vector<mx::array>& inputs,
                                std::vector<mx::array>& outputs) {
  mx::array& out = outputs[0];
  // The roles of input and output in a convolution, the other way round.
  const Geometry g = geometry_of(inputs[0], inputs[1], out, window_, groups_);
  allocate_planar(out);
  if (out.size() == 0) return;
  float* to = out.data<float>();
  std::fill(to, to + out.size(), 0.0f);
  if (inputs[0].size() == 0) return;
  const mx::array weights = row_major(inputs[1], threads());
  const mx::array planar = to_planar(inputs[0], g, threads());
  const float* x = planar.data<float>();
  const int64_t taps = g.taps(), channels = g.group_channels();
  const int64_t group_outputs = g.group_outputs();
  parallel_ranges(threads(), g.batch * g.outputs, 1, [&](int64_t first, int64_t last) {
    const int64_t most = std::max<int64_t>(1, kProductFloats / (taps * g.pixels()));
    std::vector<float> products;
    while (first < last) {
      const int64_t n = first / g.outputs, output = first % g.outputs;
      const int64_t group = output / group_outputs;
      const int64_t count = std::min({most, last - first, (group + 1) * group_outputs - output});
      products.resize(static_cast<size_t>(count * taps * g.pixels()));
      sgemm(count * taps, g.pixels(), channels, 1,
            {weights.data<float>() + output * taps * channels, channels, false},
            {x + (n * g.channels + group * channels) * g.pixels(), g.pixels(), false}, 0,
            products.data(), g.pixels());
      const float* from = products.data();
      for (int64_t o = first; o < first + count; ++o) {
        for (int64_t tap = 0; tap < taps; ++tap, from += g.pixels()) {
          scatter_tap(g, from, tap, to + o * g.out_pixels());
        }
      }
      first += count;
    }
  });
}

}  // namespace ort_mlx::cpu
