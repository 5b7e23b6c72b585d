// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host/tiny_gemm.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/config.hpp>
#include <lockstep/non_copyable.hpp>

#include <cblas.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

// Matrix products on the host, by any library behind cblas.h.
//
// Each product runs on one thread, since the callers are devices, which run in parallel already. A
// BLAS has one number of threads per process, so lockstep sets it to 1 at its first product.
namespace lockstep {

namespace detail {

// Functions that only OpenBLAS or only BLIS has; null in a program that links another BLAS.
extern "C" {
[[gnu::weak]] int openblas_get_parallel();
[[gnu::weak]] char* openblas_get_config();
[[gnu::weak]] char* openblas_get_corename();
[[gnu::weak]] int openblas_get_num_threads();
[[gnu::weak]] void openblas_set_num_threads(int);
[[gnu::weak]] std::int64_t bli_thread_get_num_threads();
[[gnu::weak]] void bli_thread_set_num_threads(std::int64_t);
}

// The controls of a BLAS; a member is null if the library lacks it. A library without controls runs
// as many threads as it likes.
struct BlasControls {
  int (*parallel)() = nullptr;  // OpenBLAS: 0 built without threads, 1 with threads, 2 with OpenMP
  char* (*config)() = nullptr;
  int (*threads)() = nullptr;
  void (*set_threads)(int) = nullptr;
  char* (*core)() = nullptr;  // OpenBLAS: the processor that its kernels are for

  static BlasControls linked();
};

// What OPENBLAS_CORETYPE should be when the program starts; null if OpenBLAS uses this processor's
// vectors, or the variable is set. An OpenBLAS that is older than the processor falls back to
// kernels for a Prescott, which are two to three times slower.
const char* better_blas_core(const BlasControls& blas);

// The BLAS of this process, made safe for concurrent callers at first use and never destroyed.
// Warns once of kernels for another processor.
class HostMath {
 public:
  static HostMath& instance();
  explicit HostMath(const BlasControls& blas);

  int threads() const { return blas_.threads != nullptr ? blas_.threads() : 1; }
  int threads_before() const { return before_; }
  void set_threads(int count) const {
    if (blas_.set_threads != nullptr) blas_.set_threads(count);
  }

 private:
  const BlasControls blas_;
  int before_ = 1;
};

}  // namespace detail

// The number of threads that one matrix product on the host may use: 1, unless somebody has set
// another number since lockstep's first product.
//
// **Torch counterpart.** torch.get_num_threads.
inline int host_math_threads() { return detail::HostMath::instance().threads(); }

// Sets that number for every thread of the process. More than 1 pays only if a single device
// computes. A BLAS without controls keeps its own number.
//
// **Torch counterpart.** torch.set_num_threads.
// **Threads and exceptions.** No other thread may be multiplying meanwhile. A ValueError unless
// `count` is at least 1.
void set_host_math_threads(int count);

// Restores the number that the process had before lockstep's first product, for a program that goes
// on with its own BLAS calls.
void restore_host_math_threads();

// Sets the number of maths threads for every thread of the process until the guard is destroyed.
class HostMathThreadsGuard : detail::NonCopyable {
 public:
  [[nodiscard]] explicit HostMathThreadsGuard(int count) : before_(host_math_threads()) {
    set_host_math_threads(count);
  }
  ~HostMathThreadsGuard() { detail::HostMath::instance().set_threads(before_); }

