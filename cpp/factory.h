// OrtEpFactory: which devices we offer, and an Ep per session with its options.
#pragma once

#include "ort.h"

namespace ort_mlx {

class Factory : public OrtEpFactory {
 public:
  // The factory of one loaded ORT. It is never freed: sessions may outlive the registration.
  static Factory* of(const Runtime& ort);

  const Runtime& runtime() const { return ort_; }

 private:
  explicit Factory(const Runtime& ort);
  void get_supported_devices(const OrtHardwareDevice* const* devices, size_t count,
                             OrtEpDevice** ep_devices, size_t max_ep_devices,
                             size_t* num_ep_devices);
  OrtEp* create_ep(const OrtSessionOptions* options, const OrtLogger* logger);

  const Runtime ort_;
};

}  // namespace ort_mlx
