#include "regrow.h"

#include <mlx/ops.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>

namespace ort_mlx {

namespace {

using Inputs = std::vector<mx::array>;
using Rebuild = std::function<std::vector<mx::array>(const Inputs&, int64_t)>;
using Primitives = std::vector<mx::Primitive*>;
using Make = Rebuild (*)(const LineFit&, const Primitives&, const std::vector<mx::Dtype>&);

// MLX keeps the types of its primitives to itself, so they are told apart by name.
template <class P>
const P& as(const mx::Primitive* primitive) {
  return static_cast<const P&>(*primitive);
}

// Lines through one part of the state of each primitive.
template <class P, class Part>
Lines lines_of(const LineFit& fit, const Primitives& at, Part part) {
  std::vector<mx::Shape> shapes;
  for (const auto* p : at) shapes.push_back(part(as<P>(p).state()));
  return fit.lines(shapes);
}

// What must be the same in all of them.
template <class P, class Part>
auto same_of(const Primitives& at, Part part) {
  const auto first = part(as<P>(at[0]).state());
  for (const auto* p : at) {
    if (part(as<P>(p).state()) != first) {
      throw std::runtime_error("not a progression: a parameter of " + std::string(p->name()) +
                               " changes");
    }
  }
  return first;
}

template <size_t I>
constexpr auto get = [](const auto& state) { return std::get<I>(state); };
constexpr auto whole = [](const auto& state) { return state; };

Rebuild reshape(const LineFit& fit, const Primitives& at, const std::vector<mx::Dtype>&) {
  return [shape = lines_of<mx::Reshape>(fit, at, whole), s = at[0]->stream()](
             const Inputs& in, int64_t step) -> Inputs {
    return {mx::reshape(in[0], shape_at(shape, step), s)};
  };
}

Rebuild unflatten(const LineFit& fit, const Primitives& at, const std::vector<mx::Dtype>&) {
  return
      [shape = lines_of<mx::Unflatten>(fit, at, get<1>), axis = same_of<mx::Unflatten>(at, get<0>),
       s = at[0]->stream()](const Inputs& in, int64_t step) -> Inputs {
        return {mx::unflatten(in[0], axis, shape_at(shape, step), s)};
      };
}

Rebuild broadcast(const LineFit& fit, const Primitives& at, const std::vector<mx::Dtype>&) {
  return [shape = lines_of<mx::Broadcast>(fit, at, whole), s = at[0]->stream()](
             const Inputs& in, int64_t step) -> Inputs {
    return {mx::broadcast_to(in[0], shape_at(shape, step), s)};
  };
}

void require_forward(const mx::Shape& strides) {
  for (auto stride : strides) {
    if (stride < 1) throw std::runtime_error("not a progression: a slice runs backwards");
  }
}

Rebuild slice(const LineFit& fit, const Primitives& at, const std::vector<mx::Dtype>&) {
  const auto strides = same_of<mx::Slice>(at, get<2>);
  require_forward(strides);
  return [start = lines_of<mx::Slice>(fit, at, get<0>), stop = lines_of<mx::Slice>(fit, at, get<1>),
          strides, s = at[0]->stream()](const Inputs& in, int64_t step) -> Inputs {
    return {mx::slice(in[0], shape_at(start, step), shape_at(stop, step), strides, s)};
  };
}

Rebuild gather(const LineFit& fit, const Primitives& at, const std::vector<mx::Dtype>&) {
  return [sizes = lines_of<mx::Gather>(fit, at, get<1>), axes = same_of<mx::Gather>(at, get<0>),
          s = at[0]->stream()](const Inputs& in, int64_t step) -> Inputs {
    return {mx::gather(in[0], Inputs(in.begin() + 1, in.end()), axes, shape_at(sizes, step), s)};
  };
}

Rebuild dynamic_slice(const LineFit& fit, const Primitives& at, const std::vector<mx::Dtype>&) {
  return [sizes = lines_of<mx::DynamicSlice>(fit, at, get<1>),
          axes = same_of<mx::DynamicSlice>(at, get<0>),
          s = at[0]->stream()](const Inputs& in, int64_t step) -> Inputs {
    return {mx::slice(in[0], in[1], axes, shape_at(sizes, step), s)};
  };
}

Rebuild split(const LineFit& fit, const Primitives& at, const std::vector<mx::Dtype>&) {
  return [indices = lines_of<mx::Split>(fit, at, get<0>), axis = same_of<mx::Split>(at, get<1>),
          s = at[0]->stream()](const Inputs& in, int64_t step) -> Inputs {
    return mx::split(in[0], shape_at(indices, step), axis, s);
  };
}

Rebuild pad(const LineFit& fit, const Primitives& at, const std::vector<mx::Dtype>&) {
  return [low = lines_of<mx::Pad>(fit, at, get<1>), high = lines_of<mx::Pad>(fit, at, get<2>),
          axes = same_of<mx::Pad>(at, get<0>),
          s = at[0]->stream()](const Inputs& in, int64_t step) -> Inputs {
    return {mx::pad(in[0], axes, shape_at(low, step), shape_at(high, step), in[1], "constant", s)};
  };
}

Rebuild arange(const LineFit& fit, const Primitives& at, const std::vector<mx::Dtype>& dtypes) {
  auto whole_number = [&](auto part) {
    std::vector<int64_t> values;
    for (const auto* p : at) {
      const double value = part(as<mx::Arange>(p).state());
      if (value != std::floor(value)) {
        throw std::runtime_error("not a progression: a range is not of whole numbers");
      }
      values.push_back(static_cast<int64_t>(value));
    }
    return fit.line(values);
  };
  return [start = whole_number(get<0>), stop = whole_number(get<1>), by = whole_number(get<2>),
          dtype = dtypes[0], s = at[0]->stream()](const Inputs&, int64_t step) -> Inputs {
    auto at_step = [step](const Line& line) { return static_cast<double>(line.at(step)); };
    return {mx::arange(at_step(start), at_step(stop), at_step(by), dtype, s)};
  };
}

const std::unordered_map<std::string_view, Make>& table() {
  static const auto* entries = new std::unordered_map<std::string_view, Make>{
      {"Reshape", reshape},     {"Unflatten", unflatten},
      {"Broadcast", broadcast}, {"Slice", slice},
      {"Gather", gather},       {"DynamicSlice", dynamic_slice},
      {"Split", split},         {"Pad", pad},
      {"Arange", arange},
  };
  return *entries;
}

template <class T>
void fit_elements(const LineFit& fit, const std::vector<mx::array>& values, mx::array& slope) {
  for (size_t i = 0; i < slope.size(); ++i) {
    std::vector<int64_t> seen;
    for (const auto& value : values) {
      const T element = value.data<T>()[i];
      if (element != static_cast<T>(static_cast<int64_t>(element))) {
        throw std::runtime_error("not a progression: a constant is not of whole numbers");
      }
      seen.push_back(static_cast<int64_t>(element));
    }
    slope.data<T>()[i] = static_cast<T>(fit.line(seen).slope);
  }
}

}  // namespace

Line LineFit::line(const std::vector<int64_t>& values) const {
  const int64_t rise = values[1] - values[0];
  const Line line{values[0], rise / steps_[1]};
  for (size_t i = 0; i < values.size(); ++i) {
    if (line.at(steps_[i]) != values[i]) {
      throw std::runtime_error("not a progression: a size is not linear in the step");
    }
  }
  return line;
}

Lines LineFit::lines(const std::vector<mx::Shape>& shapes) const {
  Lines made;
  for (size_t axis = 0; axis < shapes[0].size(); ++axis) {
    std::vector<int64_t> values;
    for (const auto& shape : shapes) {
      if (shape.size() != shapes[0].size()) {
        throw std::runtime_error("not a progression: a rank changes");
      }
      values.push_back(shape[axis]);
    }
    made.push_back(line(values));
  }
  return made;
}

GrowingConstant LineFit::constant(const std::vector<mx::array>& values) const {
  const mx::array& base = values[0];
  mx::array slope(mx::allocator::malloc(base.nbytes()), base.shape(), base.dtype());
  switch (base.dtype()) {
    case mx::Dtype::Val::int32:
      fit_elements<int32_t>(*this, values, slope);
      break;
    case mx::Dtype::Val::int64:
      fit_elements<int64_t>(*this, values, slope);
      break;
    case mx::Dtype::Val::float32:
      fit_elements<float>(*this, values, slope);
      break;
    default:
      throw std::runtime_error("not a progression: a constant changes");
  }
  return {0, base, slope};
}

Rebuild regrow(const LineFit& fit, const Primitives& at, const std::vector<mx::Dtype>& dtypes) {
  const auto entry = table().find(at[0]->name());
  if (entry == table().end()) {
    throw std::runtime_error("not a progression: a parameter of " + std::string(at[0]->name()) +
                             " changes");
  }
  return entry->second(fit, at, dtypes);
}

}  // namespace ort_mlx
