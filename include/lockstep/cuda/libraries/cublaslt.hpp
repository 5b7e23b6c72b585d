// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/libraries/bounded_cache.hpp>
#include <lockstep/cuda/libraries/precision.hpp>
#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/cuda/runtime/per_device.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/non_copyable.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include <cublasLt.h>

// cuBLASLt's handles and descriptors. The descriptors live on the stack: the library needs none of
// them after a call.
namespace lockstep::cuda {

// Throws a CudaError unless a call of cuBLASLt succeeded.
inline void check(cublasStatus_t status, const char* call, Device device) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  throw CudaError(detail::str(call, " on ", device, ": ", cublasLtGetStatusString(status), " (",
                              cublasLtGetStatusName(status), ", ", static_cast<int>(status), ")"),
                  static_cast<int>(status));
}

// The largest power of two up to 256 that an address is a multiple of: the library does not ask for
// more.
inline std::uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data) | 256;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

// One matrix, or several `stride` elements apart, whose columns are `ld` elements apart.
struct MatrixLayout {
  std::int64_t rows, cols, ld;
  std::int64_t stride = 0;

  friend auto operator<=>(const MatrixLayout&, const MatrixLayout&) = default;
};

// Everything that the choice of an algorithm depends on. `d` is m × n, and so is c if it is added.
struct MatmulProblem {
  cudaDataType_t type;
  cublasComputeType_t compute;
  bool trans_a, trans_b;
  bool bias;
  MatrixLayout a, b, d;
  std::int64_t batch;
  std::uint32_t align_a, align_b, align_d, align_bias;

  friend auto operator<=>(const MatmulProblem&, const MatmulProblem&) = default;
};

// The compute type of f32 at a precision.
inline cublasComputeType_t compute_type(MatmulPrecision precision) {
  if (precision == MatmulPrecision::high) return CUBLAS_COMPUTE_32F_FAST_TF32;
  if (precision == MatmulPrecision::medium) return CUBLAS_COMPUTE_32F_FAST_16BF;
  return CUBLAS_COMPUTE_32F;
}

// The library's descriptors of a problem.
class MatmulDescriptors : detail::NonCopyable {
 public:
  MatmulDescriptors(const MatmulProblem& problem, const void* bias, Device device)
      : device_(device) {
    check(cublasLtMatmulDescInit(&operation, problem.compute, problem.type),
          "cublasLtMatmulDescInit", device);
    set(CUBLASLT_MATMUL_DESC_TRANSA, transpose(problem.trans_a));
    set(CUBLASLT_MATMUL_DESC_TRANSB, transpose(problem.trans_b));
    if (problem.bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{CUBLASLT_EPILOGUE_BIAS});
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
    init(a, problem.a, problem);
    init(b, problem.b, problem);
    init(d, problem.d, problem);
  }

  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, d;

 private:
  static std::int32_t transpose(bool yes) { return yes ? CUBLAS_OP_T : CUBLAS_OP_N; }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    check(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute", device_);
  }

  void init(cublasLtMatrixLayoutOpaque_t& to, const MatrixLayout& from,
            const MatmulProblem& problem) {
    check(cublasLtMatrixLayoutInit(&to, problem.type, static_cast<std::uint64_t>(from.rows),
                                   static_cast<std::uint64_t>(from.cols), from.ld),
          "cublasLtMatrixLayoutInit", device_);
    if (problem.batch == 1) return;
    const auto batch = static_cast<std::int32_t>(problem.batch);
    check(cublasLtMatrixLayoutSetAttribute(&to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                           sizeof batch),
          "cublasLtMatrixLayoutSetAttribute", device_);
    check(cublasLtMatrixLayoutSetAttribute(&to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                           &from.stride, sizeof from.stride),
          "cublasLtMatrixLayoutSetAttribute", device_);
  }

  const Device device_;
};

// The library on one device.
//
// Threads: any, the handle included; `mutex_` guards what was asked of the heuristics.
class CublasLt {
 public:
  explicit CublasLt(Device device) : device_(device) {
    check(cublasLtCreate(&handle_), "cublasLtCreate", device);
  }

  cublasLtHandle_t handle() const { return handle_; }

  // The algorithm that the library's heuristics put first, asked once for each problem; none if the
  // library cannot solve it. The caller has made the device's GPU current.
  std::optional<cublasLtMatmulHeuristicResult_t> algorithm(const MatmulProblem& problem,
                                                           MatmulDescriptors& descriptors) {
    const std::lock_guard lock(mutex_);
    return known_.find_or(problem, [&] { return ask(problem, descriptors); });
  }

 private:
  static constexpr std::size_t kMostWorkspace = std::size_t{32} << 20;
  static constexpr std::size_t kMostKnown = 1024;

  std::optional<cublasLtMatmulHeuristicResult_t> ask(const MatmulProblem& problem,
                                                     MatmulDescriptors& descriptors) const {
    cublasLtMatmulPreferenceOpaque_t preference;
    check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit", device_);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value),
            "cublasLtMatmulPreferenceSetAttribute", device_);
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kMostWorkspace});
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, problem.align_a);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, problem.align_b);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, problem.align_d);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, problem.align_d);

    cublasLtMatmulHeuristicResult_t best;
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, &descriptors.operation, &descriptors.a, &descriptors.b, &descriptors.d,
        &descriptors.d, &preference, 1, &best, &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return std::nullopt;
    check(status, "cublasLtMatmulAlgoGetHeuristic", device_);
    if (count == 0 || best.state != CUBLAS_STATUS_SUCCESS) return std::nullopt;
    return best;
  }

  const Device device_;
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  BoundedCache<MatmulProblem, std::optional<cublasLtMatmulHeuristicResult_t>> known_{kMostKnown};
};

}  // namespace lockstep::cuda
