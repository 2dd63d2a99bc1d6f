#include "planar_conv.h"

#include <memory>
#include <vector>

#include "conv_loops.h"
#include "parallel.h"
#include "subnormals.h"

namespace ort_mlx::cpu {

namespace {

constexpr int64_t kDepth = 192;           // elements of a patch at a time: the panel stays in L1
constexpr int64_t kFewestRows = 16;       // of outputs, worth a panel of their own
constexpr int64_t kPartsOfAThread = 4;    // so that the threads end together
constexpr int64_t kSerialWork = 1 << 17;  // multiply-adds not worth waking another thread

// Of the cache: a vector that lies across two costs two loads.
constexpr int64_t kLine = 16;
struct alignas(64) Line {
  float elements[kLine];
};

// Output pixels [first, first + count) and the part of an input plane that each tap meets there.
class Panel {
 public:
  Panel(const Geometry& g, int64_t first, int64_t count) : g_(g), first_(first), count_(count) {}

  int64_t count() const { return count_; }
  int64_t width(const ConvLoops& loops) const {
    return (count_ + loops.lanes - 1) / loops.lanes * loops.lanes;
  }

  // Elements [begin, end) of the patches, from the planes of a group's channels.
  void gather(const ConvLoops& loops, const float* planes, int64_t begin, int64_t end, float* to) {
    const int64_t channels = g_.group_channels();
    while (begin < end) {
      const int64_t tap = begin / channels, channel = begin % channels;
      const int64_t n = std::min(channels - channel, end - begin);
      find_pieces(tap);
      loops.gather_pieces(to, width(loops), planes + channel * g_.pixels(), g_.pixels(), n,
                          pieces_.data(), static_cast<int64_t>(pieces_.size()),
                          g_.window.stride[1]);
      to += n * width(loops);
      begin += n;
    }
  }

 private:
  // Row by row of the outputs.
  void find_pieces(int64_t tap) {
    pieces_.clear();
    const int64_t stride = g_.window.stride[1];
    const int64_t row_offset = g_.input_offset(0, tap / g_.kernel_width);
    const int64_t offset = g_.input_offset(1, tap % g_.kernel_width);
    if (g_.is_pointwise()) {
      pieces_.push_back({first_, 0, count_});
      return;
    }
    const auto [low, high] = inside(offset, stride, g_.width, g_.out_width);
    for (int64_t at = 0; at < count_;) {
      const int64_t oh = (first_ + at) / g_.out_width, ow = (first_ + at) % g_.out_width;
      const int64_t length = std::min(g_.out_width - ow, count_ - at);
      const int64_t row = oh * g_.window.stride[0] + row_offset;
      const int64_t begin = std::clamp(low, ow, ow + length);
      const int64_t end = std::clamp(high, begin, ow + length);
      if (row >= 0 && row < g_.height && begin < end) {
        pieces_.push_back({row * g_.width + begin * stride + offset, at + begin - ow, end - begin});
      }
      at += length;
    }
  }

  const Geometry& g_;
  int64_t first_, count_;
  std::vector<Piece> pieces_;
};

}  // namespace

void convolve_planar(const Geometry& g, int threads, const float* x, const float* w, float* out) {
  const auto& loops = conv_loops();
  const int64_t outputs = g.group_outputs(), depth = g.patch();
  const int64_t panels = (g.out_pixels() + loops.widest_panel - 1) / loops.widest_panel;
  const int64_t whole = g.batch * g.groups * panels;
  if (g.batch * g.outputs * g.out_pixels() * depth < kSerialWork) threads = 1;
  const int64_t wanted = threads == 1 ? 1 : (threads * kPartsOfAThread + whole - 1) / whole;
  const int64_t parts = std::clamp<int64_t>(outputs / kFewestRows, 1, wanted);
  parallel_ranges(threads, whole * parts, 1, [&](int64_t begin, int64_t end) {
    const SubnormalsAsZero fast;
    const auto lines = std::make_unique_for_overwrite<Line[]>(
        static_cast<size_t>(std::min(kDepth, depth) * loops.widest_panel / kLine));
    float* panel = lines[0].elements;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t part = i % parts, first = i / parts % panels * loops.widest_panel;
      const int64_t image = i / parts / panels;  // of a group
      const int64_t top = outputs * part / parts, bottom = outputs * (part + 1) / parts;
      const float* planes = x + image * g.group_channels() * g.pixels();
      const float* weights = w + (image % g.groups * outputs + top) * depth;
      float* to = out + (image * outputs + top) * g.out_pixels() + first;
      Panel pixels(g, first, std::min<int64_t>(loops.widest_panel, g.out_pixels() - first));
      for (int64_t k = 0; k < depth; k += kDepth) {
        const int64_t n = std::min(kDepth, depth - k);
        pixels.gather(loops, planes, k, k + n, panel);
        loops.multiply_panel({.weights = weights + k,
                              .weights_stride = depth,
                              .panel = panel,
                              .width = pixels.width(loops),
                              .depth = n,
                              .rows = bottom - top,
                              .columns = pixels.count(),
                              .to = to,
                              .to_stride = g.out_pixels(),
                              .is_first = k == 0});
      }
    }
  });
}

}  // namespace ort_mlx::cpu
