#include "parallel.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
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

// Parts of a piece of work, taken one after the other by whoever is free: a thread that wakes late,
// on a busy machine, finds less or nothing left to do, and is not waited for.
class Parts {
 public:
  Parts(int64_t count, const std::function<void(int64_t)>& part) : count_(count), part_(part) {}

  void work() noexcept {
    for (int64_t p; (p = next_.fetch_add(1)) < count_;) {
      std::exception_ptr error;
      try {
        part_(p);
      } catch (...) {
        error = std::current_exception();
      }
      std::lock_guard lock(mutex_);
      if (error != nullptr && error_ == nullptr) error_ = error;
      if (++done_ == count_) all_done_.notify_all();
    }
  }

  // Rethrows the first exception.
  void wait() {
    std::unique_lock lock(mutex_);
    all_done_.wait(lock, [&] { return done_ == count_; });
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  const int64_t count_;
  const std::function<void(int64_t)>& part_;  // there until all parts are done
  std::atomic<int64_t> next_{0};
  std::mutex mutex_;
  std::condition_variable all_done_;
  std::exception_ptr error_;
  int64_t done_ = 0;
};

}  // namespace

int default_threads() {
  static const int count = std::max(1u, std::thread::hardware_concurrency());
  return count;
}

void parallel_ranges(int threads, int64_t count, int64_t unit,
                     const std::function<void(int64_t, int64_t)>& body) {
  const int64_t units = (count + unit - 1) / unit;
  const int64_t used = std::min<int64_t>({std::max(threads, 1), default_threads(), units});
  if (used <= 1) {
    if (count > 0) body(0, count);
    return;
  }

  const std::function<void(int64_t)> part = [&](int64_t p) {
    body(units * p / used * unit, std::min(count, units * (p + 1) / used * unit));
  };
  const auto shared = std::make_shared<Parts>(used, part);
  for (int64_t t = 1; t < used; ++t) Pool::instance().post([shared] { shared->work(); });
  shared->work();
  shared->wait();
}

}  // namespace ort_mlx::cpu
