// Arithmetic that takes subnormal numbers for zero. An operation on one costs x86 a hundred cycles,
// and trained weights of channels that died are full of them.
#pragma once

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace ort_mlx::cpu {

// On this thread, while it lives. Nothing on processors that compute with them at full speed.
class SubnormalsAsZero {
 public:
  SubnormalsAsZero(const SubnormalsAsZero&) = delete;
  SubnormalsAsZero& operator=(const SubnormalsAsZero&) = delete;
#ifdef __SSE2__
  SubnormalsAsZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kFlushResults | kZeroInputs); }
  ~SubnormalsAsZero() { _mm_setcsr(before_); }

 private:
  static constexpr unsigned kFlushResults = 0x8000, kZeroInputs = 0x0040;
  const unsigned before_;
#else
  SubnormalsAsZero() {}
  ~SubnormalsAsZero() {}
#endif
};

}  // namespace ort_mlx::cpu
