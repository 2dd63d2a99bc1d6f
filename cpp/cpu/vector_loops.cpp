// Compiled once for each instruction set, into the namespace ORT_MLX_ISA. It includes nothing that
// defines inline functions: the linker could keep one built for a processor that is not there.

#include "vector.h"

extern "C" float powf(float, float) noexcept;

namespace ort_mlx::cpu::ORT_MLX_ISA {

namespace {

int32_t bits(float x) { return __builtin_bit_cast(int32_t, x); }
float lane(int32_t x) { return __builtin_bit_cast(float, x); }

constexpr float kInfinity = __builtin_inff();
constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer

// 2^n for n in [-126, 127].
float power_of_two(int32_t n) { return lane((n + 127) << 23); }

float exp_of(float x) {
  float t = x > 89.0f ? 89.0f : x;
  t = t < -104.0f ? -104.0f : t;
  const float rounded = t * 1.44269504f + kRounder;
  const int32_t n = bits(rounded) - bits(kRounder);
  const float whole = rounded - kRounder;
  const float r = (t - whole * 0.693359375f) + whole * 2.12194440e-4f;
  float p = 1.394759242e-03f;
  p = p * r + 8.369864861e-03f;
  p = p * r + 4.166624692e-02f;
  p = p * r + 1.666650993e-01f;
  p = p * r + 5.000000086e-01f;
  p = (p * r * r + r) + 1.0f;
  // In two steps, so that subnormal results and those near the largest float come out right.
  const int32_t half = n >> 1;
  return p * power_of_two(half) * power_of_two(n - half);
}

float log_of(float x) {
  const bool is_tiny = x < 1.17549435e-38f;
  const float scaled = is_tiny ? x * 8388608.0f : x;
  // The fraction in [sqrt(1/2), sqrt(2)).
  const int32_t shifted = bits(scaled) - 0x3f3504f3;
  const int32_t n = (shifted >> 23) - (is_tiny ? 23 : 0);
  const float f = lane((shifted & 0x7fffff) + 0x3f3504f3) - 1.0f;
  float p = -7.660818947e-02f;
  p = p * f + 1.278633053e-01f;
  p = p * f + -1.316160575e-01f;
  p = p * f + 1.419787663e-01f;
  p = p * f + -1.662275246e-01f;
  p = p * f + 2.000141236e-01f;
  p = p * f + -2.500084621e-01f;
  p = p * f + 3.333332903e-01f;
  const float s = f * f;
  const float whole = static_cast<float>(n);
  float y = (p * f * s + whole * -2.12194440e-4f) - 0.5f * s;
  y = (f + y) + whole * 0.693359375f;
  y = x == kInfinity ? kInfinity : y;
  y = x == 0.0f ? -kInfinity : y;
  return x >= 0.0f ? y : lane(0x7fc00000);  // NaN, and below zero
}

float erf_of(float x) {
  const float t = __builtin_fabsf(x);
  const float s = x * x;
  float small = -9.673590416e-06f;
  small = small * s + 1.126825376e-04f;
  small = small * s + -8.484396531e-04f;
  small = small * s + 5.221053411e-03f;
  small = small * s + -2.686543831e-02f;
  small = small * s + 1.128378262e-01f;
  small = small * s + -3.761263848e-01f;
  small = small * s + 1.283791672e-01f;
  small = small * t + t;
  // 1 - exp(-q), where q is -log(erfc(t)).
  const float u = t > 4.0f ? 4.0f : t;
  float q = 2.155538792e-05f;
  q = q * u + -4.397527617e-04f;
  q = q * u + 4.196566787e-03f;
  q = q * u + -2.518631917e-02f;
  q = q * u + 1.083832281e-01f;
  q = q * u + 6.332533629e-01f;
  q = q * u + 1.129561171e+00f;
  q = q * u + -1.843018546e-04f;
  const float large = 1.0f - exp_of(-q);
  return x != x ? x : __builtin_copysignf(t < 1.0f ? small : large, x);
}

float tanh_of(float x) {
  const float t = __builtin_fabsf(x);
  const float s = x * x;
  float p = -5.704042524e-03f;
  p = p * s + 2.063786149e-02f;
  p = p * s + -5.373915650e-02f;
  p = p * s + 1.333143175e-01f;
  p = p * s + -3.333328128e-01f;
  const float small = p * s * t + t;
  const float large = 1.0f - 2.0f / (exp_of(t + t) + 1.0f);
  return __builtin_copysignf(t < 0.625f ? small : large, x);
}

float sigmoid_of(float x) { return 1.0f / (1.0f + exp_of(-x)); }
float maximum_of(float a, float b) { return a > b || a != a ? a : b; }
float minimum_of(float a, float b) { return a < b || a != a ? a : b; }

template <class F>
void map(const float* a, float* to, int64_t n, F f) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = f(a[i]);
}

template <class F>
void map(const float* a, const float* b, float* to, int64_t n, F f) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = f(a[i], b[i]);
}

