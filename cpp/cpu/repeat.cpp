#include "repeat.h"

#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <cstring>
#include <memory>
#include <utility>

#include "../closure.h"
#include "../stopping.h"
#include "kernel.h"
#include "layout.h"
#include "views.h"

namespace ort_mlx {

namespace {

using Arrays = std::vector<mx::array>;

// How many of the inputs and outputs are what. Inputs of the node: carried values, sources, and
// what the body reads from outside.
struct Form {
  int64_t trips;
  size_t carried;
  size_t sources;
  bool is_counted;
  bool is_conditional;
};

class Repeat : public cpu::CpuKernel {
 public:
  Repeat(mx::Stream stream, int threads, Form form, std::shared_ptr<const Closure> body)
      : CpuKernel(stream, threads), form_(form), body_(std::move(body)) {}
  const char* name() const override { return "Repeat"; }

  void run(const Arrays& inputs, Arrays& outputs) override {
    const size_t flags = form_.is_conditional ? 1 : 0;
    for (size_t i = form_.carried; i < outputs.size(); ++i) cpu::allocate(outputs[i]);
    Arrays state(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(form_.carried));
    std::vector<void*> targets(body_->output_count());
    for (int64_t trip = 0; trip < form_.trips; ++trip) {
      check_stopped();
      for (size_t i = form_.carried; i < outputs.size(); ++i) {
        targets[flags + i] = row_of(outputs[i], trip);
      }
      Arrays made = body_->replay(body_inputs(inputs, std::move(state), trip), 0, targets);
      for (size_t i = form_.carried; i < outputs.size(); ++i)
        store(made[flags + i], targets[flags + i]);
      state.clear();
      for (size_t i = 0; i < form_.carried; ++i) state.push_back(std::move(made[flags + i]));
      if (form_.is_conditional && !*made[0].data<bool>()) break;
    }
    for (size_t i = 0; i < form_.carried; ++i) keep(state[i], outputs, i);
  }

 private:
  static char* row_of(mx::array& stacked, int64_t trip) {
    if (stacked.size() == 0) return nullptr;
    return stacked.data<char>() + trip * static_cast<int64_t>(stacked.nbytes() / stacked.shape(0));
  }

  // A carried value may lie in a row that was stacked, which it must not outlive.
  void keep(const mx::array& value, Arrays& outputs, size_t i) const {
    for (size_t k = form_.carried; k < outputs.size(); ++k) {
      const char* first = outputs[k].data<char>();
      const char* at = value.data<char>();
      if (at < first || at >= first + outputs[k].nbytes()) continue;
      cpu::allocate(outputs[i]);
      return store(value, outputs[i].data<char>());
    }
    outputs[i].copy_shared_buffer(value);
  }

  static void store(const mx::array& row, void* target) {
    if (target == nullptr || row.data<char>() == target) return;
    std::memcpy(target, row.data<char>(), row.nbytes());
  }

  Arrays body_inputs(const Arrays& inputs, Arrays state, int64_t trip) const {
    Arrays values;
    values.reserve(body_->input_count());
    if (form_.is_counted) values.emplace_back(trip, mx::int64);
    for (auto& value : state) values.push_back(std::move(value));
    const size_t first_outside = form_.carried + form_.sources;
    for (size_t i = form_.carried; i < first_outside; ++i) {
      const mx::array& source = inputs[i];
      mx::array row(mx::Shape(source.shape().begin() + 1, source.shape().end()), source.dtype(),
                    nullptr, {});
      cpu::view(source, row, mx::Strides(source.strides().begin() + 1, source.strides().end()),
                trip * source.strides()[0]);
      row.set_status(mx::array::Status::available);
      values.push_back(std::move(row));
    }
    values.insert(values.end(), inputs.begin() + static_cast<std::ptrdiff_t>(first_outside),
                  inputs.end());
    return values;
  }

  Form form_;
  std::shared_ptr<const Closure> body_;
};

}  // namespace

Arrays repeat(const Body& body, int64_t trips, Arrays carried, const Arrays& sources, int threads,
              bool is_traced) {
  const Form form{trips, carried.size(), sources.size(), body.is_counted, body.is_conditional};
  Arrays outputs;
  for (const auto& made : body.outputs) outputs.push_back(mx::contiguous(made));
  auto [closure, outside] = Closure::capture_body(body.placeholders, outputs, threads);

  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  for (size_t i = form.is_conditional ? 1 : 0; i < outputs.size(); ++i) {
    mx::Shape shape = outputs[i].shape();
    if (shapes.size() >= form.carried) shape.insert(shape.begin(), static_cast<int>(trips));
    shapes.push_back(std::move(shape));
    dtypes.push_back(outputs[i].dtype());
  }
  Arrays inputs = std::move(carried);
  inputs.insert(inputs.end(), sources.begin(), sources.end());
  inputs.insert(inputs.end(), outside.begin(), outside.end());
  auto kernel = std::make_shared<Repeat>(mx::default_stream(mx::Device::cpu), threads, form,
                                         std::move(closure));
  if (is_traced) return mx::array::make_arrays(shapes, dtypes, kernel, inputs);

  mx::eval(inputs);
  Arrays made;
  for (size_t i = 0; i < shapes.size(); ++i) {
    made.emplace_back(shapes[i], dtypes[i], nullptr, Arrays{});
  }
  kernel->run(inputs, made);
  for (auto& a : made) a.set_status(mx::array::Status::available);
  return made;
}

}  // namespace ort_mlx
