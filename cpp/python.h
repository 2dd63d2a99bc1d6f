// The only way into the interpreter. ORT may hold the GIL or not when it calls us; both work.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

#include "ort.h"

namespace ort_mlx {

namespace nb = nanobind;

// False once the interpreter is gone, or going while this thread does not hold the GIL.
bool python_is_usable();

// Entries into Python since the library was loaded; a steady-state Run adds none.
long python_entries();
void count_python_entry();

// What a Python exception becomes: ValueError is the user's mistake, everything else is ours.
Error error_from_python(nb::python_error& error);

template <class Body>
auto with_python(Body&& body) {
  if (!python_is_usable()) {
    throw Error(kRuntimeException, "ort_mlx: the Python interpreter is not running");
  }
  count_python_entry();
  nb::gil_scoped_acquire gil;
  try {
    return std::forward<Body>(body)();
  } catch (nb::python_error& error) {
    throw error_from_python(error);
  }
}

// Lets go of the GIL where this thread holds it, so that waiting for a lock cannot deadlock.
class GilYield {
 public:
  GilYield() : state_(PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  GilYield(const GilYield&) = delete;
  GilYield& operator=(const GilYield&) = delete;
  ~GilYield() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }

 private:
  PyThreadState* state_;
};

// A Python reference that may be dropped on any thread, even at exit.
class PyRef {
 public:
  PyRef() = default;
  explicit PyRef(nb::object object) : ptr_(object.release().ptr()) {}
  PyRef(PyRef&& other) noexcept : ptr_(std::exchange(other.ptr_, nullptr)) {}
  PyRef& operator=(PyRef&& other) noexcept {
    std::swap(ptr_, other.ptr_);
    return *this;
  }
  ~PyRef() {
    if (ptr_ == nullptr || !python_is_usable()) return;  // leak rather than crash at exit
    nb::gil_scoped_acquire gil;
    Py_DECREF(ptr_);
  }
  nb::handle get() const { return ptr_; }

 private:
  PyObject* ptr_ = nullptr;
};

}  // namespace ort_mlx
