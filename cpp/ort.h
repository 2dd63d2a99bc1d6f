// Calls into ORT: errors as exceptions, handles as owners. Code outside the ABI speaks to ORT here.
#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ort_abi.h"

namespace ort_mlx {

// An error with the code ORT should report. Never kEpFail: ORT's Python `run` answers that one by
// rebuilding the session on the CPU.
class Error : public std::runtime_error {
 public:
  Error(int code, const std::string& text) : std::runtime_error(text), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

// One loaded copy of ORT. A process may hold several (each Python package links its own), so this
// is passed along and never global.
struct Runtime {
  const OrtApi* api;
  const OrtEpApi* ep_api;
  uint32_t minor;  // 32 for ORT 1.32

  // Calls a slot that returns a status and throws what the status says.
  template <class Table, size_t Slot, class... Params, class... Args>
  void check(const Fn<Table, Slot, OrtStatus*(Params...)>& fn, Args&&... args) const {
    OrtStatus* status = fn(table(fn), std::forward<Args>(args)...);
    if (status == nullptr) return;
    Error error(api::GetErrorCode(api, status), api::GetErrorMessage(api, status));
    api::ReleaseStatus(api, status);
    throw error;
  }

  // Calls a slot whose failure is an answer; true when it succeeded.
  template <class Table, size_t Slot, class... Params, class... Args>
  bool succeeds(const Fn<Table, Slot, OrtStatus*(Params...)>& fn, Args&&... args) const {
    OrtStatus* status = fn(table(fn), std::forward<Args>(args)...);
    api::ReleaseStatus(api, status);
    return status == nullptr;
  }

  template <class Table, size_t Slot, class R, class... Params, class... Args>
  R call(const Fn<Table, Slot, R(Params...)>& fn, Args&&... args) const {
    return fn(table(fn), std::forward<Args>(args)...);
  }

  // The common pair of slots "how many" and "fill my array".
  template <class Handle, class Owner, class Count, class Fill>
  std::vector<Handle> list(const Count& count, const Fill& fill, const Owner* owner) const {
    size_t n = 0;
    check(count, owner, &n);
    std::vector<Handle> handles(n);
    if (n != 0) check(fill, owner, handles.data(), n);
    return handles;
  }

 private:
  template <size_t Slot, class Signature>
  const OrtApi* table(const ApiFn<Slot, Signature>&) const {
    return api;
  }
  template <size_t Slot, class Signature>
  const OrtEpApi* table(const EpFn<Slot, Signature>&) const {
    return ep_api;
  }
};

// An ORT handle that this library owns, released through the slot that fits its type.
template <class T>
class Owned {
 public:
  Owned(const Runtime& ort, void (*release)(const Runtime&, T*)) : ort_(ort), release_(release) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle_ != nullptr) release_(ort_, handle_);
  }
  T** out() { return &handle_; }
  T* get() const { return handle_; }

 private:
  const Runtime& ort_;
  void (*release_)(const Runtime&, T*);
  T* handle_ = nullptr;
};

inline Owned<OrtKeyValuePairs> owned_pairs(const Runtime& ort) {
  return {ort, [](const Runtime& r, OrtKeyValuePairs* p) { r.call(api::ReleaseKeyValuePairs, p); }};
}

inline Owned<OrtValue> owned_value(const Runtime& ort) {
  return {ort, [](const Runtime& r, OrtValue* v) { r.call(api::ReleaseValue, v); }};
}

inline Owned<OrtModelMetadata> owned_metadata(const Runtime& ort) {
  return {ort, [](const Runtime& r, OrtModelMetadata* m) { r.call(api::ReleaseModelMetadata, m); }};
}

inline void log(const Runtime& ort, const OrtLogger* logger, LogLevel level,
                const std::string& text) {
  ort.succeeds(api::Logger_LogMessage, logger, level, text.c_str(), "ort_mlx", 0, "ort_mlx");
}

}  // namespace ort_mlx
