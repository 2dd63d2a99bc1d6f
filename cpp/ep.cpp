#include "ep.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "boundary.h"
#include "kernel.h"
#include "snapshot.h"

namespace ort_mlx {

namespace {

nb::tuple names_of(const Runtime& ort, const std::vector<const OrtValueInfo*>& infos) {
  nb::list names;
  for (const auto* info : infos) {
    const char* name = "";
    if (info != nullptr) ort.check(api::GetValueInfoName, info, &name);
    names.append(nb::str(name));
  }
  return nb::tuple(names);
}

mx::Device device_of(nb::handle session) {
  const bool on_gpu = nb::cast<std::string>(session.attr("device")) == "gpu";
  return on_gpu ? mx::Device::gpu : mx::Device::cpu;
}

std::vector<Padding> paddings_of(nb::handle paddings) {
  std::vector<Padding> made;
  for (nb::handle padding : paddings) {
    made.push_back({nb::cast<std::vector<int64_t>>(padding.attr("sizes")),
                    nb::cast<int64_t>(padding.attr("multiple")),
                    nb::cast<std::vector<Padding::Place>>(padding.attr("inputs")),
                    nb::cast<std::vector<Padding::Place>>(padding.attr("outputs"))});
  }
  return made;
}

}  // namespace

Ep::Ep(const Runtime& ort, const OrtLogger* logger, nb::object session)
    : OrtEp{},
      ort_(ort),
      logger_(logger),
      session_(session),
      lease_(std::make_shared<StreamLease>(device_of(session))),
      closures_(nb::cast<std::shared_ptr<ClosureCache>>(session.attr("closures"))),
      cancel_flag_(nb::cast<std::shared_ptr<CancelFlag>>(session.attr("cancel_flag"))) {
  ort_version_supported = kDeclaredOrt;
  GetName = [](const OrtEp*) noexcept { return kEpName; };
  GetCapability = [](OrtEp* self, const OrtGraph* graph,
                     OrtEpGraphSupportInfo* support) noexcept -> OrtStatus* {
    auto* ep = static_cast<Ep*>(self);
    return at_boundary(ep->ort_, [&] { ep->get_capability(graph, support); });
  };
  Compile = [](OrtEp* self, const OrtGraph** graphs, const OrtNode** fused_nodes, size_t count,
               OrtNodeComputeInfo** infos, OrtNode**) noexcept -> OrtStatus* {
    auto* ep = static_cast<Ep*>(self);
    return at_boundary(ep->ort_, [&] { ep->compile(graphs, fused_nodes, count, infos); });
  };
  ReleaseNodeComputeInfos = [](OrtEp*, OrtNodeComputeInfo** infos, size_t count) noexcept {
    at_void_boundary([&] {
      for (size_t i = 0; i < count; ++i) delete static_cast<Kernel*>(infos[i]);
    });
  };
  SetDynamicOptions = [](OrtEp* self, const char* const* keys, const char* const* values,
                         size_t count) noexcept -> OrtStatus* {
    auto* ep = static_cast<Ep*>(self);
    return at_boundary(ep->ort_, [&] {
      with_python([&] {
        for (size_t i = 0; i < count; ++i) {
          ep->session_.get().attr("set_dynamic_option")(nb::str(keys[i]), nb::str(values[i]));
        }
      });
    });
  };
  IsConcurrentRunSupported = [](OrtEp* self, bool* is_supported) noexcept -> OrtStatus* {
    return at_boundary(static_cast<Ep*>(self)->ort_, [&] { *is_supported = true; });
  };
}

// Bodies are partitioned before the node that owns them. A body of a node that will be claimed
// whole must be left alone, or the node would no longer be one we can claim. The owner's owner need
// not be asked (nor can it: ORT gives the owner of a body without its graph), since a claimed
// node's bodies hold claimed nodes only.
bool Ep::belongs_to_claimed_node(const OrtGraph* graph) {
  const OrtNode* parent = nullptr;
  ort_.check(api::Graph_GetParentNode, graph, &parent);
  if (parent == nullptr) return false;
  Snapshot snapshot(ort_);
  return nb::cast<bool>(session_.get().attr("keeps_bodies_of")(snapshot.lone_node(parent)));
}

void Ep::get_capability(const OrtGraph* graph, OrtEpGraphSupportInfo* support) {
  refuse_after_fork();
  with_python([&] {
    if (belongs_to_claimed_node(graph)) return;
    const OrtNode* parent = nullptr;
    ort_.check(api::Graph_GetParentNode, graph, &parent);
    Snapshot snapshot(ort_);
    nb::object groups = session_.get().attr("partition")(snapshot.graph(graph), parent != nullptr);
    auto nodes = ort_.list<const OrtNode*>(api::Graph_GetNumNodes, api::Graph_GetNodes, graph);
    for (nb::handle group : groups) {
      std::vector<const OrtNode*> members;
      for (size_t index : nb::cast<std::vector<size_t>>(group.attr("nodes"))) {
        members.push_back(nodes.at(index));
      }
      OrtNodeFusionOptions options{};
      options.ort_version_supported = kDeclaredOrt;
      options.drop_constant_initializers = nb::cast<bool>(group.attr("drops_initializers"));
      ort_.check(ep_api::EpGraphSupportInfo_AddNodesToFuse, support, members.data(), members.size(),
                 &options);
    }
    forward_messages();
  });
}

void Ep::compile(const OrtGraph** graphs, const OrtNode** fused_nodes, size_t count,
                 OrtNodeComputeInfo** infos) {
  // After a failure ORT releases the entries that are set.
  for (size_t i = 0; i < count; ++i) infos[i] = compile_one(graphs[i], fused_nodes[i]);
}

OrtNodeComputeInfo* Ep::compile_one(const OrtGraph* graph, const OrtNode* fused_node) {
  GilYield yield;
  std::lock_guard lock(lease_->mutex());
  StreamScope scope(*lease_);
  auto inputs =
      ort_.list<const OrtValueInfo*>(api::Node_GetNumInputs, api::Node_GetInputs, fused_node);
  auto outputs =
      ort_.list<const OrtValueInfo*>(api::Node_GetNumOutputs, api::Node_GetOutputs, fused_node);
  return with_python([&]() -> OrtNodeComputeInfo* {
    Snapshot snapshot(ort_);
    nb::object plan =
        session_.get().attr("compile")(snapshot.graph(graph), names_of(ort_, inputs),
                                       names_of(ort_, outputs), nb::cast(lease_->host_stream()));
    PlanFacts facts{
        .constant_inputs = nb::cast<std::vector<size_t>>(plan.attr("constant_inputs")),
        .copied_inputs = nb::cast<std::vector<size_t>>(plan.attr("copied_inputs")),
        .host_inputs = nb::cast<std::vector<size_t>>(plan.attr("host_inputs")),
        .array_inputs = nb::cast<std::vector<size_t>>(plan.attr("array_inputs")),
        .array_names = nb::cast<std::vector<std::string>>(plan.attr("array_names")),
        .is_traceable = nb::cast<bool>(plan.attr("is_traceable")),
        .paddings = paddings_of(plan.attr("paddings")),
        .threads = nb::cast<int>(plan.attr("threads")),
    };
    return new Kernel(ort_, lease_, closures_, cancel_flag_, plan, std::move(facts));
  });
}

void Ep::forward_messages() {
  for (nb::handle message : session_.get().attr("take_messages")()) {
    auto level = static_cast<LogLevel>(nb::cast<int>(message[0]));
    log(ort_, logger_, level, nb::cast<std::string>(message[1]));
  }
}

}  // namespace ort_mlx
