#include "lowering.h"

#include <functional>
#include <stdexcept>
#include <string_view>
#include <unordered_map>

#include "blas.h"
#include "conv.h"
#include "matmul.h"

namespace ort_mlx::cpu {

namespace {

using Lower = std::shared_ptr<mx::Primitive> (*)(const mx::array& node, int threads);

// MLX keeps the types of its primitives to itself, so they are told apart by name.
template <class P>
const P& primitive_of(const mx::array& node) {
  return static_cast<const P&>(node.primitive());
}

std::shared_ptr<mx::Primitive> lower_matmul(const mx::array& node, int threads) {
  return std::make_shared<BlasMatmul>(node.primitive().stream(), threads, 1.0f, 0.0f);
}

std::shared_ptr<mx::Primitive> lower_addmm(const mx::array& node, int threads) {
  const auto [alpha, beta] = primitive_of<mx::AddMM>(node).state();
  return std::make_shared<BlasMatmul>(node.primitive().stream(), threads, alpha, beta);
}

std::shared_ptr<mx::Primitive> lower_convolution(const mx::array& node, int threads) {
  const auto [strides, before, after, dilation, input_dilation, groups, flip] =
      primitive_of<mx::Convolution>(node).state();
  const mx::array& x = node.inputs()[0];
  if (flip || x.ndim() < 3 || x.ndim() > 4) return nullptr;
  for (int d : input_dilation) {
    if (d != 1) return nullptr;
  }
  auto pair = [](const std::vector<int>& v, int absent) {
    return v.size() == 2 ? std::array{v[0], v[1]} : std::array{absent, v[0]};
  };
  const Window window{pair(strides, 1), pair(dilation, 1), pair(before, 0)};
  return std::make_shared<BlasConvolution>(node.primitive().stream(), threads, window, groups);
}

const std::unordered_map<std::string_view, Lower>& table() {
  static const auto* entries = new std::unordered_map<std::string_view, Lower>{
      {"Matmul", lower_matmul},
      {"AddMM", lower_addmm},
      {"Convolution", lower_convolution},
  };
  return *entries;
}

}  // namespace

void CpuPrimitive::eval_gpu(const std::vector<mx::array>&, mx::array&) {
  throw std::logic_error("ort_mlx: a CPU primitive was given to a GPU");
}

std::shared_ptr<mx::Primitive> lower(const mx::array& node, int threads) {
  const auto& own = node.primitive_ptr();
  if (own->stream().device != mx::Device::cpu || node.dtype() != mx::float32 || !blas_is_loaded()) {
    return own;
  }
  const auto entry = table().find(own->name());
  if (entry == table().end()) return own;
  auto better = entry->second(node, threads);
  return better == nullptr ? own : better;
}

}  // namespace ort_mlx::cpu
