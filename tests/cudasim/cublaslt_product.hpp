// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cudasim/cudasim.hpp>
#include <cudasim/library.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <cublasLt.h>

// What the simulated cuBLASLt keeps in the library's opaque descriptors, and which products it
// takes.
namespace cudasim::lt {

// What the opaque descriptors hold. The marks tell memory that was never initialised.
struct Layout {
  static constexpr std::uint32_t kMark = 0x4c41594f;
  std::uint32_t mark = kMark;
  std::int32_t type = 0;
  std::uint64_t rows = 0, cols = 0;
  std::int64_t ld = 0;
  std::int32_t batch = 1;
  std::int32_t order = CUBLASLT_ORDER_COL;
  std::int64_t stride = 0;
};

struct Operation {
  static constexpr std::uint32_t kMark = 0x4f504552;
  std::uint32_t mark = kMark;
  std::int32_t compute = 0, scale = 0;
  std::int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  std::int32_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N, trans_c = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;  // for every matrix of a batch
};

struct Preference {
  static constexpr std::uint32_t kMark = 0x50524546;
  std::uint32_t mark = kMark;
  std::uint32_t align_a = 256, align_b = 256, align_c = 256, align_d = 256;
  std::uint64_t workspace = 0;
};

struct Algorithm {
  static constexpr std::uint32_t kMark = 0x414c474f;
  std::uint32_t mark = kMark;
  std::int32_t device = 0;
  std::uint64_t problem = 0;
  std::uint64_t workspace = 0;
  std::uint32_t align_a = 0, align_b = 0, align_c = 0, align_d = 0, align_bias = 0;
};

template <class T, class Opaque>
void store(Opaque* to, const T& value) {
  static_assert(sizeof(T) <= sizeof(Opaque) && std::is_trivially_copyable_v<T>);
  std::memcpy(to, &value, sizeof value);
}

// False, and reported, for what no Init function made.
template <class T, class Opaque>
bool load(T& value, const Opaque* from, const char* call, const char* what) {
  if (from != nullptr) std::memcpy(static_cast<void*>(&value), from, sizeof value);
  if (from != nullptr && value.mark == T::kMark) return true;
  report(text(call, ": ", what, " was not initialised"));
  return false;
}

// One attribute of a descriptor, whose size the caller has to know.
template <class T>
cublasStatus_t assign(T& to, const void* from, std::size_t bytes, const char* call) {
  if (from == nullptr || bytes != sizeof to) {
    return misuse(CUBLAS_STATUS_INVALID_VALUE, call, ": an attribute of ", sizeof to,
                  " bytes was given ", bytes);
  }
  std::memcpy(&to, from, sizeof to);
  return CUBLAS_STATUS_SUCCESS;
}

// D = alpha · op(A) · op(B) + beta · C, and the bias down every column.
struct Product {
  Operation op;
  Layout a, b, c, d;

  bool load_all(const char* call, const cublasLtMatmulDescOpaque_t* operation,
                const cublasLtMatrixLayoutOpaque_t* from_a,
                const cublasLtMatrixLayoutOpaque_t* from_b,
                const cublasLtMatrixLayoutOpaque_t* from_c,
                const cublasLtMatrixLayoutOpaque_t* from_d) {
    return load(op, operation, call, "the operation's descriptor") &&
           load(a, from_a, call, "the layout of A") && load(b, from_b, call, "the layout of B") &&
           load(c, from_c, call, "the layout of C") && load(d, from_d, call, "the layout of D");
  }

  std::uint64_t m() const { return d.rows; }
  std::uint64_t n() const { return d.cols; }
  std::uint64_t k() const { return op.trans_a == CUBLAS_OP_N ? a.cols : a.rows; }
  std::size_t element() const { return a.type == CUDA_R_64F ? sizeof(double) : sizeof(float); }
  bool bias() const { return op.epilogue == CUBLASLT_EPILOGUE_BIAS; }

  // Two problems of the same number are the same, as far as the heuristics can tell.
  std::uint64_t number() const {
    std::uint64_t hash = 14695981039346656037ULL;
    const auto mix = [&](auto... values) {
      ((hash = (hash ^ static_cast<std::uint64_t>(values)) * 1099511628211ULL), ...);
    };
    mix(op.compute, op.scale, op.trans_a, op.trans_b, op.epilogue);
    for (const Layout* at : {&a, &b, &c, &d}) {
      mix(at->type, at->rows, at->cols, at->ld, at->batch, at->stride);
    }
    return hash;
  }

