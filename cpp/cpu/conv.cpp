#include "conv.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "blas.h"
#include "copies.h"
#include "depthwise.h"
#include "layout.h"
#include "parallel.h"

namespace ort_mlx::cpu {

namespace {

constexpr int64_t kPatchFloats = 1 << 18;  // 1 MiB of patches at a time stays in the cache

// Row `r` of one channel's plane, shifted for kernel column kw, to `to`; zeros outside.
void copy_shifted(const Geometry& g, const float* plane, int64_t row, int64_t kw, float* to) {
  if (row < 0 || row >= g.height) {
    std::memset(to, 0, static_cast<size_t>(g.out_width) * sizeof(float));
    return;
  }
  const int64_t offset = g.input_offset(1, kw), stride = g.window.stride[1];
  const auto [first, last] = inside(offset, stride, g.width, g.out_width);
  const float* from = plane + row * g.width + offset;
  std::fill(to, to + first, 0.0f);
  if (stride == 1) {
    std::memcpy(to + first, from + first, static_cast<size_t>(last - first) * sizeof(float));
  } else {
    for (int64_t o = first; o < last; ++o) to[o] = from[o * stride];
  }
  std::fill(to + last, to + g.out_width, 0.0f);
}

// Planar: patches[kernel position, channel][output pixel] for output rows [first, last).
void gather_planar(const Geometry& g, const float* x, int64_t first, int64_t last, float* patches) {
  for (int64_t kh = 0; kh < g.kernel_height; ++kh) {
    for (int64_t kw = 0; kw < g.kernel_width; ++kw) {
      for (int64_t c = 0; c < g.group_channels(); ++c) {
        for (int64_t o = first; o < last; ++o, patches += g.out_width) {
          const int64_t row = o * g.window.stride[0] + g.input_offset(0, kh);
          copy_shifted(g, x + c * g.pixels(), row, kw, patches);
        }
      }
    }
  }
}

// Interleaved: patches[output pixel][kernel position, channel] for output rows [first, last).
void gather_interleaved(const Geometry& g, const float* x, int64_t first, int64_t last,
                        float* patches) {
  const int64_t channels = g.group_channels();
  for (int64_t oh = first; oh < last; ++oh) {
    for (int64_t ow = 0; ow < g.out_width; ++ow) {
      for (int64_t kh = 0; kh < g.kernel_height; ++kh) {
        const int64_t row = oh * g.window.stride[0] + g.input_offset(0, kh);
        for (int64_t kw = 0; kw < g.kernel_width; ++kw, patches += channels) {
          const int64_t column = ow * g.window.stride[1] + g.input_offset(1, kw);
          if (row < 0 || row >= g.height || column < 0 || column >= g.width) {
            std::memset(patches, 0, static_cast<size_t>(channels) * sizeof(float));
          } else {
            std::memcpy(patches, x + (row * g.width + column) * g.channels,
                        static_cast<size_t>(channels) * sizeof(float));
          }
        }
      }
    }
  }
}

// Whole output rows whose patches fit the budget.
int64_t rows_at_a_time(const Geometry& g, int threads) {
  const int64_t fit = kPatchFloats / std::max<int64_t>(1, g.patch() * g.out_width);
  const int64_t share = (g.out_height + threads - 1) / threads;
  return std::clamp<int64_t>(fit, 1, std::max<int64_t>(1, share));
}

void planar_group(const Geometry& g, int threads, const float* x, const float* w, float* out) {
  const Matrix weights{w, g.patch(), false};
  if (g.is_pointwise()) {
    parallel_sgemm(threads, g.group_outputs(), g.out_pixels(), g.patch(), 1, weights,
                   {x, g.pixels(), false}, 0, out, g.out_pixels());
    return;
  }
  const int64_t rows = rows_at_a_time(g, threads);
  parallel_ranges(threads, (g.out_height + rows - 1) / rows, 1, [&](int64_t from, int64_t to) {
    std::vector<float> patches(static_cast<size_t>(g.patch() * rows * g.out_width));
    for (int64_t chunk = from; chunk < to; ++chunk) {
      const int64_t first = chunk * rows, last = std::min(first + rows, g.out_height);
      const int64_t pixels = (last - first) * g.out_width;
      gather_planar(g, x, first, last, patches.data());
      sgemm(g.group_outputs(), pixels, g.patch(), 1, weights, {patches.data(), pixels, false}, 0,
            out + first * g.out_width, g.out_pixels());
    }
  });
}

void interleaved_group(const Geometry& g, int threads, const float* x, const float* w, float* out) {
  const Matrix weights{w, g.patch(), true};
  if (g.is_pointwise()) {
    parallel_sgemm(threads, g.out_pixels(), g.group_outputs(), g.patch(), 1, {x, g.channels, false},
                   weights, 0, out, g.outputs);
    return;
  }
  const int64_t rows = rows_at_a_time(g, threads);
  parallel_ranges(threads, (g.out_height + rows - 1) / rows, 1, [&](int64_t from, int64_t to) {
    std::vector<float> patches(static_cast<size_t>(g.patch() * rows * g.out_width));
    for (int64_t chunk = from; chunk < to; ++chunk) {
      const int64_t first = chunk * rows, last = std::min(first + rows, g.out_height);
      const int64_t pixels = (last - first) * g.out_width;
      gather_interleaved(g, x, first, last, patches.data());
      sgemm(pixels, g.group_outputs(), g.patch(), 1, {patches.data(), g.patch(), false}, weights, 0,
            out + first * g.out_width * g.outputs, g.outputs);
    }
  });
}

void convolve(const Geometry& g, int threads, bool is_planar, const float* x, const float* w,
              float* out) {
  if (g.group_channels() == 1) {
    return (is_planar ? depthwise_planar : depthwise_interleaved)(g, threads, x, w, out);
  }
  for (int64_t n = 0; n < g.batch; ++n) {
    const float* image = x + n * g.channels * g.pixels();
    float* result = out + n * g.outputs * g.out_pixels();
    for (int64_t group = 0; group < g.groups; ++group) {
      const float* weights = w + group * g.group_outputs() * g.patch();
      if (is_planar) {
        planar_group(g, threads, image + group * g.group_channels() * g.pixels(), weights,
                     result + group * g.group_outputs() * g.out_pixels());
      } else {
        interleaved_group(g, threads, image + group * g.group_channels(), weights,
                          result + group * g.group_outputs());
      }
    }
  }
}

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

// Any other layout, gathered into the planar one.
std::vector<float> to_planar(const mx::array& x, const Geometry& g) {
  std::vector<float> planar(x.size());
  const auto& s = x.strides();
  const size_t last = x.ndim() - 1;
  const int64_t row_stride = x.ndim() == 3 ? 0 : s[1];
  const float* data = x.data<float>();
  float* to = planar.data();
  for (int64_t n = 0; n < g.batch; ++n) {
    for (int64_t c = 0; c < g.channels; ++c) {
      for (int64_t h = 0; h < g.height; ++h) {
        const float* row = data + n * s[0] + h * row_stride + c * s[last];
        for (int64_t w = 0; w < g.width; ++w) *to++ = row[w * s[last - 1]];
      }
    }
  }
  return planar;
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

}  // namespace

bool BlasConvolution::is_equivalent(const mx::Primitive& other) const {
  const auto& o = static_cast<const BlasConvolution&>(other);
  return window_ == o.window_ && groups_ == o.groups_;
}

void BlasConvolution::run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  mx::array& out = outputs[0];
  const mx::array &x = inputs[0], &w = inputs[1];
  const Geometry g = geometry_of(x, w, out, window_, groups_);
  const bool has_form = g.group_channels() > 1 || g.group_outputs() == 1;  // with channels last
  const bool is_interleaved = has_form && x.flags().row_contiguous && !lies_planar(x, g);
  if (is_interleaved) {
    allocate(out);
  } else {
    allocate_planar(out);
  }
  if (out.size() == 0) return;
  const bool is_planar = lies_planar(x, g);
  const mx::array rows = row_major(w, threads());  // it may be a view, mirrored for example
  const float* weights = rows.data<float>();
  float* to = out.data<float>();
  if (is_interleaved || is_planar) {
    convolve(g, threads(), is_planar, x.data<float>(), weights, to);
  } else {
    convolve(g, threads(), true, to_planar(x, g).data(), weights, to);
  }
}

bool BlasTransposedConvolution::is_equivalent(const mx::Primitive& other) const {
  const auto& o = static_cast<const BlasTransposedConvolution&>(other);
  return window_ == o.window_ && groups_ == o.groups_;
}

// Every input pixel times the weights of a tap is added to the output pixel that the tap reaches.
void BlasTransposedConvolution::run(const std::vector<mx::array>& inputs,
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
  const bool is_planar = lies_planar(inputs[0], g);
  const std::vector<float> planar = is_planar ? std::vector<float>{} : to_planar(inputs[0], g);
  const float* x = is_planar ? inputs[0].data<float>() : planar.data();
  const int64_t taps = g.taps(), channels = g.group_channels();
  const int64_t group_outputs = g.group_outputs();
  parallel_ranges(threads(), g.batch * g.outputs, 1, [&](int64_t first, int64_t last) {
    const int64_t most = std::max<int64_t>(1, kPatchFloats / (taps * g.pixels()));
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
