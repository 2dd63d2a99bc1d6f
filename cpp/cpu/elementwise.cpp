#include "elementwise.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "parallel.h"

namespace ort_mlx::cpu {

namespace {

constexpr int64_t kBlock = 1024;
constexpr double kWorthSplitting = 1 << 17;  // simple operations: about 20 us
constexpr uint16_t kNowhere = std::numeric_limits<uint16_t>::max();

// An input as the blocks meet it.
struct Operand {
  enum class Way { kInPlace, kScalar, kStrided };

  Way way;
  bool is_bool;
  bool is_row_scalar;  // one element for each row
  const char* data;
  Nest nest;

  Operand(const mx::array& a, const mx::Shape& shape, const Order& order, bool is_row_scalar)
      : is_bool(a.dtype() == mx::bool_),
        is_row_scalar(is_row_scalar),
        data(a.data<char>()),
        nest(nest_of(a.strides(), shape, order)) {
    const bool is_flat = nest.sizes.size() == 1;
    if (is_flat && (nest.strides[0] == 0 || nest.sizes[0] == 1)) {
      way = Way::kScalar;
    } else if (is_flat && nest.strides[0] == 1 && !is_bool) {
      way = Way::kInPlace;
    } else {
      way = Way::kStrided;
    }
  }

  void copy_run(float* to, int64_t at, int64_t stride, int64_t n) const {
    const Vectors& v = vectors();
    if (is_bool) {
      v.widen_bytes(to, reinterpret_cast<const uint8_t*>(data) + at, stride, n);
      return;
    }
    const float* from = reinterpret_cast<const float*>(data) + at;
    if (stride == 1) {
      std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
    } else if (stride == 0) {
      v.fill(to, *from, n);
    } else {
      v.gather(to, from, stride, n);
    }
  }

