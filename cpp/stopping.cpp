#include "stopping.h"

#include <pthread.h>
#include <unistd.h>

#include "python.h"
#if defined(__linux__)
#include <sys/syscall.h>
#endif

namespace ort_mlx {

namespace {

using Clock = std::chrono::steady_clock;

// How often a Run takes the GIL to ask Python for signals. A shorter one never does.
constexpr auto kListenEvery = std::chrono::milliseconds(50);

std::atomic<long> g_signal_checks{0};

thread_local Stoppable* t_scope = nullptr;

// Signals are Python's main thread's to handle.
bool is_main_thread() {
#if defined(__linux__)
  thread_local const bool is_main = syscall(SYS_gettid) == getpid();
  return is_main;
#else
  return pthread_main_np() != 0;
#endif
}

}  // namespace

Stoppable::Stoppable(const CancelFlag& flag)
    : flag_(flag),
      requests_before_(flag.requests()),
      is_main_thread_(is_main_thread()),
      next_listen_(is_main_thread_ ? Clock::now() + kListenEvery : Clock::time_point::max()),
      outer_(std::exchange(t_scope, this)) {}

Stoppable::~Stoppable() { t_scope = outer_; }

void Stoppable::refuse_inside(const CancelFlag& flag) {
  for (const Stoppable* scope = t_scope; scope != nullptr; scope = scope->outer_) {
    if (&scope->flag_ != &flag) continue;
    throw Error(kRuntimeException,
                "ort_mlx: this thread is in a Run of the session already; the handler of a signal "
                "cannot start another");
  }
}

void Stoppable::look() const {
  if (flag_.requests() != requests_before_) {
    throw Stopped("ort_mlx: this Run was stopped by ort_mlx.cancel");
  }
}

void Stoppable::listen() {
  if (!is_main_thread_ || Clock::now() < next_listen_ || !python_is_usable()) return;
  g_signal_checks.fetch_add(1, std::memory_order_relaxed);
  nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) {
    nb::python_error error;  // of the handler, and taken from Python here
    if (error.matches(PyExc_KeyboardInterrupt)) {
      throw Stopped("ort_mlx: this Run was interrupted from the keyboard");
    }
    throw Stopped("ort_mlx: this Run was ended by a signal: " +
                  std::string(error_from_python(error).what()));
  }
  next_listen_ = Clock::now() + kListenEvery;
}

long signal_checks() { return g_signal_checks.load(std::memory_order_relaxed); }

void check_stopped() {
  if (t_scope == nullptr) return;
  t_scope->look();
  t_scope->listen();
}

}  // namespace ort_mlx