// The same on int32 lanes.
template <class F>
void map_int(const float* a, float* to, int64_t n, F f) {
  map(a, to, n, [f](float x) { return lane(f(bits(x))); });
}

template <class F>
void map_int(const float* a, const float* b, float* to, int64_t n, F f) {
  map(a, b, to, n, [f](float x, float y) { return lane(f(bits(x), bits(y))); });
}

// Many lanes at a time, which hides the latency and keeps the error of a sum small. A reduction
// clause would lose NaN in a maximum.
template <class F>
float fold(const float* x, int64_t n, float first, F f) {
  constexpr int kLanes = 64;
  float result = first;
  int64_t i = 0;
  if (n >= kLanes) {
    float lanes[kLanes];
    for (float& l : lanes) l = first;
    for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
      for (int k = 0; k < kLanes; ++k) lanes[k] = f(x[i + k], lanes[k]);
    }
    for (int width = kLanes / 2; width > 0; width /= 2) {
      for (int k = 0; k < width; ++k) lanes[k] = f(lanes[k + width], lanes[k]);
    }
    result = lanes[0];
  }
  for (; i < n; ++i) result = f(x[i], result);
  return result;
}

float sum(const float* x, int64_t n) {
  return fold(x, n, 0.0f, [](float a, float b) { return a + b; });
}

float maximum(const float* x, int64_t n) {
  return fold(x, n, -kInfinity, [](float a, float b) { return maximum_of(a, b); });
}

float minimum(const float* x, int64_t n) {
  return fold(x, n, kInfinity, [](float a, float b) { return minimum_of(a, b); });
}

void fill(float* to, float value, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = value;
}

void gather(float* to, const float* from, int64_t stride, int64_t n) {
  if (stride == 2) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * 2];
    return;
  }
  for (int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
}

void widen_bytes(float* to, const uint8_t* from, int64_t stride, int64_t n) {
  if (stride == 1) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) to[i] = lane(from[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i) to[i] = lane(from[i * stride]);
}

void narrow_bytes(uint8_t* to, const float* from, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<uint8_t>(bits(from[i]));
}

void softmax(const float* x, float* to, int64_t n) {
  const float top = maximum(x, n);
  map(x, to, n, [top](float v) { return exp_of(v - top); });
  const float scale = 1.0f / sum(to, n);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] *= scale;
}

void accumulate(float* to, const float* from, int64_t stride, float weight, int64_t n) {
  if (stride == 1) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) to[i] += weight * from[i];
  } else if (stride == 2) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) to[i] += weight * from[i * 2];
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] += weight * from[i * stride];
  }
}

