#include "layout.h"

#include <algorithm>
#include <numeric>

namespace ort_mlx::cpu {

namespace {

bool is_row_major(const Order& order) { return std::is_sorted(order.begin(), order.end()); }

// The dimensions by how far apart their elements lie. Those of 1 stay next to their neighbours.
Order by_stride(const mx::array& a) {
  Order order(a.ndim());
  std::iota(order.begin(), order.end(), 0);
  std::vector<int64_t> strides(a.strides().begin(), a.strides().end());
  for (size_t d = 0; d < a.ndim(); ++d) {
    if (a.shape()[d] == 1 && d > 0) strides[d] = strides[d - 1];
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int l, int r) { return strides[l] > strides[r]; });
  return order;
}

// Whether the elements lie in this order, maybe with gaps, as those of a slice do.
bool follows(const mx::array& a, const Order& order) {
  int64_t reach = 0;
  for (size_t i = order.size(); i-- > 0;) {
    const int dim = order[i];
    if (a.shape(dim) == 1) continue;
    if (a.strides()[dim] <= reach) return false;
    reach += a.strides()[dim] * (a.shape(dim) - 1);
  }
  return true;
}

}  // namespace

bool has_order(const mx::array& a, const Order& order) {
  int64_t expected = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const int dim = order[i];
    if (a.shape(dim) != 1 && a.strides()[dim] != expected) return false;
    expected *= a.shape(dim);
  }
  return true;
}

Order order_of(const std::vector<mx::array>& inputs, const mx::Shape& shape) {
  Order order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  for (const auto& a : inputs) {
    if (a.shape() != shape) continue;
    if (a.flags().row_contiguous) return order;
    const Order sorted = by_stride(a);
    if (has_order(a, sorted)) return sorted;
  }
  for (const auto& a : inputs) {
    if (a.shape() != shape) continue;
    const Order sorted = by_stride(a);
    if (follows(a, sorted)) return sorted;
  }
  return order;
}

void allocate(mx::array& out) {
  if (out.data_shared_ptr() == nullptr) out.set_data(mx::allocator::malloc(out.nbytes()));
}

void allocate(mx::array& out, const Order& order) {
  if (is_row_major(order)) return allocate(out);
  auto memory = mx::allocator::malloc(out.nbytes());
  mx::Strides strides(order.size());
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = stride;
    stride *= out.shape(order[i]);
  }
  out.set_data(std::move(memory), out.size(), strides, mx::array::Flags{true, false, false});
  // Dimensions of 1 may make it plain after all.
  auto flags = out.flags();
  int64_t rows = 1, columns = 1;
  flags.row_contiguous = flags.col_contiguous = true;
  for (size_t i = 0; i < out.ndim(); ++i) {
    const size_t j = out.ndim() - 1 - i;
    if (out.shape()[i] != 1 && strides[i] != columns) flags.col_contiguous = false;
    if (out.shape()[j] != 1 && strides[j] != rows) flags.row_contiguous = false;
    columns *= out.shape()[i];
    rows *= out.shape()[j];
  }
  if (flags.row_contiguous || flags.col_contiguous) {
    const mx::array same = out;
    out.copy_shared_buffer(same, strides, flags, out.size());
  }
}

int64_t Nest::total() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

Nest nest_of(const mx::Strides& strides, const mx::Shape& shape, const Order& order) {
  Nest nest;
  const size_t missing = shape.size() - strides.size();
  for (int dim : order) {
    const int64_t size = shape[dim];
    if (size == 1) continue;
    const bool is_absent = static_cast<size_t>(dim) < missing;
    const int64_t stride = is_absent ? 0 : strides[dim - missing];
    if (!nest.sizes.empty() && nest.strides.back() == stride * size) {
      nest.sizes.back() *= size;
      nest.strides.back() = stride;
    } else {
      nest.sizes.push_back(size);
      nest.strides.push_back(stride);
    }
  }
  if (nest.sizes.empty()) {
    nest.sizes = {1};
    nest.strides = {0};
  }
  return nest;
}

}  // namespace ort_mlx::cpu
