// Stopping the Run in progress on this thread, asked for by `cancel` or from the keyboard.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "ort.h"

namespace ort_mlx {

// A Run was asked to stop. Python sees it as ort_mlx.running.Cancelled.
class Stopped : public Error {
 public:
  explicit Stopped(const std::string& text) : Error(kRuntimeException, text) {}
};

// One for each session; set from any thread.
class CancelFlag {
 public:
  void request() { requests_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t requests() const { return requests_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> requests_{0};
};

// Lets the flag, and Ctrl-C on the main thread, stop what this thread runs while the scope lasts.
class Stoppable {
 public:
  explicit Stoppable(const CancelFlag& flag);
  Stoppable(const Stoppable&) = delete;
  Stoppable& operator=(const Stoppable&) = delete;
  ~Stoppable();

  // Throws when this thread is in a Run with the flag already, which holds the session's lock: the
  // handler of a signal may have started another.
  static void refuse_inside(const CancelFlag& flag);

 private:
  friend void check_stopped();
  void look() const;
  void listen();

  const CancelFlag& flag_;
  const uint64_t requests_before_;
  const bool is_main_thread_;
  std::chrono::steady_clock::time_point next_listen_;
  Stoppable* outer_;
};

// Throws Stopped when the Run of this thread was asked to stop. Cheap: once for every kernel.
void check_stopped();

// How often long Runs asked Python for signals, since the library was loaded. They are not among
// `python_entries`, since how long a Run takes is the machine's doing too.
long signal_checks();

}  // namespace ort_mlx