  // Elements [first, first + n) of the walk, to `to`.
  void load(float* to, int64_t first, int64_t n) const {
    const size_t last = nest.sizes.size() - 1;
    if (last == 0) return copy_run(to, first * nest.strides[0], nest.strides[0], n);
    const int64_t inner = nest.sizes[last];
    int64_t outer = first / inner, offset = first % inner;
    while (n > 0) {
      int64_t at = offset * nest.strides[last], rest = outer;
      for (size_t d = last; d-- > 0;) {
        at += rest % nest.sizes[d] * nest.strides[d];
        rest /= nest.sizes[d];
      }
      const int64_t run = std::min(n, inner - offset);
      copy_run(to, at, nest.strides[last], run);
      to += run;
      n -= run;
      offset = 0;
      ++outer;
    }
  }
};

struct Result {
  char* data;
  bool is_bool;
  bool is_row_scalar;
};

}  // namespace

// Scratch blocks are shared by registers that are not alive together. Inputs keep theirs: what was
// loaded once stays.
Elementwise::Elementwise(mx::Stream stream, int threads, mx::Shape shape, Expression expression)
    : CpuKernel(stream, threads), shape_(std::move(shape)), expression_(std::move(expression)) {
  const auto& code = expression_.code;
  const size_t inputs = expression_.inputs.size();
  last_reads_.assign(expression_.register_count, 0);
  for (size_t i = 0; i < code.size(); ++i) {
    for (uint16_t r : {code[i].a, code[i].b, code[i].c}) last_reads_[r] = i;
  }
  for (uint16_t r : expression_.results) {
    last_reads_[r] = code.size();
    for (size_t i = 0; i < code.size(); ++i) {
      if (code[i].to == r) written_.push_back(i);
    }
  }
  places_.assign(expression_.register_count, kNowhere);
  for (size_t r = 0; r < inputs; ++r) places_[r] = place_count_++;
  std::vector<uint16_t> free;
  for (size_t i = 0; i < code.size(); ++i) {
    if (free.empty()) free.push_back(place_count_++);
    places_[code[i].to] = free.back();
    free.pop_back();
    for (uint16_t r : {code[i].a, code[i].b, code[i].c}) {
      if (r < inputs || last_reads_[r] != i || places_[r] == kNowhere) continue;
      if (std::find(free.begin(), free.end(), places_[r]) == free.end()) free.push_back(places_[r]);
    }
  }
}

// An output may take over the memory of an input that is not read after the output is written.
bool Elementwise::can_take(size_t input, size_t output) const {
  return expression_.outputs[output] != mx::bool_ && last_reads_[input] <= written_[output];
}

void Elementwise::run(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const Expression& e = expression_;
  const bool has_rows = e.has_rows;
  const size_t whole = static_cast<size_t>(e.whole);
  const mx::Shape shape = e.whole < 0              ? shape_
                          : whole < outputs.size() ? outputs[whole].shape()
                                                   : inputs[whole - outputs.size()].shape();
  Order order = order_of(inputs, shape);
  mx::Shape row_shape = shape;
  if (has_rows) {
    // Rows have to be the innermost; the other dimensions may lie in any order.
    row_shape.back() = 1;
    const int last = static_cast<int>(shape.size()) - 1;
    order.erase(std::find(order.begin(), order.end(), last));
    order.push_back(last);
  }
  std::vector<Operand> operands;
  for (const auto& a : inputs) {
    const bool is_row_scalar = has_rows && a.shape() != shape;
    operands.emplace_back(a, is_row_scalar ? row_shape : shape, order, is_row_scalar);
  }
  std::vector<Result> results;
  std::vector<bool> is_taken(inputs.size());
  for (size_t k = 0; k < outputs.size(); ++k) {
    mx::array& out = outputs[k];
    const bool is_row_scalar = has_rows && out.shape() != shape;
    size_t donor = is_row_scalar || out.data_shared_ptr() != nullptr ? inputs.size() : 0;
    while (donor < inputs.size() && (is_taken[donor] || operands[donor].is_row_scalar ||
                                     operands[donor].way != Operand::Way::kInPlace ||
                                     !inputs[donor].is_donatable() || !can_take(donor, k))) {
      ++donor;
    }
    if (donor < inputs.size()) {
      is_taken[donor] = true;
      out.copy_shared_buffer(inputs[donor]);
    } else {
      allocate(out, order);
    }
    results.push_back({out.data<char>(), out.dtype() == mx::bool_, is_row_scalar});
  }
  int64_t count = 1;
  for (int d : shape) count *= d;
  if (count == 0) return;

  const int64_t block = has_rows ? shape.back() : kBlock;
  const int used = static_cast<double>(count) * e.cost < kWorthSplitting ? 1 : threads();
  const Vectors& v = vectors();
  parallel_ranges(used, count, block, [&](int64_t begin, int64_t end) {
    const int64_t room = std::min(block, end - begin);
    const auto scratch = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(place_count_) *
                                                                 static_cast<size_t>(room));
    std::vector<float*> registers(e.register_count);
    for (size_t r = 0; r < registers.size(); ++r) registers[r] = scratch.get() + places_[r] * room;
    for (size_t k = 0; k < operands.size(); ++k) {
      if (operands[k].way != Operand::Way::kScalar) continue;
      operands[k].copy_run(registers[k], 0, 0, operands[k].is_row_scalar ? 1 : room);
    }
    for (int64_t first = begin; first < end; first += block) {
      const int64_t n = std::min(block, end - first), row = first / block;
      for (size_t k = 0; k < operands.size(); ++k) {
        const Operand& operand = operands[k];
        const int64_t at = operand.is_row_scalar ? row : first;
        if (operand.way == Operand::Way::kInPlace) {
          registers[k] = const_cast<float*>(reinterpret_cast<const float*>(operand.data)) + at;
        } else if (operand.way == Operand::Way::kStrided) {
          operand.load(registers[k], at, operand.is_row_scalar ? 1 : n);
        }
      }
      for (size_t k = 0; k < results.size(); ++k) {
        if (results[k].is_bool) continue;
        const int64_t at = results[k].is_row_scalar ? row : first;
        registers[e.results[k]] = reinterpret_cast<float*>(results[k].data) + at;
      }
      v.run(e.code.data(), static_cast<int64_t>(e.code.size()), registers.data(), n);
      for (size_t k = 0; k < results.size(); ++k) {
        if (!results[k].is_bool) continue;
        const int64_t at = results[k].is_row_scalar ? row : first;
        v.narrow_bytes(reinterpret_cast<uint8_t*>(results[k].data) + at, registers[e.results[k]],
                       results[k].is_row_scalar ? 1 : n);
      }
    }
  });
}

}  // namespace ort_mlx::cpu
