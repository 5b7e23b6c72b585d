// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host/blas.hpp>
#include <lockstep/error.hpp>
#include <lockstep/warning.hpp>

#include <cblas.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace lockstep::detail {

LOCKSTEP_INLINE BlasControls BlasControls::linked() {
  BlasControls controls;
  controls.parallel = openblas_get_parallel;
  controls.config = openblas_get_config;
  controls.core = openblas_get_corename;
  if (openblas_set_num_threads != nullptr) {
    controls.threads = openblas_get_num_threads;
    controls.set_threads = openblas_set_num_threads;
  } else if (bli_thread_set_num_threads != nullptr) {
    controls.threads = [] { return static_cast<int>(bli_thread_get_num_threads()); };
    controls.set_threads = [](int count) { bli_thread_set_num_threads(count); };
  }
  return controls;
}

// OpenBLAS built for one thread does not lock its work buffers: two threads that multiply at once,
// even separate matrices, silently get wrong products.
inline void check_safe_for_concurrent_callers(const BlasControls& blas) {
  check<Error>(
      blas.parallel == nullptr || blas.parallel() != 0,
      "the OpenBLAS that this program runs with was built without threads (",
      blas.config != nullptr ? blas.config() : "unknown configuration",
      "): it returns wrong products when several threads call it at once. Install and use its "
      "pthread build (Debian: libopenblas0-pthread, chosen with update-alternatives --config "
      "libopenblas.so.0-x86_64-linux-gnu)");
}

LOCKSTEP_INLINE const char* better_blas_core(const BlasControls& blas) {
  if (blas.core == nullptr || std::string_view(blas.core()) != "Prescott") return nullptr;
  if (std::getenv("OPENBLAS_CORETYPE") != nullptr) return nullptr;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    return "SkylakeX";
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return nullptr;
}

LOCKSTEP_INLINE HostMath& HostMath::instance() {
  static HostMath& math = *new HostMath(BlasControls::linked());
  return math;
}

LOCKSTEP_INLINE HostMath::HostMath(const BlasControls& blas) : blas_(blas) {
  check_safe_for_concurrent_callers(blas_);
  if (const char* core = better_blas_core(blas_)) {
    warn(str(
        "the OpenBLAS that this program runs with (",
        blas_.config != nullptr ? blas_.config() : "unknown configuration",
        ") does not know this processor and multiplies matrices two to three times slower than it "
        "can. Start the program with OPENBLAS_CORETYPE=",
        core, ", or install a newer OpenBLAS"));
  }
  if (blas_.set_threads == nullptr) return;
  before_ = blas_.threads();
  blas_.set_threads(1);
}

LOCKSTEP_INLINE BlasInt blas_int(std::int64_t value) {
  check<Error>(std::in_range<BlasInt>(value), "a matrix product with a dimension of ", value,
               " is too large for the BLAS, whose integers have ", 8 * sizeof(BlasInt), " bits");
  return static_cast<BlasInt>(value);
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE void set_host_math_threads(int count) {
  check<ValueError>(count >= 1, "set_host_math_threads: expected at least 1, got ", count);
  detail::HostMath::instance().set_threads(count);
}

LOCKSTEP_INLINE void restore_host_math_threads() {
  const auto& math = detail::HostMath::instance();
  math.set_threads(math.threads_before());
}

}  // namespace lockstep
