// Single-precision products through OpenBLAS, found at run time. MLX's CPU wheel links the
// reference BLAS, which is some fifty times slower.
#pragma once

#include <cstdint>
#include <string>

namespace ort_mlx::cpu {

// Loads the shared library of the scipy-openblas32 package. False when it has not what is needed.
bool load_blas(const std::string& path);
bool blas_is_loaded();
// Its build and the kernels it chose for this processor; empty when none is loaded.
std::string blas_description();

// A row-major matrix, or its transpose: `ld` elements lie between rows as stored.
struct Matrix {
  const float* data;
  int64_t ld;
  bool is_transposed;
};

// c[m, n] = alpha * a[m, k] b[k, n] + beta * c, on the calling thread alone.
void sgemm(int64_t m, int64_t n, int64_t k, float alpha, Matrix a, Matrix b, float beta, float* c,
           int64_t ldc);

// The same, with the larger side of c split over `threads` threads.
void parallel_sgemm(int threads, int64_t m, int64_t n, int64_t k, float alpha, Matrix a, Matrix b,
                    float beta, float* c, int64_t ldc);

}  // namespace ort_mlx::cpu
