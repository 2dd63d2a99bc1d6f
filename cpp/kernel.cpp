#include "kernel.h"

#include <mlx/transforms.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "boundary.h"
#include "snapshot.h"

namespace ort_mlx {

namespace {

constexpr unsigned kMaxBackoffShift = 10;

// The first value that is not in [-size, size).
template <class T>
std::optional<int64_t> first_outside(const TensorView& tensor, int64_t size) {
  const T* values = static_cast<const T*>(tensor.bytes);
  for (size_t i = 0; i < count_of(tensor); ++i) {
    if (values[i] < -size || values[i] >= size) return values[i];
  }
  return std::nullopt;
}

}  // namespace

Kernel::Kernel(const Runtime& ort, std::shared_ptr<StreamLease> lease,
               std::shared_ptr<ClosureCache> closures,
               std::shared_ptr<const CancelFlag> cancel_flag, nb::object plan, PlanFacts facts)
    : OrtNodeComputeInfo{},
      ort_(ort),
      lease_(std::move(lease)),
      closures_(std::move(closures)),
      cancel_flag_(std::move(cancel_flag)),
      plan_(std::move(plan)),
      facts_(std::move(facts)),
      padder_(facts_.paddings) {
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

void Kernel::compute(OrtKernelContext* context) {
  refuse_after_fork();
  Stoppable::refuse_inside(*cancel_flag_);
  GilYield yield;
  Stoppable stoppable(*cancel_flag_);  // a Run that waits for its turn is in progress too
  std::lock_guard lock(lease_->mutex());
  check_stopped();
  StreamScope scope(*lease_);
  bind_constants(context);
  read_inputs(context);
  if (!run_closure(context)) run_steps(context);
}

TensorView Kernel::input(OrtKernelContext* context, size_t index) const {
  const OrtValue* value = nullptr;
  ort_.check(api::KernelContext_GetInput, context, index, &value);
  if (value == nullptr) {
    throw Error(kInvalidArgument, "ort_mlx: input " + std::to_string(index) + " is missing");
  }
  return view_of(ort_, value);
}

void Kernel::read_inputs(OrtKernelContext* context) {
  is_padded_ = false;
  arrays_.clear();
  hosts_.clear();
  for (size_t index : facts_.array_inputs) arrays_.push_back(input(context, index));
  for (size_t index : facts_.host_inputs) hosts_.push_back(input(context, index));
}

// Dtypes are fixed by the model, so dimensions and steering values are all a trace can depend on.
void Kernel::build_key() {
  key_.clear();
  key_.push_back(reinterpret_cast<uintptr_t>(this));
  for (const auto* views : {&arrays_, &hosts_}) {
    for (const TensorView& view : *views) {
      key_.push_back(view.rank);
      key_.insert(key_.end(), view.dims, view.dims + view.rank);
    }
  }
  for (const TensorView& view : hosts_) {
    const size_t bytes = byte_size(view);
    const size_t at = key_.size();
    key_.resize(at + (bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t));
    if (bytes != 0) std::memcpy(key_.data() + at, view.bytes, bytes);
  }
}

void Kernel::bind_constants(OrtKernelContext* context) {
  if (constants_are_bound_) return;
  with_python([&] {
    nb::list arrays;
    for (size_t index : facts_.constant_inputs) {
      arrays.append(nb::cast(wrap(input(context, index))));
    }
    nb::list copied;
    for (size_t index : facts_.copied_inputs) copied.append(record_of(input(context, index)));
    plan_.get().attr("bind_constants")(arrays, copied);
  });
  constants_are_bound_ = true;
}

std::vector<mx::array> Kernel::wrapped_inputs() const {
  std::vector<mx::array> made;
  made.reserve(arrays_.size());
  for (const TensorView& view : arrays_) made.push_back(wrap(view));
  return made;
}

nb::tuple Kernel::record_of(const TensorView& view) {
  nb::list dims;
  for (size_t i = 0; i < view.rank; ++i) dims.append(view.dims[i]);
  return nb::make_tuple(view.dtype, nb::tuple(dims), held_bytes(view));
}

nb::list Kernel::host_values() const {
  nb::list made;
  for (const TensorView& view : hosts_) made.append(record_of(view));
  return made;
}

// True when a closure produced the outputs. A failure of ours is not the user's: it is reported,
// and the same Run goes on step by step.
bool Kernel::run_closure(OrtKernelContext* context) {
  if (!facts_.is_traceable) return false;
  if (runs_to_skip_ > 0) {
    --runs_to_skip_;
    return false;
  }
  is_padded_ = padder_.pad(arrays_);
  build_key();
  std::vector<mx::array> outputs;
  ClosureCache::Found found;
  try {
    found = closures_->find(key_);
    if (found.closure == nullptr) found = trace();
    if (found.closure == nullptr) return false;
    check_indices(found);
    targets_.assign(found.closure->output_count(), nullptr);
    if (!is_padded_) choose_targets(context, found);
    outputs = found.closure->replay(wrapped_inputs(), found.step, targets_);
    mx::eval(outputs);
    if (is_padded_) padder_.crop(outputs);
  } catch (const Stopped&) {
    throw;
  } catch (const Error& error) {
    if (error.code() == kInvalidArgument) throw;
    note_failure(error.what());
    return false;
  } catch (const std::exception& error) {
    note_failure(error.what());
    return false;
  }
  failures_in_a_row_ = 0;
  closures_->count_run(found.route);
  publish(context, std::move(outputs));
  return true;
}

ClosureCache::Found Kernel::trace() {
  std::vector<mx::array> placeholders;
  for (const TensorView& view : arrays_) {
    placeholders.push_back(make_placeholder(shape_of(view), type_of(view).held));
  }
  std::vector<mx::array> outputs;
  std::vector<IndexCheck> checks;
  bool serves_progression = false;
  Route route = Route::kGeneral;
  const bool is_traced = with_python([&] {
    nb::list inputs;
    for (const auto& p : placeholders) inputs.append(nb::cast(p));
    nb::object made = plan_.get().attr("trace")(inputs, host_values(), nb::cast(key_));
    facts_.is_traceable = nb::cast<bool>(plan_.get().attr("is_traceable"));
    serves_progression = nb::isinstance<nb::bool_>(made);
    if (made.is_none() || serves_progression) return false;
    for (nb::handle output : made) outputs.push_back(nb::cast<mx::array>(output));
    route = static_cast<Route>(nb::cast<int>(plan_.get().attr("route")));
    for (nb::handle check : plan_.get().attr("checks")) {
      checks.push_back({nb::cast<size_t>(check.attr("position")),
                        Line{nb::cast<int64_t>(check.attr("size")), 0}});
    }
    return true;
  });
  // The plan puts a closure that serves a whole progression of keys into the cache by itself.
  if (serves_progression) return closures_->find(key_);
  if (!is_traced) return {};
  for (auto& output : outputs) output = row_major(output);
  auto closure = Closure::capture(placeholders, outputs, facts_.threads, std::move(checks));
  closures_->insert(key_, closure, route);
  return {closure, 0, route};
}

void Kernel::check_indices(const ClosureCache::Found& found) const {
  for (const IndexCheck& check : found.closure->checks()) {
    const TensorView& view = arrays_.at(check.input);
    const int64_t size = check.size.at(found.step);
    const auto outside = type_of(view).held == mx::int64 ? first_outside<int64_t>(view, size)
                                                         : first_outside<int32_t>(view, size);
    if (!outside) continue;
    throw Error(kInvalidArgument, "ort_mlx: index " + std::to_string(*outside) +
                                      " is out of range for an axis of " + std::to_string(size) +
                                      "; it is in input '" + facts_.array_names.at(check.input) +
                                      "'");
  }
}

// Outputs are computed in ORT's memory where no input lies. An output that is an input with a part
// changed, and bound to the same memory, is changed there: the caller's cache is not copied.
void Kernel::choose_targets(OrtKernelContext* context, const ClosureCache::Found& found) {
  for (size_t i = 0; i < targets_.size(); ++i) {
    const auto placeable = found.closure->placeable(i, found.step);
    if (!placeable) continue;
    void* target = output_memory(ort_, context, i, placeable->shape, placeable->dtype);
    size_t size = placeable->dtype.size();
    for (auto dim : placeable->shape) size *= static_cast<size_t>(dim);
    if (target != nullptr && is_free(target, size, placeable->shared_input)) targets_[i] = target;
  }
}

// Whether no input of this Run lies in that memory, except exactly `shared_input`.
bool Kernel::is_free(const void* target, size_t size, int32_t shared_input) const {
  const auto first = reinterpret_cast<uintptr_t>(target);
  for (size_t k = 0; k < arrays_.size(); ++k) {
    const auto other = reinterpret_cast<uintptr_t>(arrays_[k].bytes);
    const size_t other_size = byte_size(arrays_[k]);
    if (other >= first + size || first >= other + other_size) continue;
    const bool is_shared = shared_input == static_cast<int32_t>(k) && other == first;
    if (!is_shared || other_size != size) return false;
  }
  return true;
}

void Kernel::note_failure(const std::string& what) {
  lease_->settle();
  closures_->erase(key_);
  closures_->count_failure();
  runs_to_skip_ = 1UL << std::min(failures_in_a_row_++, kMaxBackoffShift);
  with_python([&] { plan_.get().attr("note_failure")(nb::str(what.c_str())); });
}

void Kernel::run_steps(OrtKernelContext* context) {
  closures_->count_eager_run();
  if (is_padded_) read_inputs(context);
  std::vector<mx::array> outputs = with_python([&] {
    nb::list arrays;
    for (const auto& a : wrapped_inputs()) arrays.append(nb::cast(a));
    nb::object made = plan_.get().attr("run")(arrays, host_values());
    std::vector<mx::array> results;
    for (nb::handle output : made) results.push_back(nb::cast<mx::array>(output));
    return results;
  });
  for (auto& output : outputs) output = row_major(output);
  mx::eval(outputs);
  publish(context, std::move(outputs));
}

void Kernel::publish(OrtKernelContext* context, std::vector<mx::array> outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) copy_out(ort_, context, i, outputs[i]);
}

}  // namespace ort_mlx
