#include "kernel.h"

#include <mlx/ops.h>
#include <mlx/transforms.h>
#include <nanobind/stl/vector.h>

#include "boundary.h"

namespace ort_mlx {

Kernel::Kernel(const Runtime& ort, std::shared_ptr<StreamLease> lease, nb::object plan,
               PlanFacts facts)
    : OrtNodeComputeInfo{},
      ort_(ort),
      lease_(std::move(lease)),
      plan_(std::move(plan)),
      facts_(std::move(facts)) {
  ort_version_supported = kDeclaredOrt;
  CreateState = [](OrtNodeComputeInfo* self, OrtNodeComputeContext*,
                   void** state) noexcept -> OrtStatus* {
    return at_boundary(static_cast<Kernel*>(self)->ort_, [&] { *state = self; });
  };
  Compute = [](OrtNodeComputeInfo* self, void*, OrtKernelContext* context) noexcept -> OrtStatus* {
    auto* kernel = static_cast<Kernel*>(self);
    return at_boundary(kernel->ort_, [&] { kernel->compute(context); });
  };
  ReleaseState = [](OrtNodeComputeInfo*, void*) noexcept { at_void_boundary([] {}); };
}

TensorView Kernel::input(OrtKernelContext* context, size_t index) const {
  const OrtValue* value = nullptr;
  ort_.check(api::KernelContext_GetInput, context, index, &value);
  if (value == nullptr) {
    throw Error(kInvalidArgument, "ort_mlx: input " + std::to_string(index) + " is missing");
  }
  return view_of(ort_, value);
}

void Kernel::bind_constants(OrtKernelContext* context) {
  if (constants_are_bound_) return;
  with_python([&] {
    nb::list arrays;
    for (size_t index : facts_.constant_inputs) {
      arrays.append(nb::cast(wrap(input(context, index), lease_->stream().device)));
    }
    plan_.get().attr("bind_constants")(arrays);
  });
  constants_are_bound_ = true;
}

std::vector<mx::array> Kernel::translate(OrtKernelContext* context) {
  return with_python([&] {
    nb::list arrays;
    for (size_t index : facts_.array_inputs) {
      arrays.append(nb::cast(wrap(input(context, index), lease_->stream().device)));
    }
    nb::list host_values;
    for (size_t index : facts_.host_inputs) {
      const TensorView view = input(context, index);
      mx::array copied = copy_in(view);
      nb::list dims;
      for (size_t i = 0; i < view.rank; ++i) dims.append(view.dims[i]);
      host_values.append(nb::make_tuple(
          view.dtype, nb::tuple(dims), nb::bytes(copied.data<char>(), copied.nbytes())));
    }
    nb::object outputs = plan_.get().attr("run")(arrays, host_values);
    std::vector<mx::array> made;
    for (nb::handle output : outputs) {
      made.push_back(mx::contiguous(nb::cast<mx::array>(output)));
    }
    return made;
  });
}

void Kernel::compute(OrtKernelContext* context) {
  refuse_after_fork();
  GilYield yield;
  std::lock_guard lock(lease_->mutex());
  StreamScope scope(*lease_);
  bind_constants(context);
  std::vector<mx::array> outputs = translate(context);
  mx::eval(outputs);
  for (size_t i = 0; i < outputs.size(); ++i) copy_out(ort_, context, i, outputs[i]);
}

}  // namespace ort_mlx
