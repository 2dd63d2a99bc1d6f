#include "parallel.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

namespace ort_mlx::cpu {

namespace {

// Leaked on purpose: its threads may be working while static destructors run.
class Pool {
 public:
  static Pool& instance() {
    static auto* pool = new Pool;
    return *pool;
  }

  void post(std::function<void()> task) {
    {
      std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    ready_.notify_one();
  }

 private:
  Pool() {
    for (int i = 1; i < default_threads(); ++i) {
      std::thread([this] { work(); }).detach();
    }
  }

  void work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [&] { return !tasks_.empty(); });
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> tasks_;
};

// Counts parts down and keeps the first exception.
class Latch {
 public:
  explicit Latch(int parts) : parts_(parts) {}

  void run(const std::function<void()>& part) noexcept {
    std::exception_ptr error;
    try {
      part();
    } catch (...) {
      error = std::current_exception();
    }
    std::lock_guard lock(mutex_);
    if (error != nullptr && error_ == nullptr) error_ = error;
    if (--parts_ == 0) done_.notify_all();
  }

  void wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return parts_ == 0; });
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  int parts_;
  std::exception_ptr error_;
};

}  // namespace

int default_threads() {
  static const int count = std::max(1u, std::thread::hardware_concurrency());
  return count;
}

void parallel_ranges(int threads, int64_t count, int64_t unit,
                     const std::function<void(int64_t, int64_t)>& body) {
  const int64_t units = (count + unit - 1) / unit;
  const int64_t parts = std::min<int64_t>({std::max(threads, 1), default_threads(), units});
  if (parts <= 1) {
    if (count > 0) body(0, count);
    return;
  }
  Latch latch(static_cast<int>(parts));
  auto part = [&](int64_t p) {
    const int64_t first = units * p / parts * unit;
    const int64_t last = std::min(count, units * (p + 1) / parts * unit);
    body(first, last);
  };
  for (int64_t p = 1; p < parts; ++p) {
    Pool::instance().post([&latch, &part, p] { latch.run([&] { part(p); }); });
  }
  latch.run([&] { part(0); });
  latch.wait();
}

}  // namespace ort_mlx::cpu
