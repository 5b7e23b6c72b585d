// SPDX-License-Identifier: Apache-2.0
#include <cudasim/cudasim.hpp>
#include <cudasim/device_array.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include <cublasLt.h>

namespace cudasim {
namespace cublaslt_test {

using testing::Library;
using testing::numbers;
using testing::reported;
using testing::Work;

// A product whose every argument a test may spoil before or after the algorithm is chosen.
struct Call {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a_layout, b_layout, d_layout;
  cublasLtMatmulPreferenceOpaque_t preference;
  cublasLtMatmulHeuristicResult_t best{};
  double alpha64 = 1, beta64 = 0;
  float alpha32 = 1, beta32 = 0;
  const void* alpha = &alpha32;
  const void* beta = &beta32;
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  void* workspace = nullptr;
  std::size_t bytes = 0;
  cudaStream_t stream = nullptr;

  Call() { EXPECT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() { EXPECT_EQ(cublasLtDestroy(handle), CUBLAS_STATUS_SUCCESS); }

  template <class V>
  cublasStatus_t set(cublasLtMatmulDescAttributes_t attribute, V value) {
    return cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof value);
  }
  template <class V>
  cublasStatus_t set(cublasLtMatmulPreferenceAttributes_t attribute, V value) {
    return cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value);
  }
  template <class V>
  static cublasStatus_t set(cublasLtMatrixLayoutOpaque_t& layout,
                            cublasLtMatrixLayoutAttribute_t attribute, V value) {
    return cublasLtMatrixLayoutSetAttribute(&layout, attribute, &value, sizeof value);
  }

  cublasStatus_t choose() {
    int count = 0;
    return cublasLtMatmulAlgoGetHeuristic(handle, &operation, &a_layout, &b_layout, &d_layout,
                                          &d_layout, &preference, 1, &best, &count);
  }
  cublasStatus_t run() {
    return cublasLtMatmul(handle, &operation, alpha, a, &a_layout, b, &b_layout, beta, d, &d_layout,
                          d, &d_layout, &best.algo, workspace, bytes, stream);
  }
};

// A good one: d [4, 3] = a [4, 5] · b [5, 3], by columns, in f32, with work space.
struct Good : Call {
  explicit Good(Work& work) {
    cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutInit(&a_layout, CUDA_R_32F, 4, 5, 4);
    cublasLtMatrixLayoutInit(&b_layout, CUDA_R_32F, 5, 3, 5);
    cublasLtMatrixLayoutInit(&d_layout, CUDA_R_32F, 4, 3, 4);
    cublasLtMatmulPreferenceInit(&preference);
    EXPECT_EQ(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{1024}),
              CUBLAS_STATUS_SUCCESS);
    a = work.array(numbers<float>(20, 1));
    b = work.array(numbers<float>(15, 2));
    d = work.room<float>(12);
    workspace = work.room<char>(1024);
    bytes = 1024;
    stream = work.stream();
  }
};

struct Case {
  bool trans_a, trans_b;
  std::size_t m, n, k, pad, batch;
  double alpha, beta;
};

template <class T>
class Products : public Library {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Products, Types);

