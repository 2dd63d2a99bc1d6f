#include "factory.h"

#include <mlx/version.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cctype>
#include <mutex>
#include <vector>

#include "boundary.h"
#include "custom_op.h"
#include "ep.h"
#include "python.h"
#include "streams.h"

namespace ort_mlx {

namespace {

constexpr const char* kVendor = "ort-mlx";

std::string option_prefix() {
  std::string name = kEpName;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return "ep." + name + ".";
}

// The options addressed to us, with their prefix taken off.
nb::dict options_of(const Runtime& ort, const OrtSessionOptions* options) {
  auto pairs = owned_pairs(ort);
  ort.check(api::GetSessionOptionsConfigEntries, options, pairs.out());
  const char* const* keys = nullptr;
  const char* const* values = nullptr;
  size_t count = 0;
  ort.call(api::GetKeyValuePairs, pairs.get(), &keys, &values, &count);
  const std::string prefix = option_prefix();
  nb::dict made;
  for (size_t i = 0; i < count; ++i) {
    const std::string key = keys[i];
    if (key.rfind(prefix, 0) == 0) made[key.substr(prefix.size()).c_str()] = nb::str(values[i]);
  }
  return made;
}

}  // namespace

Factory* Factory::of(const Runtime& ort) {
  static std::mutex mutex;
  static auto* factories = new std::vector<Factory*>;
  std::lock_guard lock(mutex);
  for (Factory* factory : *factories) {
    if (factory->ort_.api == ort.api) return factory;
  }
  return factories->emplace_back(new Factory(ort));
}

Factory::Factory(const Runtime& ort) : OrtEpFactory{}, ort_(ort) {
  ort_version_supported = kDeclaredOrt;
  GetName = [](const OrtEpFactory*) noexcept { return kEpName; };
  GetVendor = [](const OrtEpFactory*) noexcept { return kVendor; };
  GetVendorId = [](const OrtEpFactory*) noexcept { return uint32_t{0}; };
  GetVersion = [](const OrtEpFactory*) noexcept { return ORT_MLX_VERSION; };
  // ORT calls the next four whether they are set or not. Tensors stay in ORT's CPU memory.
  CreateAllocator = [](OrtEpFactory*, const OrtMemoryInfo*, const OrtKeyValuePairs*,
                       OrtAllocator** out) noexcept -> OrtStatus* {
    *out = nullptr;
    return nullptr;
  };
  ReleaseAllocator = [](OrtEpFactory*, OrtAllocator*) noexcept {};
  CreateDataTransfer = [](OrtEpFactory*, OrtDataTransferImpl** out) noexcept -> OrtStatus* {
    *out = nullptr;
    return nullptr;
  };
  GetNumCustomOpDomains = [](OrtEpFactory* self, size_t* count) noexcept -> OrtStatus* {
    auto* factory = static_cast<Factory*>(self);
    return at_boundary(factory->ort_, [&] { *count = CustomOps::instance().domain_count(); });
  };
  GetCustomOpDomains = [](OrtEpFactory* self, OrtCustomOpDomain** domains,
                          size_t count) noexcept -> OrtStatus* {
    auto* factory = static_cast<Factory*>(self);
    return at_boundary(factory->ort_,
                       [&] { CustomOps::instance().fill(factory->ort_, domains, count); });
  };
  IsStreamAware = [](const OrtEpFactory*) noexcept { return false; };
  GetSupportedDevices = [](OrtEpFactory* self, const OrtHardwareDevice* const* devices,
                           size_t count, OrtEpDevice** out, size_t max,
                           size_t* num) noexcept -> OrtStatus* {
    auto* factory = static_cast<Factory*>(self);
    return at_boundary(factory->ort_,
                       [&] { factory->get_supported_devices(devices, count, out, max, num); });
  };
  CreateEp = [](OrtEpFactory* self, const OrtHardwareDevice* const*, const OrtKeyValuePairs* const*,
                size_t, const OrtSessionOptions* options, const OrtLogger* logger,
                OrtEp** ep) noexcept -> OrtStatus* {
    auto* factory = static_cast<Factory*>(self);
    return at_boundary(factory->ort_, [&] { *ep = factory->create_ep(options, logger); });
  };
  ReleaseEp = [](OrtEpFactory*, OrtEp* ep) noexcept {
    at_void_boundary([&] { delete static_cast<Ep*>(ep); });
  };
}

// One device: the GPU that MLX can use, else the CPU. ORT does not see every GPU that MLX does (in
// a container, say); then the CPU stands for it.
void Factory::get_supported_devices(const OrtHardwareDevice* const* devices, size_t count,
                                    OrtEpDevice** ep_devices, size_t max_ep_devices,
                                    size_t* num_ep_devices) {
  *num_ep_devices = 0;
  const bool has_gpu = gpu_is_available();
  const OrtHardwareDevice* chosen = nullptr;
  for (size_t i = 0; i < count; ++i) {
    const int type = ort_.call(api::HardwareDevice_Type, devices[i]);
    if (type == kHardwareGpu && has_gpu) {
      chosen = devices[i];
      break;
    }
    if (type == kHardwareCpu && chosen == nullptr) chosen = devices[i];
  }
  if (chosen == nullptr || max_ep_devices == 0) return;

  auto metadata = owned_pairs(ort_);
  auto options = owned_pairs(ort_);
  ort_.call(api::CreateKeyValuePairs, metadata.out());
  ort_.call(api::CreateKeyValuePairs, options.out());
  ort_.call(api::AddKeyValuePair, metadata.get(), "mlx_version", mx::version());
  ort_.call(api::AddKeyValuePair, metadata.get(), "mlx_device", has_gpu ? "gpu" : "cpu");
  // Tells a selection by device (which a policy makes too) from one by name: see settings.py.
  ort_.call(api::AddKeyValuePair, options.get(), "selected_by", "device");
  ort_.check(ep_api::CreateEpDevice, this, chosen, metadata.get(), options.get(), &ep_devices[0]);
  *num_ep_devices = 1;
}

OrtEp* Factory::create_ep(const OrtSessionOptions* options, const OrtLogger* logger) {
  refuse_after_fork();
  return with_python([&]() -> OrtEp* {
    nb::object session = nb::module_::import_("ort_mlx.session")
                             .attr("EpSession")(options_of(ort_, options), gpu_is_available());
    return new Ep(ort_, logger, session);
  });
}

}  // namespace ort_mlx
