// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host/blas.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/libraries/cublaslt.hpp>
#include <lockstep/cuda/libraries/precision.hpp>
#include <lockstep/cuda/memory/scratch.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/cuda/runtime/device_guard.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace lockstep::cuda {

// Writes what c holds before a product is added: the bias in each row, or beta · c.
template <class T>
struct StartRows {
  View<const T> bias;
  View<T> c;
  std::int64_t m, n, ldc, stride_c;
  T beta;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t row = at / n;
    const std::int64_t col = at % n;
    T& element = c.data[row / m * stride_c + row % m * ldc + col];
    if (bias.data != nullptr) {
      element = bias.data[col];
    } else {
      element = beta == 0 ? T(0) : beta * element;
    }
  }
};

// A product by cuBLASLt, which takes its matrices by columns: the rows of a row-major matrix are
// the columns of its transpose, so it computes cᵀ = op(b)ᵀ · op(a)ᵀ. The bias has one value for
// each column of c and so for each row of cᵀ, as the library adds it in passing.
template <class T>
struct CudaCall<detail::Gemm<T>> {
  using Call = detail::Gemm<T>;
  using kernels = Kernels<StartRows<T>>;

  static void run(detail::StreamState& stream, const Call& call) {
    if (call.m == 0 || call.n == 0 || call.batch == 0) return;
    if (call.k == 0) return start_rows(stream, call);
    auto& on = static_cast<CudaStream&>(stream);
    const DeviceGuard guard(on.device());
    const bool bias = call.bias.data != nullptr;
    // Some releases of the library take a bias at a lesser alignment and misread it.
    const bool fused = bias && alignment_of(call.bias.data) >= 16;
    if ((fused || !bias) && multiply(on, call)) return;
    if (bias) {
      start_rows(stream, call);
      Call rest = call;
      rest.bias = {};
      rest.beta = 1;
      if (multiply(on, rest)) return;
    }
    throw CudaError(
        detail::str("cuBLASLt has no algorithm for a product of [", call.m, ", ", call.k, "] and [",
                    call.k, ", ", call.n, "] (batch ", call.batch, ") on ", on.device()),
        CUBLAS_STATUS_NOT_SUPPORTED);
  }

 private:
  static void start_rows(detail::StreamState& stream, const Call& call) {
    const auto count = static_cast<std::size_t>(call.batch * call.m * call.n);
    launch_kernel(
        stream, count,
        StartRows<T>{call.bias, call.c, call.m, call.n, call.ldc, call.stride_c, call.beta});
  }

  static MatmulProblem problem_of(const Call& call) {
    constexpr bool single = std::is_same_v<T, float>;
    const auto by_columns = [](std::int64_t rows, std::int64_t cols, bool transposed,
                               std::int64_t ld, std::int64_t stride) {
      return transposed ? MatrixLayout{rows, cols, ld, stride}
                        : MatrixLayout{cols, rows, ld, stride};
    };
    return {.type = single ? CUDA_R_32F : CUDA_R_64F,
            .compute = single ? compute_type(float32_matmul_precision()) : CUBLAS_COMPUTE_64F,
            .trans_a = call.trans_b,
            .trans_b = call.trans_a,
            .bias = call.bias.data != nullptr,
            .a = by_columns(call.k, call.n, call.trans_b, call.ldb, call.stride_b),
            .b = by_columns(call.m, call.k, call.trans_a, call.lda, call.stride_a),
            .d = by_columns(call.m, call.n, false, call.ldc, call.stride_c),
            .batch = call.batch,
            .align_a = alignment_of(call.b.data),
            .align_b = alignment_of(call.a.data),
            .align_d = alignment_of(call.c.data),
            .align_bias = alignment_of(call.bias.data)};
  }

  // False if the library cannot.
  static bool multiply(CudaStream& on, const Call& call) {
    const MatmulProblem problem = problem_of(call);
    if (problem.batch > std::numeric_limits<std::int32_t>::max()) return false;
    auto& library = per_device<CublasLt>(on.device());
    MatmulDescriptors descriptors(problem, call.bias.data, on.device());
    const auto best = library.algorithm(problem, descriptors);
    if (!best) return false;
    const GpuScratch workspace(on, best->workspaceSize);
    const T beta = problem.bias ? T(0) : call.beta;
    check(cublasLtMatmul(library.handle(), &descriptors.operation, &call.alpha, call.b.data,
                         &descriptors.a, call.a.data, &descriptors.b, &beta, call.c.data,
                         &descriptors.d, call.c.data, &descriptors.d, &best->algo, workspace.data(),
                         best->workspaceSize, on.handle()),
          "cublasLtMatmul", on.device());
    return true;
  }
};

using MatmulCalls = ForFloating<detail::Gemm>;

}  // namespace lockstep::cuda
