// OrtNodeComputeInfo: one fused node. Wraps inputs, runs the plan, evaluates, publishes outputs.
#pragma once

#include <memory>
#include <vector>

#include "ort.h"
#include "python.h"
#include "streams.h"
#include "wrap.h"

namespace ort_mlx {

// What a Kernel needs to know of its plan, read from Python once in Compile.
struct PlanFacts {
  std::vector<size_t> constant_inputs;  // kernel inputs that never change, wrapped on the first Run
  std::vector<size_t> host_inputs;      // kernel inputs handed to the plan as host values
  std::vector<size_t> array_inputs;     // kernel inputs handed to the plan as arrays
};

class Kernel : public OrtNodeComputeInfo {
 public:
  Kernel(const Runtime& ort, std::shared_ptr<StreamLease> lease, nb::object plan, PlanFacts facts);

 private:
  void compute(OrtKernelContext* context);
  TensorView input(OrtKernelContext* context, size_t index) const;
  void bind_constants(OrtKernelContext* context);
  std::vector<mx::array> translate(OrtKernelContext* context);

  const Runtime& ort_;
  std::shared_ptr<StreamLease> lease_;
  PyRef plan_;
  PlanFacts facts_;
  bool constants_are_bound_ = false;
};

}  // namespace ort_mlx
