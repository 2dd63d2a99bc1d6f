// MLX streams, which belong to nobody's thread here: each session leases one and serialises its
// use.
#pragma once

#include <mlx/stream.h>

#include <mutex>

namespace ort_mlx {

namespace mx = mlx::core;

// Whether the loaded MLX has a GPU backend with a device.
bool gpu_is_available();

// Throws in a child of a process that had used MLX before fork(): MLX would hang there.
void refuse_after_fork();

// A stream for device work and one on the CPU for host values (the same one on the CPU backend).
// Streams cannot be destroyed in MLX, so they are pooled and reused by later sessions.
class StreamLease {
 public:
  explicit StreamLease(mx::Device device);
  StreamLease(const StreamLease&) = delete;
  StreamLease& operator=(const StreamLease&) = delete;
  ~StreamLease();

  mx::Stream stream() const { return stream_; }
  mx::Stream host_stream() const { return host_stream_; }
  // Guards both streams: MLX lets any thread drive them, but one at a time. Wait for it only
  // without the GIL, since its holder may be about to enter Python.
  std::mutex& mutex() { return mutex_; }
  // For both streams, after an evaluation that failed.
  void settle() const noexcept;

 private:
  mx::Stream stream_;
  mx::Stream host_stream_;
  std::mutex mutex_;
};

// After an evaluation that failed: waits for what the stream still works on, which may read memory
// of the caller, and leaves nothing of the failure behind in MLX for a later evaluation to meet.
void settle(mx::Stream stream) noexcept;

// Makes a lease's stream the default of this thread, as the MLX functions called from Python and
// C++ expect, and puts the previous default back. Left by an exception it settles the lease.
class StreamScope {
 public:
  explicit StreamScope(const StreamLease& lease);
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;
  ~StreamScope();

 private:
  const StreamLease& lease_;
  int exceptions_before_;
  mx::Device device_;
  mx::Stream stream_;
};

}  // namespace ort_mlx
