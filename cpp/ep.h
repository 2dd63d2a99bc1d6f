// OrtEp: hands snapshots of the graph to Python, fuses what it claims, makes kernels of its plans.
#pragma once

#include <memory>
#include <string>

#include "closure_cache.h"
#include "ort.h"
#include "python.h"
#include "stopping.h"
#include "streams.h"

namespace ort_mlx {

inline constexpr const char* kEpName = "MLXExecutionProvider";

class Ep : public OrtEp {
 public:
  // `session` is an ort_mlx.session.EpSession; it says which device to use and what to claim.
  Ep(const Runtime& ort, const OrtLogger* logger, nb::object session);

 private:
  void get_capability(const OrtGraph* graph, OrtEpGraphSupportInfo* support);
  bool belongs_to_claimed_node(const OrtGraph* graph);
  void compile(const OrtGraph** graphs, const OrtNode** fused_nodes, size_t count,
               OrtNodeComputeInfo** infos);
  OrtNodeComputeInfo* compile_one(const OrtGraph* graph, const OrtNode* fused_node);
  void forward_messages();

  const Runtime& ort_;
  const OrtLogger* logger_;  // owned by ORT, outlives the session
  PyRef session_;
  std::shared_ptr<StreamLease> lease_;
  std::shared_ptr<ClosureCache> closures_;
  std::shared_ptr<const CancelFlag> cancel_flag_;
};

}  // namespace ort_mlx