void step(const Instruction& in, float* const* registers, int64_t length) {
  const int64_t n = in.is_scalar ? 1 : length;
  float* to = registers[in.to];
  const float *a = registers[in.a], *b = registers[in.b], *c = registers[in.c];
  switch (in.op) {
    case Op::kNegative:
      return map(a, to, n, [](float x) { return -x; });
    case Op::kAbs:
      return map(a, to, n, [](float x) { return __builtin_fabsf(x); });
    case Op::kSquare:
      return map(a, to, n, [](float x) { return x * x; });
    case Op::kSqrt:
      return map(a, to, n, [](float x) { return __builtin_sqrtf(x); });
    case Op::kRsqrt:
      return map(a, to, n, [](float x) { return 1.0f / __builtin_sqrtf(x); });
    case Op::kExp:
      return map(a, to, n, [](float x) { return exp_of(x); });
    case Op::kLog:
      return map(a, to, n, [](float x) { return log_of(x); });
    case Op::kErf:
      return map(a, to, n, [](float x) { return erf_of(x); });
    case Op::kTanh:
      return map(a, to, n, [](float x) { return tanh_of(x); });
    case Op::kSigmoid:
      return map(a, to, n, [](float x) { return sigmoid_of(x); });
    case Op::kFloor:
      return map(a, to, n, [](float x) { return __builtin_floorf(x); });
    case Op::kCeil:
      return map(a, to, n, [](float x) { return __builtin_ceilf(x); });
    case Op::kRound:
      return map(a, to, n, [](float x) { return __builtin_rintf(x); });
    case Op::kAdd:
      return map(a, b, to, n, [](float x, float y) { return x + y; });
    case Op::kSubtract:
      return map(a, b, to, n, [](float x, float y) { return x - y; });
    case Op::kMultiply:
      return map(a, b, to, n, [](float x, float y) { return x * y; });
    case Op::kDivide:
      return map(a, b, to, n, [](float x, float y) { return x / y; });
    case Op::kMaximum:
      return map(a, b, to, n, [](float x, float y) { return maximum_of(x, y); });
    case Op::kMinimum:
      return map(a, b, to, n, [](float x, float y) { return minimum_of(x, y); });
    case Op::kPower:
      for (int64_t i = 0; i < n; ++i) to[i] = powf(a[i], b[i]);
      return;
    case Op::kEqual:
      return map(a, b, to, n, [](float x, float y) { return lane(x == y); });
    case Op::kNotEqual:
      return map(a, b, to, n, [](float x, float y) { return lane(x != y); });
    case Op::kLess:
      return map(a, b, to, n, [](float x, float y) { return lane(x < y); });
    case Op::kLessEqual:
      return map(a, b, to, n, [](float x, float y) { return lane(x <= y); });
    case Op::kGreater:
      return map(a, b, to, n, [](float x, float y) { return lane(x > y); });
    case Op::kGreaterEqual:
      return map(a, b, to, n, [](float x, float y) { return lane(x >= y); });
    // Wraps around as MLX's does, without C++'s undefined overflow.
    case Op::kIntNegative:
      return map_int(a, to, n, [](uint32_t x) { return int32_t(0u - x); });
    case Op::kIntAbs:
      return map_int(a, to, n, [](int32_t x) { return x < 0 ? int32_t(0u - uint32_t(x)) : x; });
    case Op::kIntSquare:
      return map_int(a, to, n, [](uint32_t x) { return int32_t(x * x); });
    case Op::kIntAdd:
      return map_int(a, b, to, n, [](uint32_t x, uint32_t y) { return int32_t(x + y); });
    case Op::kIntSubtract:
      return map_int(a, b, to, n, [](uint32_t x, uint32_t y) { return int32_t(x - y); });
    case Op::kIntMultiply:
      return map_int(a, b, to, n, [](uint32_t x, uint32_t y) { return int32_t(x * y); });
    case Op::kIntMaximum:
      return map_int(a, b, to, n, [](int32_t x, int32_t y) { return x > y ? x : y; });
    case Op::kIntMinimum:
      return map_int(a, b, to, n, [](int32_t x, int32_t y) { return x < y ? x : y; });
    case Op::kIntEqual:
      return map_int(a, b, to, n, [](int32_t x, int32_t y) { return x == y; });
    case Op::kIntNotEqual:
      return map_int(a, b, to, n, [](int32_t x, int32_t y) { return x != y; });
    case Op::kIntLess:
      return map_int(a, b, to, n, [](int32_t x, int32_t y) { return x < y; });
    case Op::kIntLessEqual:
      return map_int(a, b, to, n, [](int32_t x, int32_t y) { return x <= y; });
    case Op::kIntGreater:
      return map_int(a, b, to, n, [](int32_t x, int32_t y) { return x > y; });
    case Op::kIntGreaterEqual:
      return map_int(a, b, to, n, [](int32_t x, int32_t y) { return x >= y; });
    case Op::kAnd:
      return map_int(a, b, to, n, [](int32_t x, int32_t y) { return x & y; });
    case Op::kOr:
      return map_int(a, b, to, n, [](int32_t x, int32_t y) { return x | y; });
    case Op::kNot:
      return map_int(a, to, n, [](int32_t x) { return x ^ 1; });
    case Op::kSelect:
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) to[i] = bits(a[i]) != 0 ? b[i] : c[i];
      return;
    case Op::kFloatOfInt:
      return map(a, to, n, [](float x) { return static_cast<float>(bits(x)); });
    case Op::kIntOfFloat:
      return map(a, to, n, [](float x) { return lane(static_cast<int32_t>(x)); });
    case Op::kBoolOfFloat:
      return map(a, to, n, [](float x) { return lane(x != 0.0f); });
    case Op::kBoolOfInt:
      return map_int(a, to, n, [](int32_t x) { return x != 0; });
    case Op::kRowSum:
      to[0] = sum(a, length);
      return;
    case Op::kRowMax:
      to[0] = maximum(a, length);
      return;
    case Op::kRowMin:
      to[0] = minimum(a, length);
      return;
    case Op::kRowSoftmax:
      return softmax(a, to, length);
    case Op::kSpread:
      return fill(to, a[0], length);
  }
}

void run(const Instruction* code, int64_t count, float* const* registers, int64_t n) {
  for (int64_t i = 0; i < count; ++i) step(code[i], registers, n);
}

}  // namespace

extern const Vectors kVectors;
const Vectors kVectors = {run, fill, gather, widen_bytes, narrow_bytes, accumulate};

}  // namespace ort_mlx::cpu::ORT_MLX_ISA