 private:
  const int before_;
};

namespace detail {

// The integer type of the linked CBLAS, from its 32-bit or 64-bit interface.
template <class R, class Order, class Transpose, class Int, class... Rest>
Int blas_int_of(R (*)(Order, Transpose, Transpose, Int, Rest...));
using BlasInt = decltype(blas_int_of(cblas_sgemm));

BlasInt blas_int(std::int64_t value);

// y = alpha · op(matrix) · x + beta · y, for a matrix stored as rows × columns, neither of them 0,
// and vectors whose elements are `step_x` and `step_y` apart. It reads the matrix once, where a
// matrix product would first pack it.
template <class T>
void host_gemv(bool trans, std::int64_t rows, std::int64_t columns, T alpha, const T* matrix,
               std::int64_t ld, const T* x, std::int64_t step_x, T beta, T* y,
               std::int64_t step_y) {
  if (beta == 0) {  // some BLAS multiplies the old y by 0, which keeps a NaN
    for (std::int64_t i = 0; i < (trans ? columns : rows); ++i) y[i * step_y] = 0;
  }
  const auto call = [&](auto* gemv) {
    gemv(CblasRowMajor, trans ? CblasTrans : CblasNoTrans, blas_int(rows), blas_int(columns), alpha,
         matrix, blas_int(ld), x, blas_int(step_x), beta, y, blas_int(step_y));
  };
  if constexpr (std::is_same_v<T, float>) {
    call(cblas_sgemv);
  } else {
    call(cblas_dgemv);
  }
}

// c = alpha · op(a) · op(b) + beta · c, where op(a) is m × k, op(b) k × n and c m × n, all
// row-major with leading dimensions `lda`, `ldb`, `ldc`, and op transposes or not. A `bias` of n
// values is added to every row instead of beta · c. With a bias or beta = 0 the old content of c
// does not matter, even NaN. An Error if the BLAS is not safe for concurrent callers, or a
// dimension is too large for its integers.
template <class T>
void host_gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, T alpha,
               const T* a, std::int64_t lda, const T* b, std::int64_t ldb, T beta, T* c,
               std::int64_t ldc, const T* bias = nullptr) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>);
  (void)HostMath::instance();
  if (m == 0 || n == 0) return;
  if (k > 0 && is_tiny_gemm(m, n, k)) {
    Addend<T> addend;
    if (beta != 0) addend = {c, ldc, 1};
    if (bias != nullptr) addend = {bias, 0, 1};
    return tiny_gemm(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, bias != nullptr ? 1 : beta,
                     addend, c, ldc);
  }
  if (bias != nullptr) {  // no further pass: the BLAS would fill c with zeros
    for (std::int64_t row = 0; row < m; ++row) std::copy_n(bias, n, c + row * ldc);
    beta = 1;
  }
  if (k == 0) {  // not every BLAS scales c then
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
    }
    return;
  }
  if (n == 1) {
    return host_gemv(trans_a, trans_a ? k : m, trans_a ? m : k, alpha, a, lda, b, trans_b ? 1 : ldb,
                     beta, c, ldc);
  }
  if (m == 1) {
    return host_gemv(!trans_b, trans_b ? n : k, trans_b ? k : n, alpha, b, ldb, a,
                     trans_a ? lda : 1, beta, c, 1);
  }
  const auto op_a = trans_a ? CblasTrans : CblasNoTrans;
  const auto op_b = trans_b ? CblasTrans : CblasNoTrans;
  const auto call = [&](auto* gemm) {
    gemm(CblasRowMajor, op_a, op_b, blas_int(m), blas_int(n), blas_int(k), alpha, a, blas_int(lda),
         b, blas_int(ldb), beta, c, blas_int(ldc));
  };
  if constexpr (std::is_same_v<T, float>) {
    call(cblas_sgemm);
  } else {
    call(cblas_dgemm);
  }
}

// A matrix product, or `batch` of them at fixed strides, as a Call. A `bias` (n values, or none) is
// added to every row; the old content of c is then not read.
template <class T>
struct Gemm {
  View<const T> a;
  View<const T> b;
  View<const T> bias;
  View<T> c;
  std::int64_t m, n, k;
  std::int64_t lda, ldb, ldc;
  bool trans_a = false;
  bool trans_b = false;
  T alpha = 1;
  T beta = 0;
  std::int64_t batch = 1;
  std::int64_t stride_a = 0;
  std::int64_t stride_b = 0;
  std::int64_t stride_c = 0;

  void operator()() const {
    for (std::int64_t i = 0; i < batch; ++i) {
      host_gemm(trans_a, trans_b, m, n, k, alpha, a.data + i * stride_a, lda, b.data + i * stride_b,
                ldb, beta, c.data + i * stride_c, ldc, bias.data);
    }
  }
};

}  // namespace detail

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/backend/host/impl/blas.ipp>
#endif
