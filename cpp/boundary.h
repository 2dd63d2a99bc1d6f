// Where C++ meets the C ABI: no exception gets past this file, and nothing else in the library
// catches on its behalf. Code below the boundary throws, code above it is C.
#pragma once

#include <atomic>
#include <exception>
#include <new>
#include <utility>

#include "ort.h"

namespace ort_mlx {

// A test sets this to make every guarded callback throw once entered.
inline std::atomic<bool> g_throw_in_callbacks{false};
// Exceptions swallowed by callbacks that have no way to report them.
inline std::atomic<long> g_swallowed_exceptions{0};

inline void maybe_throw_for_test() {
  if (g_throw_in_callbacks.load(std::memory_order_relaxed)) {
    throw std::runtime_error("thrown on purpose by a test");
  }
}

inline OrtStatus* make_status(const Runtime& ort, int code, const char* text) noexcept {
  return ort.call(api::CreateStatus, code, text);
}

// Runs `body` and turns whatever it throws into an OrtStatus.
template <class Body>
OrtStatus* at_boundary(const Runtime& ort, Body&& body) noexcept {
  try {
    maybe_throw_for_test();
    std::forward<Body>(body)();
    return nullptr;
  } catch (const Error& e) {
    return make_status(ort, e.code(), e.what());
  } catch (const std::bad_alloc&) {
    return make_status(ort, kRuntimeException, "ort_mlx: out of memory");
  } catch (const std::invalid_argument& e) {  // MLX: shapes or dtypes that do not fit
    return make_status(ort, kInvalidArgument, e.what());
  } catch (const std::exception& e) {
    return make_status(ort, kRuntimeException, e.what());
  } catch (...) {
    return make_status(ort, kRuntimeException, "ort_mlx: unknown C++ exception");
  }
}

// The same for callbacks that return nothing: there is nobody to tell, so count it.
template <class Body>
void at_void_boundary(Body&& body) noexcept {
  try {
    maybe_throw_for_test();
    std::forward<Body>(body)();
  } catch (...) {
    g_swallowed_exceptions.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace ort_mlx
