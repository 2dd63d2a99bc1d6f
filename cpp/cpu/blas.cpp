#include "blas.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>

#include "parallel.h"

namespace ort_mlx::cpu {

namespace {

// cblas.h, which the package does not carry.
enum : int { kRowMajor = 101, kNoTranspose = 111, kTranspose = 112 };
using Gemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int,
                      float, float*, int);
using Gemv = void (*)(int, int, int, int, float, const float*, int, const float*, int, float,
                      float*, int);

struct Blas {
  Gemm sgemm = nullptr;
  Gemv sgemv = nullptr;
  char* (*config)() = nullptr;
};
std::atomic<const Blas*> g_blas{nullptr};

// Products smaller than this many multiply-adds are not worth waking another thread.
constexpr int64_t kSerialWork = 1 << 17;
// Rows of a that are multiplied one by one, since a product of matrices first copies b.
constexpr int64_t kFewRows = 3;
constexpr int64_t kSplitUnit = 16;  // columns or rows, so that a part keeps whole vectors

}  // namespace

bool load_blas(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return false;
  auto* found = new Blas;  // for the life of the process, like the library
  found->sgemm = reinterpret_cast<Gemm>(dlsym(library, "scipy_cblas_sgemm"));
  found->config = reinterpret_cast<char* (*)()>(dlsym(library, "scipy_openblas_get_config"));
  found->sgemv = reinterpret_cast<Gemv>(dlsym(library, "scipy_cblas_sgemv"));
  auto set_threads =
      reinterpret_cast<void (*)(int)>(dlsym(library, "scipy_openblas_set_num_threads"));
  if (found->sgemm == nullptr || found->sgemv == nullptr || set_threads == nullptr) return false;
  set_threads(1);  // the work is split here, so that a session's own number of threads holds
  g_blas.store(found);
  return true;
}

bool blas_is_loaded() { return g_blas.load() != nullptr; }

std::string blas_description() {
  const Blas* blas = g_blas.load();
  return blas == nullptr || blas->config == nullptr ? "" : blas->config();
}

void sgemm(int64_t m, int64_t n, int64_t k, float alpha, Matrix a, Matrix b, float beta, float* c,
           int64_t ldc) {
  const Blas* blas = g_blas.load(std::memory_order_relaxed);
  if (m <= kFewRows && k > 0) {
    const int64_t rows = b.is_transposed ? n : k, columns = b.is_transposed ? k : n;
    for (int64_t r = 0; r < m; ++r, c += ldc) {
      blas->sgemv(kRowMajor, b.is_transposed ? kNoTranspose : kTranspose, static_cast<int>(rows),
                  static_cast<int>(columns), alpha, b.data, static_cast<int>(b.ld),
                  a.data + (a.is_transposed ? r : r * a.ld),
                  a.is_transposed ? static_cast<int>(a.ld) : 1, beta, c, 1);
    }
    return;
  }
  blas->sgemm(kRowMajor, a.is_transposed ? kTranspose : kNoTranspose,
              b.is_transposed ? kTranspose : kNoTranspose, static_cast<int>(m), static_cast<int>(n),
              static_cast<int>(k), alpha, a.data, static_cast<int>(a.ld), b.data,
              static_cast<int>(b.ld), beta, c, static_cast<int>(ldc));
}

void parallel_sgemm(int threads, int64_t m, int64_t n, int64_t k, float alpha, Matrix a, Matrix b,
                    float beta, float* c, int64_t ldc) {
  if (m * n * k < kSerialWork) threads = 1;
  const bool by_columns = n >= m;
  parallel_ranges(threads, by_columns ? n : m, kSplitUnit, [&](int64_t first, int64_t last) {
    if (by_columns) {
      Matrix part = b;
      part.data += b.is_transposed ? first * b.ld : first;
      sgemm(m, last - first, k, alpha, a, part, beta, c + first, ldc);
    } else {
      Matrix part = a;
      part.data += a.is_transposed ? first : first * a.ld;
      sgemm(last - first, n, k, alpha, part, b, beta, c + first * ldc, ldc);
    }
  });
}

}  // namespace ort_mlx::cpu
