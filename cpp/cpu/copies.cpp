#include "copies.h"

#include <algorithm>
#include <cstring>

#include "layout.h"
#include "parallel.h"
#include "views.h"

namespace ort_mlx::cpu {

namespace {

constexpr int64_t kBytesWorthSplitting = 1 << 18;
constexpr int64_t kTile = 16;

// One level of a copy's loop nest.
struct Loop {
  int64_t size, from, to;  // strides in elements
};

// The loops, outermost first in the order of `to`, merged where both sides allow it.
std::vector<Loop> loops_of(const mx::array& from, const mx::array& to) {
  std::vector<Loop> all;
  for (size_t i = 0; i < to.ndim(); ++i) {
    if (to.shape()[i] != 1) all.push_back({to.shape()[i], from.strides()[i], to.strides()[i]});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Loop& l, const Loop& r) { return l.to > r.to; });
  std::vector<Loop> merged;
  for (const Loop& loop : all) {
    if (!merged.empty() && merged.back().to == loop.to * loop.size &&
        merged.back().from == loop.from * loop.size) {
      merged.back() = {merged.back().size * loop.size, loop.from, loop.to};
    } else {
      merged.push_back(loop);
    }
  }
  if (merged.empty()) merged.push_back({1, 1, 1});
  return merged;
}

template <class T>
void copy_line(const T* from, T* to, const Loop& loop) {
  if (loop.from == 1 && loop.to == 1) {
    std::memcpy(to, from, static_cast<size_t>(loop.size) * sizeof(T));
  } else if (loop.from == 0 && loop.to == 1) {
    std::fill(to, to + loop.size, *from);
  } else {
    for (int64_t i = 0; i < loop.size; ++i) to[i * loop.to] = from[i * loop.from];
  }
}

// Two loops in tiles: each side runs along its own memory in one of them.
template <class T>
void copy_plane(const T* from, T* to, const Loop& outer, const Loop& inner) {
  for (int64_t r = 0; r < outer.size; r += kTile) {
    const int64_t rows = std::min(kTile, outer.size - r);
    for (int64_t c = 0; c < inner.size; c += kTile) {
      const int64_t columns = std::min(kTile, inner.size - c);
      for (int64_t i = 0; i < rows; ++i) {
        const T* source = from + (r + i) * outer.from + c * inner.from;
        T* target = to + (r + i) * outer.to + c * inner.to;
        for (int64_t j = 0; j < columns; ++j) target[j * inner.to] = source[j * inner.from];
      }
    }
  }
}

template <class T>
void copy_typed(const T* from, T* to, std::vector<Loop> loops, int threads) {
  const Loop inner = loops.back();
  loops.pop_back();
  // The loop along which the source is dense is the partner in tiles.
  Loop partner{1, 0, 0};
  if (inner.from != 1 && inner.from != 0) {
    auto best = std::find_if(loops.begin(), loops.end(), [](const Loop& l) { return l.from == 1; });
    if (best != loops.end()) {
      partner = *best;
      loops.erase(best);
    }
  }
  int64_t count = 1;
  for (const Loop& loop : loops) count *= loop.size;
  const int64_t bytes = count * partner.size * inner.size * static_cast<int64_t>(sizeof(T));
  if (bytes < kBytesWorthSplitting) threads = 1;
  auto copy_at = [&](int64_t index, const Loop& outer, int64_t from_at, int64_t to_at) {
    for (size_t d = loops.size(); d-- > 0;) {
      const int64_t i = index % loops[d].size;
      from_at += i * loops[d].from;
      to_at += i * loops[d].to;
      index /= loops[d].size;
    }
    if (outer.size == 1) {
      copy_line(from + from_at, to + to_at, inner);
    } else {
      copy_plane(from + from_at, to + to_at, outer, inner);
    }
  };
  if (count < threads && partner.size > 1) {
    parallel_ranges(threads, partner.size, kTile, [&](int64_t first, int64_t last) {
      const Loop part{last - first, partner.from, partner.to};
      for (int64_t i = 0; i < count; ++i) copy_at(i, part, first * part.from, first * part.to);
    });
    return;
  }
  parallel_ranges(threads, count, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) copy_at(i, partner, 0, 0);
  });
}

