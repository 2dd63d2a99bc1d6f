#include "streams.h"

#include <mlx/device.h>
#include <pthread.h>

#include <atomic>
#include <vector>

#include "ort.h"

namespace ort_mlx {

namespace {

std::atomic<bool> g_mlx_was_used{false};
std::atomic<bool> g_is_forked_child{false};

struct Pool {
  std::mutex mutex;
  std::vector<mx::Stream> idle;
};

// Leaked on purpose: sessions may be released after static destructors have run.
Pool& pool() {
  static auto* instance = new Pool;
  return *instance;
}

mx::Stream acquire(mx::Device device) {
  std::lock_guard lock(pool().mutex);
  auto& idle = pool().idle;
  for (size_t i = 0; i < idle.size(); ++i) {
    if (idle[i].device != device) continue;
    mx::Stream stream = idle[i];
    idle.erase(idle.begin() + static_cast<std::ptrdiff_t>(i));
    return stream;
  }
  return mx::new_thread_unsafe_stream(device);
}

void watch_for_fork() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] {
      if (g_mlx_was_used.load()) g_is_forked_child.store(true);
    });
  });
}

}  // namespace

bool gpu_is_available() { return mx::is_available(mx::Device(mx::Device::gpu)); }

void refuse_after_fork() {
  if (g_is_forked_child.load(std::memory_order_relaxed)) {
    throw Error(kRuntimeException,
                "ort_mlx: this process was forked from one that had used MLX, which does not work "
                "in a forked child. Start workers with multiprocessing's 'spawn' method, or create "
                "the first session after the fork");
  }
}

StreamLease::StreamLease(mx::Device device)
    : stream_(acquire(device)),
      host_stream_(device == mx::Device::cpu ? stream_ : acquire(mx::Device::cpu)) {
  watch_for_fork();
  g_mlx_was_used.store(true);
}

StreamLease::~StreamLease() {
  std::lock_guard lock(pool().mutex);
  pool().idle.push_back(stream_);
  if (host_stream_ != stream_) pool().idle.push_back(host_stream_);
}

StreamScope::StreamScope(const StreamLease& lease)
    : device_(mx::default_device()), stream_(mx::default_stream(lease.stream().device)) {
  mx::set_default_device(lease.stream().device);
  mx::set_default_stream(lease.stream());
}

StreamScope::~StreamScope() {
  mx::set_default_stream(stream_);
  mx::set_default_device(device_);
}

}  // namespace ort_mlx
