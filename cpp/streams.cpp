#include "streams.h"

#include <mlx/device.h>
#include <mlx/scheduler.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
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

// MLX looks a stream up in a table without a lock, and a new stream may move the table. So streams
// are made many at a time, before other threads run: on a GPU fewer, for each has a queue there.
constexpr int kStreamsAhead = 128;
constexpr int kGpuStreamsAhead = 8;

mx::Stream acquire(mx::Device device) {
  std::lock_guard lock(pool().mutex);
  auto& idle = pool().idle;
  const auto is_fit = [&](const mx::Stream& stream) { return stream.device == device; };
  auto found = std::find_if(idle.begin(), idle.end(), is_fit);
  if (found == idle.end()) {
    const int count = device == mx::Device::cpu ? kStreamsAhead : kGpuStreamsAhead;
    for (int i = 0; i < count; ++i) idle.push_back(mx::new_thread_unsafe_stream(device));
    found = idle.end() - count;
  }
  mx::Stream stream = *found;
  idle.erase(found);
  return stream;
}

// MLX counts a task before it queues it with the note of its end. On the main thread queueing
// throws when an earlier task failed, and the count stays too high for good: after a few failures
// every evaluation of more than a few operations would wait for an end that never comes. Tasks of
// other threads come and go meanwhile, so what is left over is the least seen in a while.
void forget_lost_tasks(mx::Stream stream) {
  constexpr auto kWhile = std::chrono::milliseconds(20);
  int lost = mx::scheduler::n_active_tasks();
  for (const auto end = std::chrono::steady_clock::now() + kWhile;
       lost > 0 && std::chrono::steady_clock::now() < end;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lost = std::min(lost, mx::scheduler::n_active_tasks());
  }
  for (; lost > 0; --lost) mx::scheduler::notify_task_completion(stream);
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

void settle(mx::Stream stream) noexcept {
  // Throws the error of each task that failed once, on the main thread before it has waited. A GPU
  // that is lost throws for ever.
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    try {
      mx::synchronize(stream);
      break;
    } catch (const std::exception&) {
    }
  }
  forget_lost_tasks(stream);
}

void StreamLease::settle() const noexcept {
  ort_mlx::settle(stream_);
  if (host_stream_ != stream_) ort_mlx::settle(host_stream_);
}

StreamScope::StreamScope(const StreamLease& lease)
    : lease_(lease),
      exceptions_before_(std::uncaught_exceptions()),
      device_(mx::default_device()),
      stream_(mx::default_stream(lease.stream().device)) {
  mx::set_default_device(lease.stream().device);
  mx::set_default_stream(lease.stream());
}

StreamScope::~StreamScope() {
  if (std::uncaught_exceptions() > exceptions_before_) lease_.settle();
  mx::set_default_stream(stream_);
  mx::set_default_device(device_);
}

}  // namespace ort_mlx
