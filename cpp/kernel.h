// OrtNodeComputeInfo: one fused node. Looks its closure up by key, wraps inputs, replays, evaluates
// and publishes. Python runs only when there is no closure.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "closure_cache.h"
#include "ort.h"
#include "padding.h"
#include "python.h"
#include "stopping.h"
#include "streams.h"
#include "wrap.h"

namespace ort_mlx {

// What a Kernel needs to know of its plan, read from Python once in Compile.
struct PlanFacts {
  std::vector<size_t> constant_inputs;  // kernel inputs that never change, wrapped on the first Run
  std::vector<size_t> copied_inputs;    // those of which the plan has a copy from the model
  std::vector<size_t> host_inputs;      // kernel inputs handed to the plan as host values
  std::vector<size_t> array_inputs;     // kernel inputs handed to the plan as arrays
  std::vector<std::string> array_names;  // of array_inputs, for messages
  bool is_traceable;                     // false: no closure can serve it, go step by step
  std::vector<Padding> paddings;         // of array_inputs and of the outputs
  int threads;                           // of the CPU backend; 0 for all
};

class Kernel : public OrtNodeComputeInfo {
 public:
  Kernel(const Runtime& ort, std::shared_ptr<StreamLease> lease,
         std::shared_ptr<ClosureCache> closures, std::shared_ptr<const CancelFlag> cancel_flag,
         nb::object plan, PlanFacts facts);

 private:
  void compute(OrtKernelContext* context);
  void read_inputs(OrtKernelContext* context);
  void build_key();
  void bind_constants(OrtKernelContext* context);
  bool run_closure(OrtKernelContext* context);
  ClosureCache::Found trace();
  void check_indices(const ClosureCache::Found& found) const;
  void choose_targets(OrtKernelContext* context, const ClosureCache::Found& found);
  bool is_free(const void* target, size_t size, int32_t shared_input) const;
  void run_steps(OrtKernelContext* context);
  void note_failure(const std::string& what);
  void publish(OrtKernelContext* context, std::vector<mx::array> outputs);
  TensorView input(OrtKernelContext* context, size_t index) const;
  nb::list host_values() const;
  static nb::tuple record_of(const TensorView& view);
  std::vector<mx::array> wrapped_inputs() const;

  const Runtime& ort_;
  std::shared_ptr<StreamLease> lease_;
  std::shared_ptr<ClosureCache> closures_;
  std::shared_ptr<const CancelFlag> cancel_flag_;
  PyRef plan_;
  PlanFacts facts_;
  bool constants_are_bound_ = false;
  // After a failure closures are left alone for a number of Runs that doubles each time.
  unsigned failures_in_a_row_ = 0;
  unsigned long runs_to_skip_ = 0;
  // Reused by every Run, under the lease's lock: nothing is allocated once they have grown.
  std::vector<TensorView> arrays_;
  std::vector<TensorView> hosts_;
  Key key_;
  Padder padder_;
  bool is_padded_ = false;  // in this Run
  std::vector<void*> targets_;
};

}  // namespace ort_mlx