TYPED_TEST(Products, AreThoseOfTheDefinition) {
  using T = TypeParam;
  constexpr bool single = std::is_same_v<T, float>;
  constexpr cudaDataType_t type = single ? CUDA_R_32F : CUDA_R_64F;
  for (const Case& c :
       {Case{false, false, 4, 3, 5, 0, 1, 1, 0}, Case{true, false, 7, 2, 9, 1, 1, 1, 0},
        Case{false, true, 1, 6, 3, 2, 1, 2, 1}, Case{true, true, 5, 5, 4, 3, 3, 1, 0},
        Case{false, false, 3, 1, 1, 0, 4, 0.5, -1}}) {
    Work work;
    const std::size_t rows_a = c.trans_a ? c.k : c.m;
    const std::size_t cols_a = c.trans_a ? c.m : c.k;
    const std::size_t rows_b = c.trans_b ? c.n : c.k;
    const std::size_t cols_b = c.trans_b ? c.k : c.n;
    const std::size_t lda = rows_a + c.pad, ldb = rows_b + c.pad, ldd = c.m + c.pad;
    const std::size_t step_a = lda * cols_a, step_b = ldb * cols_b, step_d = ldd * c.n;
    const auto a = numbers<T>(step_a * c.batch, 1);
    const auto b = numbers<T>(step_b * c.batch, 2);
    auto d = numbers<T>(step_d * c.batch, 3);

    Call call;
    cublasLtMatmulDescInit(&call.operation, single ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_64F, type);
    call.set(CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{c.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N});
    call.set(CUBLASLT_MATMUL_DESC_TRANSB, std::int32_t{c.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N});
    const auto layout = [&](cublasLtMatrixLayoutOpaque_t& to, std::size_t rows, std::size_t cols,
                            std::size_t ld, std::size_t step) {
      cublasLtMatrixLayoutInit(&to, type, rows, cols, static_cast<std::int64_t>(ld));
      Call::set(to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(c.batch));
      Call::set(to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, static_cast<std::int64_t>(step));
    };
    layout(call.a_layout, rows_a, cols_a, lda, step_a);
    layout(call.b_layout, rows_b, cols_b, ldb, step_b);
    layout(call.d_layout, c.m, c.n, ldd, step_d);
    cublasLtMatmulPreferenceInit(&call.preference);
    call.alpha32 = static_cast<float>(c.alpha);
    call.beta32 = static_cast<float>(c.beta);
    call.alpha64 = c.alpha;
    call.beta64 = c.beta;
    if (!single) {
      call.alpha = &call.alpha64;
      call.beta = &call.beta64;
    }
    call.a = work.array(a);
    call.b = work.array(b);
    call.d = work.array(d);
    call.stream = work.stream();
    ASSERT_EQ(call.choose(), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(call.run(), CUBLAS_STATUS_SUCCESS);

    for (std::size_t i = 0; i < c.batch; ++i) {
      for (std::size_t row = 0; row < c.m; ++row) {
        for (std::size_t col = 0; col < c.n; ++col) {
          double sum = 0;
          for (std::size_t p = 0; p < c.k; ++p) {
            const std::size_t at_a = i * step_a + (c.trans_a ? row * lda + p : p * lda + row);
            const std::size_t at_b = i * step_b + (c.trans_b ? p * ldb + col : col * ldb + p);
            sum += static_cast<double>(a[at_a]) * static_cast<double>(b[at_b]);
          }
          T& out = d[i * step_d + col * ldd + row];
          out = static_cast<T>(c.alpha * sum + c.beta * static_cast<double>(out));
        }
      }
    }
    EXPECT_EQ(work.values(static_cast<const T*>(call.d), d.size()), d);
  }
}

using CublasLt = Library;

TEST_F(CublasLt, TheBiasIsAddedToEveryColumn) {
  Work work;
  Good plain(work);
  ASSERT_EQ(plain.choose(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(plain.run(), CUBLAS_STATUS_SUCCESS);
  const auto without = work.values(static_cast<const float*>(plain.d), 12);
  Good call(work);
  const std::vector<float> bias{1, 2, 3, 4};
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{CUBLASLT_EPILOGUE_BIAS});
  call.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(work.array(bias)));
  ASSERT_EQ(call.choose(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(call.run(), CUBLAS_STATUS_SUCCESS);
  const auto with = work.values(static_cast<const float*>(call.d), 12);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(with[i], without[i] + bias[i % 4]);
}

TEST_F(CublasLt, AComputeTypeOfLessPrecisionRoundsTheOperands) {
  const auto product = [](cublasComputeType_t compute) {
    Work work;
    Good call(work);
    cublasLtMatmulDescInit(&call.operation, compute, CUDA_R_32F);
    call.a = work.array(std::vector<float>(20, 1 + 0x1p-9F));
    call.b = work.array(std::vector<float>(15, 1 + 0x1p-12F));
    EXPECT_EQ(call.choose(), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(call.run(), CUBLAS_STATUS_SUCCESS);
    return work.values(static_cast<const float*>(call.d), 1)[0];
  };
  EXPECT_EQ(product(CUBLAS_COMPUTE_32F), 5 * ((1 + 0x1p-9F) * (1 + 0x1p-12F)));
  EXPECT_EQ(product(CUBLAS_COMPUTE_32F_FAST_TF32), 5 * (1 + 0x1p-9F));
  EXPECT_EQ(product(CUBLAS_COMPUTE_32F_FAST_16BF), 5);
}

TEST_F(CublasLt, BiasInF64IsNotSupportedAndNobodysMistake) {
  Work work;
  Good call(work);
  cublasLtMatmulDescInit(&call.operation, CUBLAS_COMPUTE_64F, CUDA_R_64F);
  cublasLtMatrixLayoutInit(&call.a_layout, CUDA_R_64F, 4, 5, 4);
  cublasLtMatrixLayoutInit(&call.b_layout, CUDA_R_64F, 5, 3, 5);
  cublasLtMatrixLayoutInit(&call.d_layout, CUDA_R_64F, 4, 3, 4);
  EXPECT_EQ(call.choose(), CUBLAS_STATUS_SUCCESS);
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{CUBLASLT_EPILOGUE_BIAS});
  call.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.a);
  EXPECT_EQ(call.choose(), CUBLAS_STATUS_NOT_SUPPORTED);
}

// What is wrong with a problem is said by the heuristics already.
TEST_F(CublasLt, ProblemsThatCannotBeAreReported) {
  const struct {
    const char* what;
    cublasStatus_t status;
    std::function<void(Call&)> spoil;
  } mistakes[] = {
      {"A was not initialised", CUBLAS_STATUS_INVALID_VALUE, [](Call& c) { c.a_layout = {}; }},
      {"the operation's descriptor was not initialised", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) { c.operation = {}; }},
      {"the preference was not initialised", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) { c.preference = {}; }},
      {"the compute type", CUBLAS_STATUS_NOT_SUPPORTED,
       [](Call& c) { cublasLtMatmulDescInit(&c.operation, CUBLAS_COMPUTE_64F, CUDA_R_32F); }},
      {"the scale type", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) { cublasLtMatmulDescInit(&c.operation, CUBLAS_COMPUTE_32F, CUDA_R_64F); }},
      {"B is of another type", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) { cublasLtMatrixLayoutInit(&c.b_layout, CUDA_R_64F, 5, 3, 5); }},
      {"data of type", CUBLAS_STATUS_NOT_SUPPORTED,
       [](Call& c) { cublasLtMatrixLayoutInit(&c.d_layout, CUDA_R_16F, 4, 3, 4); }},
      {"B is 6 x 3 where 5 x 3", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) { cublasLtMatrixLayoutInit(&c.b_layout, CUDA_R_32F, 6, 3, 6); }},
      {"A has 4 rows and a leading dimension of 3", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) { cublasLtMatrixLayoutInit(&c.a_layout, CUDA_R_32F, 4, 5, 3); }},
      {"an empty matrix", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) { cublasLtMatrixLayoutInit(&c.d_layout, CUDA_R_32F, 4, 0, 4); }},
      {"not stored by columns", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) {
         Call::set(c.a_layout, CUBLASLT_MATRIX_LAYOUT_ORDER, std::int32_t{CUBLASLT_ORDER_ROW});
       }},
      {"has a batch of 1, but D of 2", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) { Call::set(c.d_layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, std::int32_t{2}); }},
      {"the matrices of D overlap", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) {
         for (auto* layout : {&c.a_layout, &c.b_layout, &c.d_layout}) {
           Call::set(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, std::int32_t{2});
         }
       }},
      {"a bias, but there is none", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) {
         c.set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{CUBLASLT_EPILOGUE_BIAS});
       }},
      {"the epilogue 2 is not simulated", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) {
         c.set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{CUBLASLT_EPILOGUE_RELU});
       }},
      {"the operation 2 on an operand", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) { c.set(CUBLASLT_MATMUL_DESC_TRANSB, std::int32_t{CUBLAS_OP_C}); }},
      {"alpha and beta on the device", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) {
         c.set(CUBLASLT_MATMUL_DESC_POINTER_MODE, std::int32_t{CUBLASLT_POINTER_MODE_DEVICE});
       }},
      {"made for device 0, but device 1 is current", CUBLAS_STATUS_EXECUTION_FAILED,
       [](Call&) { (void)cudaSetDevice(1); }},
  };
  for (const auto& mistake : mistakes) {
    Work work;
    Good call(work);
    mistake.spoil(call);
    EXPECT_EQ(call.choose(), mistake.status) << mistake.what;
    (void)cudaSetDevice(0);
    EXPECT_TRUE(reported(mistake.what)) << mistake.what;
  }
}

