#include "reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "layout.h"
#include "parallel.h"

namespace ort_mlx::cpu {

namespace {

constexpr int64_t kWorthSplitting = 1 << 16;  // elements
constexpr int64_t kRun = 4096;  // summed at once: partial sums keep the error of long ones small

struct Loop {
  int64_t size, stride;
};

// Loops over some of the dimensions of an array, innermost last, merged where they can be.
std::vector<Loop> merged(std::vector<Loop> loops) {
  std::vector<Loop> made;
  for (const Loop& loop : loops) {
    if (loop.size == 1) continue;
    if (!made.empty() && made.back().stride == loop.stride * loop.size) {
      made.back() = {made.back().size * loop.size, loop.stride};
    } else {
      made.push_back(loop);
    }
  }
  return made;
}

int64_t count_of(const std::vector<Loop>& loops) {
  int64_t count = 1;
  for (const Loop& loop : loops) count *= loop.size;
  return count;
}

int64_t offset_of(const std::vector<Loop>& loops, int64_t index) {
  int64_t at = 0;
  for (size_t d = loops.size(); d-- > 0;) {
    at += index % loops[d].size * loops[d].stride;
    index /= loops[d].size;
  }
  return at;
}

struct Folding {
  Op whole, pair;
  float first;

  explicit Folding(Op op)
      : whole(op),
        pair(op == Op::kRowSum   ? Op::kAdd
             : op == Op::kRowMax ? Op::kMaximum
                                 : Op::kMinimum),
        first(op == Op::kRowSum
                  ? 0.0f
                  : (op == Op::kRowMax ? -1.0f : 1.0f) * std::numeric_limits<float>::infinity()) {}

  // Combines n elements of `x` into `total`.
  void row(const float* x, int64_t n, double& total) const {
    float part = first;
    float* registers[] = {const_cast<float*>(x), &part};
    const Instruction code{.op = whole, .to = 1, .a = 0};
    for (int64_t at = 0; at < n; at += kRun, registers[0] += kRun) {
      vectors().run(&code, 1, registers, std::min(kRun, n - at));
      if (whole == Op::kRowSum) {
        total += part;
      } else if (std::isnan(part) || (whole == Op::kRowMax ? part > total : part < total)) {
        total = part;
      }
    }
  }

  // Combines x[i] into to[i].
  void lanes(const float* x, int64_t n, float* to) const {
    float* registers[] = {const_cast<float*>(x), to};
    const Instruction code{.op = pair, .to = 1, .a = 0, .b = 1};
    vectors().run(&code, 1, registers, n);
  }
};

}  // namespace

void Reduced::run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const mx::array& x = inputs[0];
  mx::array& out = outputs[0];
  allocate(out);
  const Folding fold(op_);
  float* to = out.data<float>();
  std::fill(to, to + out.size(), fold.first);
  if (x.size() == 0) return;
  std::vector<Loop> kept, gone;
  for (size_t i = 0; i < x.ndim(); ++i) {
    const bool is_gone = std::find(axes_.begin(), axes_.end(), static_cast<int>(i)) != axes_.end();
    (is_gone ? gone : kept).push_back({x.shape()[i], x.strides()[i]});
  }
  // The order of what is folded is free.
  std::stable_sort(gone.begin(), gone.end(),
                   [](const Loop& l, const Loop& r) { return l.stride > r.stride; });
  kept = merged(kept);
  gone = merged(gone);
  const float* from = x.data<float>();
  const int used = x.size() < kWorthSplitting ? 1 : threads();

  if (!kept.empty() && kept.back().stride == 1 && (gone.empty() || gone.back().stride != 1)) {
    const Loop inner = kept.back();
    kept.pop_back();
    const int64_t rows = count_of(kept), folds = count_of(gone);
    parallel_ranges(used, rows * inner.size, rows < used ? 64 : inner.size,
                    [&](int64_t first, int64_t last) {
                      while (first < last) {
                        const int64_t row = first / inner.size, start = first % inner.size;
                        const int64_t n = std::min(inner.size - start, last - first);
                        const float* base = from + offset_of(kept, row) + start;
                        for (int64_t k = 0; k < folds; ++k)
                          fold.lanes(base + offset_of(gone, k), n, to + first);
                        first += n;
                      }
                    });
    return;
  }
  Loop inner{1, 1};
  if (!gone.empty() && gone.back().stride == 1) {
    inner = gone.back();
    gone.pop_back();
  }
  const int64_t rows = count_of(kept), folds = count_of(gone);
  parallel_ranges(used, rows, 1, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const float* base = from + offset_of(kept, row);
      double total = fold.first;
      for (int64_t k = 0; k < folds; ++k) {
        fold.row(base + offset_of(gone, k), inner.size, total);
      }
      to[row] = static_cast<float>(total);
    }
  });
}

}  // namespace ort_mlx::cpu