template <class T>
void copy_as(const mx::array& from, mx::array& to, int threads) {
  copy_typed(from.data<T>(), to.data<T>(), loops_of(from, to), threads);
}

// The part of `whole` that starts at `starts` and has the shape of `like`.
mx::array window_of(mx::array& whole, const mx::array& like, const mx::Shape& starts) {
  mx::array window(like.shape(), whole.dtype(), nullptr, {});
  int64_t offset = 0;
  for (size_t i = 0; i < starts.size(); ++i) offset += starts[i] * whole.strides()[i];
  view(whole, window, whole.strides(), offset);
  return window;
}

Order own_order(const mx::array& a) { return order_of({a}, a.shape()); }

template <class Index>
void take_rows(const char* x, int64_t rows, int64_t row_bytes, const Index* at, int64_t count,
               char* to, int threads) {
  if (count * row_bytes < kBytesWorthSplitting) threads = 1;
  parallel_ranges(threads, count, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = at[i] < 0 ? static_cast<int64_t>(at[i]) + rows : at[i];
      std::memcpy(to + i * row_bytes, x + row * row_bytes, static_cast<size_t>(row_bytes));
    }
  });
}

}  // namespace

void copy(const mx::array& from, mx::array& to, int threads) {
  if (to.size() == 0) return;
  switch (to.itemsize()) {
    case 1:
      return copy_as<uint8_t>(from, to, threads);
    case 2:
      return copy_as<uint16_t>(from, to, threads);
    case 4:
      return copy_as<uint32_t>(from, to, threads);
    default:
      return copy_as<uint64_t>(from, to, threads);
  }
}

mx::array row_major(const mx::array& a, int threads) {
  if (a.flags().row_contiguous) return a;
  mx::array made(a.shape(), a.dtype(), nullptr, {});
  made.set_data(mx::allocator::malloc(made.nbytes()));
  copy(a, made, threads);
  return made;
}

void Contiguous::run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  if (inputs[0].flags().row_contiguous) {
    outputs[0].copy_shared_buffer(inputs[0]);
  } else {
    allocate(outputs[0]);
    copy(inputs[0], outputs[0], threads());
  }
}

bool Contiguous::reads(const std::vector<mx::array>& inputs) const {
  return !inputs[0].flags().row_contiguous;
}

void Concatenated::run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  mx::array& out = outputs[0];
  allocate(out, own_order(inputs[0]));
  if (out.size() == 0) return;
  mx::Shape starts(out.ndim(), 0);
  for (const auto& in : inputs) {
    if (in.size() == 0) continue;
    mx::array window = window_of(out, in, starts);
    copy(in, window, threads());
    starts[axis_] += in.shape(axis_);
  }
}

void Padded::run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  mx::array& out = outputs[0];
  allocate(out, own_order(inputs[0]));
  if (out.size() == 0) return;
  mx::array background(out.shape(), out.dtype(), nullptr, {});
  view(inputs[1], background, mx::Strides(out.ndim(), 0));
  copy(background, out, threads());
  if (inputs[0].size() == 0) return;
  mx::array window = window_of(out, inputs[0], low_);
  copy(inputs[0], window, threads());
}

void RowsTaken::run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  mx::array& out = outputs[0];
  allocate(out);
  if (out.size() == 0) return;
  const mx::array x = row_major(inputs[0], threads()), at = row_major(inputs[1], threads());
  const int64_t rows = x.shape(0), count = static_cast<int64_t>(at.size());
  const int64_t row_bytes = static_cast<int64_t>(x.nbytes()) / rows;
  if (at.dtype() == mx::int64) {
    take_rows(x.data<char>(), rows, row_bytes, at.data<int64_t>(), count, out.data<char>(),
              threads());
  } else {
    take_rows(x.data<char>(), rows, row_bytes, at.data<int32_t>(), count, out.data<char>(),
              threads());
  }
}

}  // namespace ort_mlx::cpu