TEST_F(CublasLt, CallsThatDoNotFitTheChosenAlgorithmAreReported) {
  const struct {
    const char* what;
    cublasStatus_t status;
    std::function<void(Call&)> spoil;
  } mistakes[] = {
      {"the algorithm was not initialised", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) { c.best.algo = {}; }},
      {"chosen for other layouts", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) {
         cublasLtMatrixLayoutInit(&c.a_layout, CUDA_R_32F, 4, 4, 4);
         cublasLtMatrixLayoutInit(&c.b_layout, CUDA_R_32F, 4, 3, 5);
       }},
      {"less aligned", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) { c.b = static_cast<const float*>(c.b) + 1; }},
      {"a workspace of 599 bytes where the algorithm needs 600", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) { c.bytes = 599; }},
      {"the workspace is null", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) { c.workspace = nullptr; }},
      {"not aligned to 256", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) {
         c.workspace = static_cast<char*>(c.workspace) + 128;
         c.bytes = 700;
       }},
      {"a null matrix", CUBLAS_STATUS_INVALID_VALUE, [](Call& c) { c.a = nullptr; }},
      {"no alpha or no beta", CUBLAS_STATUS_INVALID_VALUE, [](Call& c) { c.beta = nullptr; }},
      {"made for device 0, but device 1 is current", CUBLAS_STATUS_EXECUTION_FAILED,
       [](Call&) { (void)cudaSetDevice(1); }},
  };
  for (const auto& mistake : mistakes) {
    Work work;
    Good call(work);
    ASSERT_EQ(call.choose(), CUBLAS_STATUS_SUCCESS);
    mistake.spoil(call);
    EXPECT_EQ(call.run(), mistake.status) << mistake.what;
    (void)cudaSetDevice(0);
    EXPECT_TRUE(reported(mistake.what)) << mistake.what;
  }
}

