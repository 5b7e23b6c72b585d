// SPDX-License-Identifier: Apache-2.0

// The functions of cuBLASLt that lockstep calls, over the simulated runtime. A product checks its
// arguments when it is issued, declares each column that it reads or writes, and multiplies plainly
// when its turn comes. What lockstep does not use is reported.
//
// Stricter than the library: an algorithm is good for exactly the problem, the device and the
// alignments that the heuristics were asked about.
#include <cudasim/cublaslt_product.hpp>
#include <cudasim/cudasim.hpp>
#include <cudasim/library.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <cublasLt.h>

struct cublasLtContext {
  int device;
};

namespace cudasim::lt {
namespace {

constexpr std::size_t kWorkspaceAlignment = 256;

bool aligned(const void* data, std::uint64_t to) {
  return reinterpret_cast<std::uintptr_t>(data) % to == 0;
}

std::uint32_t alignment_of(const void* data) {
  std::uint32_t alignment = 256;
  while (!aligned(data, alignment)) alignment /= 2;
  return alignment;
}

cublasStatus_t check_handle(cublasLtHandle_t handle, const char* call) {
  const cublasLtContext* context = alive<cublasLtContext>().find(handle);
  if (context == nullptr) {
    return misuse(CUBLAS_STATUS_NOT_INITIALIZED, call, ": the handle was never made");
  }
  if (context->device != current_device()) {
    return misuse(CUBLAS_STATUS_EXECUTION_FAILED, call, ": the handle was made for device ",
                  context->device, ", but device ", current_device(), " is current");
  }
  return CUBLAS_STATUS_SUCCESS;
}

void add_uses(std::vector<MemoryUse>& uses, const void* data, const Layout& layout,
              std::size_t element, bool write) {
  const auto* bytes = static_cast<const char*>(data);
  const auto ld = static_cast<std::uint64_t>(layout.ld);
  const auto stride = static_cast<std::uint64_t>(layout.stride);
  const std::uint64_t matrices = layout.stride == 0 ? 1 : static_cast<std::uint64_t>(layout.batch);
  for (std::uint64_t i = 0; i < matrices; ++i) {
    for (std::uint64_t col = 0; col < layout.cols; ++col) {
      add_use(uses, bytes + (i * stride + col * ld) * element, layout.rows * element, write);
    }
  }
}

// As the units of the compute type take an operand.
float operand(float value, std::int32_t compute) {
  if (compute == CUBLAS_COMPUTE_32F_FAST_TF32) return rounded_to(value, 10);
  if (compute == CUBLAS_COMPUTE_32F_FAST_16BF) return rounded_to(value, 7);
  return value;
}
double operand(double value, std::int32_t) { return value; }

template <class T>
void multiply(const Product& p, T alpha, const T* a, const T* b, T beta, const T* c, T* d) {
  const std::size_t m = p.m();
  const std::size_t n = p.n();
  const std::size_t k = p.k();
  const auto lda = static_cast<std::size_t>(p.a.ld);
  const auto ldb = static_cast<std::size_t>(p.b.ld);
  const auto* bias = p.bias() ? static_cast<const T*>(p.op.bias) : nullptr;
  std::vector<T> columns(m * k);  // op(A), by columns
  std::vector<T> sums(m);
  for (std::int64_t i = 0; i < p.d.batch; ++i) {
    const T* const from_a = a + i * p.a.stride;
    const T* const from_b = b + i * p.b.stride;
    for (std::size_t col = 0; col < k; ++col) {
      for (std::size_t row = 0; row < m; ++row) {
        const std::size_t at = p.op.trans_a == CUBLAS_OP_N ? col * lda + row : row * lda + col;
        columns[col * m + row] = operand(from_a[at], p.op.compute);
      }
    }
    for (std::size_t col = 0; col < n; ++col) {
      std::fill(sums.begin(), sums.end(), T(0));
      for (std::size_t inner = 0; inner < k; ++inner) {
        const std::size_t at = p.op.trans_b == CUBLAS_OP_N ? col * ldb + inner : inner * ldb + col;
        const T factor = operand(from_b[at], p.op.compute);
        const T* const column = columns.data() + inner * m;
        for (std::size_t row = 0; row < m; ++row) sums[row] += column[row] * factor;
      }
      T* const to = d + i * p.d.stride + static_cast<std::int64_t>(col) * p.d.ld;
      const T* const add = c + i * p.c.stride + static_cast<std::int64_t>(col) * p.c.ld;
      for (std::size_t row = 0; row < m; ++row) {
        T value = alpha * sums[row];
        if (beta != 0) value += beta * add[row];
        if (bias) value += bias[row];
        to[row] = value;
      }
    }
  }
}

template <class T>
bool issue(const Product& p, const void* alpha, const void* a, const void* b, const void* beta,
           const void* c, void* d, void* workspace, std::size_t workspace_bytes,
           cudaStream_t stream) {
  const T scale = *static_cast<const T*>(alpha);
  const T keep = *static_cast<const T*>(beta);
  std::vector<MemoryUse> uses;
  add_uses(uses, a, p.a, sizeof(T), false);
  add_uses(uses, b, p.b, sizeof(T), false);
  if (keep != 0) add_uses(uses, c, p.c, sizeof(T), false);
  add_uses(uses, d, p.d, sizeof(T), true);
  if (p.bias()) add_use(uses, p.op.bias, p.m() * sizeof(T), false);
  add_use(uses, workspace, workspace_bytes, true);
  return enqueue(stream, "cublasLtMatmul", std::move(uses), [=] {
    if (workspace_bytes > 0) std::memset(workspace, 0xa5, workspace_bytes);
    multiply(p, scale, static_cast<const T*>(a), static_cast<const T*>(b), keep,
             static_cast<const T*>(c), static_cast<T*>(d));
  });
}

cublasStatus_t check_pointers(const Product& p, const Algorithm& algorithm, const void* a,
                              const void* b, const void* c, const void* d, const void* workspace,
                              std::size_t workspace_bytes) {
  const auto wrong = [](const auto&... parts) {
    return misuse(CUBLAS_STATUS_INVALID_VALUE, "cublasLtMatmul: ", parts...);
  };
  if (algorithm.device != current_device()) {
    return wrong("the algorithm was chosen for device ", algorithm.device, ", but device ",
                 current_device(), " is current");
  }
  if (algorithm.problem != p.number()) return wrong("the algorithm was chosen for other layouts");
  if (a == nullptr || b == nullptr || c == nullptr || d == nullptr) return wrong("a null matrix");
  if (c == d && (p.c.ld != p.d.ld || p.c.stride != p.d.stride)) {
    return wrong("C is D, but their layouts differ");
  }
  if (!aligned(a, algorithm.align_a) || !aligned(b, algorithm.align_b) ||
      !aligned(c, algorithm.align_c) || !aligned(d, algorithm.align_d) ||
      (p.bias() && !aligned(p.op.bias, algorithm.align_bias))) {
    return wrong("an operand is less aligned than the heuristics were told");
  }
  if (workspace_bytes < algorithm.workspace) {
    return wrong("a workspace of ", workspace_bytes, " bytes where the algorithm needs ",
                 algorithm.workspace);
  }
  if (workspace_bytes > 0 && (workspace == nullptr || !aligned(workspace, kWorkspaceAlignment))) {
    return wrong("the workspace is null or not aligned to ", kWorkspaceAlignment, " bytes");
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (handle == nullptr) return misuse(CUBLAS_STATUS_INVALID_VALUE, "cublasLtCreate: null");
  *handle = alive<cublasLtContext>().make({current_device()});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (alive<cublasLtContext>().end(handle)) return CUBLAS_STATUS_SUCCESS;
  return misuse(CUBLAS_STATUS_NOT_INITIALIZED, "cublasLtDestroy: the handle was never made");
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR:
      return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "unknown status";
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "the simulated cuBLASLt refused the call";
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, std::size_t size,
                                                 cudaDataType type, std::uint64_t rows,
                                                 std::uint64_t cols, std::int64_t ld) {
  if (layout == nullptr || size < sizeof *layout) return CUBLAS_STATUS_ALLOC_FAILED;
  Layout made;
  made.type = type;
  made.rows = rows;
  made.cols = cols;
  made.ld = ld;
  store(layout, made);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, std::size_t bytes) {
  constexpr auto call = "cublasLtMatrixLayoutSetAttribute";
  Layout at;
  if (!load(at, layout, call, "the layout")) return CUBLAS_STATUS_INVALID_VALUE;
  const auto set = [&](auto& member) {
    const cublasStatus_t status = assign(member, value, bytes, call);
    store(layout, at);
    return status;
  };
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return set(at.order);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return set(at.batch);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return set(at.stride);
    default:
      return misuse(CUBLAS_STATUS_NOT_SUPPORTED, call, ": the attribute ",
                    static_cast<int>(attribute), " is not simulated");
  }
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t operation, std::size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  if (operation == nullptr || size < sizeof *operation) return CUBLAS_STATUS_ALLOC_FAILED;
  Operation made;
  made.compute = compute;
  made.scale = scale;
  store(operation, made);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  constexpr auto call = "cublasLtMatmulDescSetAttribute";
  Operation at;
  if (!load(at, operation, call, "the operation's descriptor")) return CUBLAS_STATUS_INVALID_VALUE;
  const auto set = [&](auto& member) {
    const cublasStatus_t status = assign(member, value, bytes, call);
    store(operation, at);
    return status;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return set(at.pointer_mode);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(at.trans_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(at.trans_b);
    case CUBLASLT_MATMUL_DESC_TRANSC:
      return set(at.trans_c);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(at.epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(at.bias);
    default:
      return misuse(CUBLAS_STATUS_NOT_SUPPORTED, call, ": the attribute ",
                    static_cast<int>(attribute), " is not simulated");
  }
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                     std::size_t size) {
  if (preference == nullptr || size < sizeof *preference) return CUBLAS_STATUS_ALLOC_FAILED;
  store(preference, Preference{});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  constexpr auto call = "cublasLtMatmulPreferenceSetAttribute";
  Preference at;
  if (!load(at, preference, call, "the preference")) return CUBLAS_STATUS_INVALID_VALUE;
  const auto set = [&](auto& member) {
    const cublasStatus_t status = assign(member, value, bytes, call);
    store(preference, at);
    return status;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return set(at.workspace);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return set(at.align_a);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return set(at.align_b);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return set(at.align_c);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return set(at.align_d);
    default:
      return misuse(CUBLAS_STATUS_NOT_SUPPORTED, call, ": the attribute ",
                    static_cast<int>(attribute), " is not simulated");
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* returned) {
  constexpr auto call = "cublasLtMatmulAlgoGetHeuristic";
  if (const auto status = check_handle(handle, call); status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  Product product;
  Preference preferred;
  if (!product.load_all(call, operation, a, b, c, d) ||
      !load(preferred, preference, call, "the preference")) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (requested < 1 || results == nullptr || returned == nullptr) {
    return misuse(CUBLAS_STATUS_INVALID_VALUE, call, ": no room for a result");
  }
  *returned = 0;
  if (const auto status = product.check(call); status != CUBLAS_STATUS_SUCCESS) return status;
  Algorithm best;
  best.device = current_device();
  best.problem = product.number();
  best.align_a = preferred.align_a;
  best.align_b = preferred.align_b;
  best.align_c = preferred.align_c;
  best.align_d = preferred.align_d;
  best.align_bias = alignment_of(product.op.bias);
  // Some problems need work space, where they may have it.
  const std::uint64_t wanted = product.k() % 3 * 300;
  best.workspace = wanted <= preferred.workspace ? wanted : 0;
  results[0] = {};
  store(&results[0].algo, best);
  results[0].workspaceSize = best.workspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  results[0].wavesCount = 1;
  *returned = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t layout_a,
                              const void* b, cublasLtMatrixLayout_t layout_b, const void* beta,
                              const void* c, cublasLtMatrixLayout_t layout_c, void* d,
                              cublasLtMatrixLayout_t layout_d,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  constexpr auto call = "cublasLtMatmul";
  if (const auto status = check_handle(handle, call); status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  Product product;
  Algorithm chosen;
  if (!product.load_all(call, operation, layout_a, layout_b, layout_c, layout_d) ||
      !load(chosen, algorithm, call, "the algorithm")) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (const auto status = product.check(call); status != CUBLAS_STATUS_SUCCESS) return status;
  if (alpha == nullptr || beta == nullptr) {
    return misuse(CUBLAS_STATUS_INVALID_VALUE, call, ": no alpha or no beta");
  }
  const auto status = check_pointers(product, chosen, a, b, c, d, workspace, workspace_bytes);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const auto run = product.d.type == CUDA_R_64F ? &issue<double> : &issue<float>;
  const bool issued = run(product, alpha, a, b, beta, c, d, workspace, workspace_bytes, stream);
  return issued ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"

}  // namespace cudasim::lt
