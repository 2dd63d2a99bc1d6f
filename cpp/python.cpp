#include "python.h"

#include <atomic>

namespace ort_mlx {

namespace {

std::atomic<long> g_entries{0};

bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

}  // namespace

bool python_is_usable() {
  if (Py_IsInitialized() == 0) return false;
  // While finalizing, taking the GIL from another thread never returns.
  return !is_finalizing() || PyGILState_Check() != 0;
}

long python_entries() { return g_entries.load(std::memory_order_relaxed); }
void count_python_entry() { g_entries.fetch_add(1, std::memory_order_relaxed); }

Error error_from_python(nb::python_error& error) {
  int code = kRuntimeException;
  if (error.matches(PyExc_ValueError)) code = kInvalidArgument;
  if (error.matches(PyExc_NotImplementedError)) code = kNotImplemented;
  std::string text = nb::str(error.value()).c_str();
  if (!error.matches(PyExc_ValueError) && !error.matches(PyExc_RuntimeError)) {
    text = std::string(nb::str(error.type().attr("__name__")).c_str()) + ": " + text;
  }
  return Error(code, text);
}

}  // namespace ort_mlx