  cublasStatus_t check(const char* call) const;

 private:
  cublasStatus_t check_layout(const char* call, const char* name, const Layout& layout,
                              std::uint64_t rows, std::uint64_t cols) const;
};

inline cublasStatus_t Product::check_layout(const char* call, const char* name,
                                            const Layout& layout, std::uint64_t rows,
                                            std::uint64_t cols) const {
  const auto wrong = [&](const auto&... parts) {
    return misuse(CUBLAS_STATUS_INVALID_VALUE, call, ": ", name, " ", parts...);
  };
  if (layout.type != d.type) return wrong("is of another type than D");
  if (layout.order != CUBLASLT_ORDER_COL) return wrong("is not stored by columns");
  if (layout.rows != rows || layout.cols != cols) {
    return wrong("is ", layout.rows, " x ", layout.cols, " where ", rows, " x ", cols,
                 " fits the others");
  }
  if (layout.ld < static_cast<std::int64_t>(layout.rows)) {
    return wrong("has ", layout.rows, " rows and a leading dimension of ", layout.ld);
  }
  if (layout.batch != d.batch) {
    return wrong("has a batch of ", layout.batch, ", but D of ", d.batch);
  }
  if (layout.stride < 0) return wrong("has a negative stride");
  return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t Product::check(const char* call) const {
  const auto wrong = [&](const auto&... parts) {
    return misuse(CUBLAS_STATUS_INVALID_VALUE, call, ": ", parts...);
  };
  if (d.type != CUDA_R_32F && d.type != CUDA_R_64F) {
    return misuse(CUBLAS_STATUS_NOT_SUPPORTED, call, ": data of type ", d.type,
                  " are not simulated");
  }
  if (op.scale != d.type) return wrong("the scale type ", op.scale, " does not fit the data");
  const bool single = op.compute == CUBLAS_COMPUTE_32F ||
                      op.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ||
                      op.compute == CUBLAS_COMPUTE_32F_FAST_16BF;
  if (d.type == CUDA_R_32F ? !single : op.compute != CUBLAS_COMPUTE_64F) {
    return misuse(CUBLAS_STATUS_NOT_SUPPORTED, call, ": the compute type ", op.compute,
                  " does not fit data of type ", d.type);
  }
  for (const std::int32_t trans : {op.trans_a, op.trans_b}) {
    if (trans != CUBLAS_OP_N && trans != CUBLAS_OP_T) {
      return wrong("the operation ", trans, " on an operand is not simulated");
    }
  }
  if (op.trans_c != CUBLAS_OP_N) return wrong("C cannot be transposed");
  if (op.pointer_mode != CUBLASLT_POINTER_MODE_HOST) return wrong("alpha and beta on the device");
  if (op.epilogue != CUBLASLT_EPILOGUE_DEFAULT && !bias()) {
    return wrong("the epilogue ", op.epilogue, " is not simulated");
  }
  if (bias() && op.bias == nullptr) return wrong("the epilogue adds a bias, but there is none");
  if (m() == 0 || n() == 0 || k() == 0) {
    return wrong("an empty matrix: m = ", m(), ", n = ", n(), ", k = ", k());
  }
  if (d.batch < 1) return wrong("a batch of ", d.batch);
  const bool turn_a = op.trans_a == CUBLAS_OP_T;
  const bool turn_b = op.trans_b == CUBLAS_OP_T;
  const std::uint64_t inner = k();
  for (const cublasStatus_t status :
       {check_layout(call, "A", a, turn_a ? inner : m(), turn_a ? m() : inner),
        check_layout(call, "B", b, turn_b ? n() : inner, turn_b ? inner : n()),
        check_layout(call, "C", c, m(), n()), check_layout(call, "D", d, m(), n())}) {
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  const auto extent = d.ld * static_cast<std::int64_t>(n() - 1) + static_cast<std::int64_t>(m());
  if (d.batch > 1 && d.stride < extent) return wrong("the matrices of D overlap");
  // The library's table of types has no epilogue for f64.
  if (bias() && d.type == CUDA_R_64F) return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace cudasim::lt
