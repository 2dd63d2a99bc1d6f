// The two functions ORT looks up in this library.

#include <charconv>
#include <cstring>
#include <string>

#include "boundary.h"
#include "factory.h"
#include "python.h"

#define ORT_MLX_EXPORT extern "C" __attribute__((visibility("default")))

namespace ort_mlx {
namespace {

// The x of a version "1.x.y".
uint32_t minor_of(const char* version) {
  const char* dot = std::strchr(version, '.');
  uint32_t minor = 0;
  if (dot != nullptr) std::from_chars(dot + 1, version + std::strlen(version), minor);
  return minor;
}

}  // namespace
}  // namespace ort_mlx

ORT_MLX_EXPORT OrtStatus* CreateEpFactories(const char*, const OrtApiBase* base, const OrtLogger*,
                                            OrtEpFactory** factories, size_t max_factories,
                                            size_t* num_factories) {
  using namespace ort_mlx;
  *num_factories = 0;
  const char* version = base->GetVersionString();
  const uint32_t minor = minor_of(version);
  // GetApi complains on stderr about a version it does not know, so ask for one it does. Its first
  // slot, CreateStatus, is as old as the table.
  const bool is_supported = minor >= kMinimumOrt;
  const OrtApi* table = base->GetApi(is_supported ? kMinimumOrt : 1);
  if (table == nullptr) return nullptr;
  Runtime ort{table, nullptr, minor};
  return at_boundary(ort, [&] {
    if (!is_supported) {
      throw Error(kFail, "ort_mlx needs ONNX Runtime 1." + std::to_string(kMinimumOrt) +
                             " or newer, found " + version + ". Upgrade the onnxruntime package");
    }
    if (max_factories == 0) throw Error(kInvalidArgument, "ort_mlx: no room for a factory");
    if (!python_is_usable()) {
      throw Error(kFail, "ort_mlx needs a Python process: its operators are written in Python");
    }
    ort.ep_api = ort.call(api::GetEpApi);
    factories[0] = Factory::of(ort);
    *num_factories = 1;
  });
}

// Factories live as long as the process: a session may still use one that was unregistered.
ORT_MLX_EXPORT OrtStatus* ReleaseEpFactory(OrtEpFactory*) { return nullptr; }
