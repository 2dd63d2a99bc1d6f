#include "custom_op.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "boundary.h"
#include "snapshot.h"

namespace ort_mlx {

namespace {

constexpr int kAnyType = 0;
constexpr int kRequired = 0;
constexpr int kOptional = 1;
constexpr int kVariadic = 2;

Owned<OrtTensorTypeAndShapeInfo> owned_shape(const Runtime& ort) {
  return {ort, [](const Runtime& r, OrtTensorTypeAndShapeInfo* i) {
            r.call(api::ReleaseTensorTypeAndShapeInfo, i);
          }};
}

const CustomOp& self(const OrtCustomOp* op) { return *static_cast<const CustomOp*>(op); }

}  // namespace

CustomOp::CustomOp(const Runtime& ort, CustomOpSchema schema, std::shared_ptr<const PyRef> infer)
    : OrtCustomOp{}, ort_(ort), schema_(std::move(schema)), infer_(std::move(infer)) {
  version = std::min(kDeclaredOrt, ort.minor);  // an older ORT refuses a newer one
  GetName = [](const OrtCustomOp* op) noexcept { return self(op).schema_.name.c_str(); };
  GetExecutionProviderType = [](const OrtCustomOp*) noexcept -> const char* { return nullptr; };
  GetInputTypeCount = [](const OrtCustomOp* op) noexcept { return self(op).input_count(); };
  GetInputType = [](const OrtCustomOp*, size_t) noexcept { return kAnyType; };
  GetOutputTypeCount = [](const OrtCustomOp* op) noexcept { return self(op).schema_.outputs; };
  GetOutputType = [](const OrtCustomOp*, size_t) noexcept { return kAnyType; };
  GetInputCharacteristic = [](const OrtCustomOp* op, size_t input) noexcept {
    return self(op).characteristic(input);
  };
  GetOutputCharacteristic = [](const OrtCustomOp*, size_t) noexcept { return kRequired; };
  GetInputMemoryType = [](const OrtCustomOp*, size_t) noexcept { return 0; };
  GetVariadicInputMinArity = [](const OrtCustomOp*) noexcept { return 0; };
  GetVariadicInputHomogeneity = [](const OrtCustomOp*) noexcept { return 0; };
  GetVariadicOutputMinArity = [](const OrtCustomOp*) noexcept { return 0; };
  GetVariadicOutputHomogeneity = [](const OrtCustomOp*) noexcept { return 0; };
  GetStartVersion = [](const OrtCustomOp* op) noexcept { return self(op).schema_.since_version; };
  GetEndVersion = [](const OrtCustomOp*) noexcept { return INT32_MAX; };
  // Reached only for a node that the provider did not take.
  CreateKernelV2 = [](const OrtCustomOp* op, const OrtApi*, const OrtKernelInfo*,
                      void**) noexcept -> OrtStatus* {
    return at_boundary(self(op).ort_, [&] {
      const auto& schema = self(op).schema_;
      throw Error(kNotImplemented,
                  "ort_mlx: " + schema.domain + "::" + schema.name +
                      " runs on MLXExecutionProvider only, and this session did not place it "
                      "there. Make the session with ort_mlx.enable(session_options); with "
                      "strict=True the error says why a node is declined");
    });
  };
  KernelComputeV2 = [](void*, OrtKernelContext*) noexcept -> OrtStatus* { return nullptr; };
  KernelDestroy = [](void*) noexcept {};
  InferOutputShapeFn = [](const OrtCustomOp* op,
                          OrtShapeInferContext* context) noexcept -> OrtStatus* {
    return at_boundary(self(op).ort_, [&] { self(op).infer_outputs(context); });
  };
}

size_t CustomOp::input_count() const {
  return schema_.required_inputs + schema_.optional_inputs + (schema_.has_variadic_input ? 1 : 0);
}

int CustomOp::characteristic(size_t input) const {
  if (schema_.has_variadic_input && input + 1 == input_count()) return kVariadic;
  return input < schema_.required_inputs ? kRequired : kOptional;
}

void CustomOp::infer_outputs(OrtShapeInferContext* context) const {
  size_t given = 0;
  ort_.check(api::ShapeInferContext_GetInputCount, context, &given);
  with_python([&] {
    Snapshot snapshot(ort_);
    nb::list inputs;
    for (size_t i = 0; i < given; ++i) {
      OrtTensorTypeAndShapeInfo* info = nullptr;  // owned by the context
      if (!ort_.succeeds(api::ShapeInferContext_GetInputTypeShape, context, i, &info) ||
          info == nullptr) {
        inputs.append(nb::none());
        continue;
      }
      int dtype = 0;
      ort_.check(api::GetTensorElementType, info, &dtype);
      inputs.append(nb::make_tuple(dtype, snapshot.dims_of(info)));
    }
    nb::dict attributes;
    nb::object names = infer_->get().attr("attributes");
    for (nb::handle name : names) {
      const OrtOpAttr* attribute = nullptr;
      const auto text = nb::cast<std::string>(name);
      if (ort_.succeeds(api::ShapeInferContext_GetAttribute, context, text.c_str(), &attribute) &&
          attribute != nullptr) {
        attributes[name] = snapshot.attribute(attribute);
      }
    }
    size_t index = 0;
    for (nb::handle output : infer_->get()(inputs, attributes)) {
      auto info = owned_shape(ort_);
      ort_.check(api::CreateTensorTypeAndShapeInfo, info.out());
      ort_.check(api::SetTensorElementType, info.get(), nb::cast<int>(output[0]));
      if (!output[1].is_none()) {
        const auto dims = nb::cast<std::vector<int64_t>>(output[1]);
        const auto symbols = nb::cast<std::vector<std::string>>(output[2]);
        std::vector<const char*> texts;
        for (const auto& symbol : symbols) texts.push_back(symbol.c_str());
        ort_.check(api::SetDimensions, info.get(), dims.data(), dims.size());
        ort_.check(api::SetSymbolicDimensions, info.get(), texts.data(), texts.size());
      }
      ort_.check(api::ShapeInferContext_SetOutputTypeShape, context, index++, info.get());
    }
  });
}

CustomOps& CustomOps::instance() {
  static auto* ops = new CustomOps;  // outlives every session
  return *ops;
}

void CustomOps::add(CustomOpSchema schema, nb::object infer) {
  std::lock_guard lock(mutex_);
  auto& entries = by_domain_[schema.domain];
  entries.push_back({std::move(schema), std::make_shared<const PyRef>(std::move(infer))});
}

size_t CustomOps::domain_count() {
  std::lock_guard lock(mutex_);
  return by_domain_.size();
}

void CustomOps::fill(const Runtime& ort, OrtCustomOpDomain** domains, size_t count) {
  std::lock_guard lock(mutex_);
  size_t index = 0;
  for (const auto& [name, entries] : by_domain_) {
    if (index == count) return;
    auto& made = made_[{ort.api, name}];
    if (made.operators != entries.size()) {
      ort.check(api::CreateCustomOpDomain, name.c_str(), &made.domain);
      for (const auto& entry : entries) {
        ort.check(api::CustomOpDomain_Add, made.domain,
                  new CustomOp(ort, entry.schema, entry.infer));
      }
      made.operators = entries.size();
    }
    domains[index++] = made.domain;
  }
}

}  // namespace ort_mlx