TEST_F(CublasLt, AnAlgorithmBelongsToTheDeviceThatItWasChosenOn) {
  Work work;
  Good first(work);
  ASSERT_EQ(first.choose(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  {
    Work there;
    Good second(there);
    second.best = first.best;
    EXPECT_EQ(second.run(), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_TRUE(reported("chosen for device 0, but device 1 is current"));
  }
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(CublasLt, HandlesAndAttributesAreChecked) {
  cublasLtHandle_t handle = nullptr;
  ASSERT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasLtDestroy(handle), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtDestroy(handle), CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_TRUE(reported("cublasLtDestroy: the handle was never made"));
  Work work;
  Good call(work);
  EXPECT_EQ(call.set(CUBLASLT_MATMUL_DESC_TRANSA, std::int64_t{0}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_TRUE(reported("an attribute of 4 bytes was given 8"));
  EXPECT_EQ(call.set(CUBLASLT_MATMUL_DESC_FILL_MODE, std::int32_t{0}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_TRUE(reported("is not simulated"));
  EXPECT_EQ(cublasLtMatrixLayoutInit_internal(&call.a_layout, 8, CUDA_R_32F, 1, 1, 1),
            CUBLAS_STATUS_ALLOC_FAILED);
}

// Columns of one array that lie between one another, written by streams without an order.
TEST_F(CublasLt, WhatIsReadAndWrittenIsKnownColumnByColumn) {
  without_fibers();
  const auto two_products = [](std::size_t apart) {
    Work one;
    Work two;
    auto* const both = one.room<float>(24);
    Good left(one);
    Good right(two);
    for (Good* call : {&left, &right}) {
      cublasLtMatrixLayoutInit(&call->d_layout, CUDA_R_32F, 4, 3, 8);
      call->set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, std::uint32_t{4});
      call->set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::uint32_t{4});
      EXPECT_EQ(call->choose(), CUBLAS_STATUS_SUCCESS);
    }
    left.d = both;
    right.d = both + apart;
    EXPECT_EQ(cudaStreamSynchronize(one.stream()), cudaSuccess);
    EXPECT_EQ(left.run(), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(right.run(), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  };
  two_products(4);
  EXPECT_EQ(take_errors(), std::vector<std::string>{});
  two_products(3);
  EXPECT_TRUE(reported("cublasLtMatmul"));
}

}  // namespace cublaslt_test
}  // namespace cudasim
