// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/host/blas.hpp>
#include <lockstep/tensor/creation.hpp>

#include "support/environment_variable.hpp"
#include "support/warnings.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <latch>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>

namespace lockstep::detail {
namespace blas_test {

namespace fs = std::filesystem;

struct Matrix {
  std::int64_t rows, cols;
  std::vector<double> values = std::vector<double>(static_cast<std::size_t>(rows * cols));
  double& at(std::int64_t i, std::int64_t j) {
    return values[static_cast<std::size_t>(i * cols + j)];
  }
};

Matrix filled(std::int64_t rows, std::int64_t cols, int seed) {
  Matrix matrix{rows, cols};
  for (std::size_t i = 0; i < matrix.values.size(); ++i) {
    matrix.values[i] = static_cast<double>((static_cast<int>(i) * 7 + seed * 13) % 11) - 5;
  }
  return matrix;
}

struct Size {
  std::int64_t m, n, k;
};

// Small whole numbers, so that both precisions are exact.
template <class T>
void check_product(Size size, bool trans_a, bool trans_b, T alpha, T beta) {
  const auto [m, n, k] = size;
  const std::int64_t pad = 3;
  Matrix a = trans_a ? filled(k, m + pad, 1) : filled(m, k + pad, 1);
  Matrix b = trans_b ? filled(n, k + pad, 2) : filled(k, n + pad, 2);
  Matrix c = filled(m, n + pad, 3);
  const std::vector<T> in_a(a.values.begin(), a.values.end());
  const std::vector<T> in_b(b.values.begin(), b.values.end());
  std::vector<T> out(c.values.begin(), c.values.end());
  host_gemm<T>(trans_a, trans_b, m, n, k, alpha, in_a.data(), a.cols, in_b.data(), b.cols, beta,
               out.data(), c.cols);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t p = 0; p < k; ++p) {
        sum += (trans_a ? a.at(p, i) : a.at(i, p)) * (trans_b ? b.at(j, p) : b.at(p, j));
      }
      c.at(i, j) = static_cast<double>(alpha) * sum + static_cast<double>(beta) * c.at(i, j);
    }
  }
  EXPECT_EQ(out, std::vector<T>(c.values.begin(), c.values.end()))
      << trans_a << trans_b << ", " << m << " x " << n << " x " << k;
}

void check_products(Size size) {
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      check_product<float>(size, trans_a, trans_b, 1, 0);
      check_product<float>(size, trans_a, trans_b, 2, -3);
      check_product<double>(size, trans_a, trans_b, 1, 1);
      check_product<double>(size, trans_a, trans_b, -1, 2);
    }
  }
}

TEST(HostGemm, AgreesWithTheDefinitionInAllForms) { check_products({11, 13, 9}); }

TEST(HostGemm, AgreesWithTheDefinitionWhereItDoesWithoutTheBlas) {
  for (const Size size : {Size{5, 7, 6},
                          {7, 5, 6},
                          {1, 1, 1},
                          {4, 2, 3},
                          {8, 4, 1},
                          {9, 3, 7},
                          {1, 6, 5},
                          {6, 1, 5},
                          {2, 10, 16}}) {
    EXPECT_TRUE(is_tiny_gemm(size.m, size.n, size.k));
    check_products(size);
  }
  EXPECT_FALSE(is_tiny_gemm(11, 13, 9));
}

TEST(HostGemm, AgreesWithTheDefinitionOfAProductWithAVector) {
  for (const Size size : {Size{1, 21, 17}, {21, 1, 17}, {1, 1, 401}, {1, 401, 1}, {401, 1, 1}}) {
    EXPECT_FALSE(is_tiny_gemm(size.m, size.n, size.k));
    check_products(size);
  }
}

TEST(HostGemm, OverwritesWhateverWasThereWhenBetaIsZero) {
  for (const auto [m, n, k] : {Size{1, 1, 1}, {3, 3, 3}, {40, 40, 40}, {1, 40, 40}, {40, 1, 40}}) {
    const std::vector<float> ones(static_cast<std::size_t>(40 * 40), 1);
    std::vector<float> out(static_cast<std::size_t>(m * n),
                           std::numeric_limits<float>::quiet_NaN());
    host_gemm<float>(false, false, m, n, k, 1, ones.data(), k, ones.data(), n, 0, out.data(), n);
    EXPECT_EQ(out, std::vector<float>(out.size(), static_cast<float>(k)));
  }
}

TEST(HostGemm, TakesEmptyMatrices) {
  std::vector<double> out(6, 5);
  host_gemm<double>(false, false, 0, 3, 2, 1, nullptr, 2, nullptr, 3, 0, out.data(), 3);
  EXPECT_EQ(out, std::vector<double>(6, 5));
  host_gemm<double>(false, false, 2, 3, 0, 1, nullptr, 1, nullptr, 3, 2, out.data(), 3);
  EXPECT_EQ(out, std::vector<double>(6, 10));
  host_gemm<double>(false, false, 2, 3, 0, 1, nullptr, 1, nullptr, 3, 0, out.data(), 3);
  EXPECT_EQ(out, std::vector<double>(6, 0));
}

TEST(HostGemm, RefusesDimensionsThatTheBlasCannotCount) {
  if (sizeof(BlasInt) == 8) GTEST_SKIP() << "needs a BLAS that counts with 32 bits";
  const std::int64_t huge = std::int64_t{1} << 32;
  float out = 0;
  try {
    host_gemm<float>(false, false, 1, 1, huge, 1, &out, huge, &out, 1, 0, &out, 1);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("4294967296"), std::string::npos) << error.what();
  }
}

TEST(Gemm, AddsABiasToEachRowAndRunsBatches) {
  const Stream stream = current_stream(Device("cpu:0"));
  const std::vector<float> a{1, 2, 3, 4, 5, 6, 7, 8};  // two matrices of 2 × 2
  const std::vector<float> b{1, 0, 0, 1};
  const std::vector<float> bias{10, 20};
  std::vector<float> c(8, std::numeric_limits<float>::quiet_NaN());
  Gemm<float> call{.a = {a.data(), 8},
                   .b = {b.data(), 4},
                   .bias = {bias.data(), 2},
                   .c = {c.data(), 8},
                   .m = 2,
                   .n = 2,
                   .k = 2,
                   .lda = 2,
                   .ldb = 2,
                   .ldc = 2};
  call.batch = 2;
  call.stride_a = 4;
  call.stride_c = 4;
  launch_call(stream, call);
  EXPECT_EQ(c, (std::vector<float>{11, 22, 13, 24, 15, 26, 17, 28}));
}

// Small enough to do without the BLAS, too large for that, and without any products.
TEST(HostGemm, ABiasTakesThePlaceOfWhatCHeld) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [m, n, k] : std::vector<std::array<std::int64_t, 3>>{
           {3, 2, 4}, {2, 5, 4}, {1, 1, 1}, {9, 13, 11}, {2, 3, 0}}) {
    const std::vector<float> a(static_cast<std::size_t>(m * k), 1);
    const std::vector<float> b(static_cast<std::size_t>(k * n), 2);
    std::vector<float> bias, c(static_cast<std::size_t>(m * n), nan), expected;
    for (std::int64_t j = 0; j < n; ++j) bias.push_back(static_cast<float>(10 * j));
    for (std::int64_t i = 0; i < m * n; ++i) {
      expected.push_back(bias[static_cast<std::size_t>(i % n)] + static_cast<float>(2 * k));
    }
    for (const float beta : {0.0F, 7.0F}) {
      host_gemm<float>(false, false, m, n, k, 1, a.data(), std::max<std::int64_t>(k, 1), b.data(),
                       n, beta, c.data(), n, bias.data());
      EXPECT_EQ(c, expected) << m << " x " << n << " x " << k;
      std::fill(c.begin(), c.end(), nan);
    }
  }
}

TEST(HostGemm, GivesEveryCallerItsOwnProductAtTheSameTime) {
  const std::int64_t n = 96;
  const auto count = static_cast<std::size_t>(n * n);
  std::latch start(4);
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> callers;
    for (int caller = 1; caller <= 4; ++caller) {
      callers.emplace_back([&, caller] {
        const std::vector<float> a(count, static_cast<float>(caller));
        const std::vector<float> b(count, 1);
        start.arrive_and_wait();
        for (int round = 0; round < 50; ++round) {
          std::vector<float> c(count, -1);
          host_gemm<float>(false, true, n, n, n, 1, a.data(), n, b.data(), n, 0, c.data(), n);
          const std::vector<float> expected(count, static_cast<float>(caller * n));
          if (c != expected) ++wrong;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
}

// A BLAS that remembers what it was told.
struct FakeBlas {
  static inline int kind = 1;
  static inline int count = 12;
  static int parallel() { return kind; }
  static char* config() {
    static std::array<char, 16> text{"OpenBLAS 0.3.21"};
    return text.data();
  }
  static int threads() { return count; }
  static void set_threads(int value) { count = value; }
  static char* prescott() {
    static std::array<char, 9> name{"Prescott"};
    return name.data();
  }
  static char* haswell() {
    static std::array<char, 8> name{"Haswell"};
    return name.data();
  }
  static BlasControls controls() { return {parallel, config, threads, set_threads}; }
};

TEST(HostMath, SetsOneThreadAndRemembersTheNumberBefore) {
  FakeBlas::kind = 1;
  FakeBlas::count = 12;
  const HostMath math(FakeBlas::controls());
  EXPECT_EQ(FakeBlas::count, 1);
  EXPECT_EQ(math.threads(), 1);
  EXPECT_EQ(math.threads_before(), 12);
  math.set_threads(3);
  EXPECT_EQ(FakeBlas::count, 3);
}

TEST(HostMath, AcceptsABlasThatCannotBeAsked) {
  const HostMath math(BlasControls{});
  EXPECT_EQ(math.threads(), 1);
  math.set_threads(4);
  EXPECT_EQ(math.threads(), 1);
}

TEST(HostMath, RefusesAnOpenBlasWithoutThreads) {
  FakeBlas::kind = 0;
  try {
    const HostMath math(FakeBlas::controls());
    FAIL() << "no error";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("OpenBLAS 0.3.21"), std::string::npos) << text;
    EXPECT_NE(text.find("wrong products"), std::string::npos) << text;
    EXPECT_NE(text.find("libopenblas0-pthread"), std::string::npos) << text;
  }
}

#if defined(__x86_64__)
TEST(HostMath, WarnsOfAnOpenBlasThatDoesNotKnowTheProcessor) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    GTEST_SKIP() << "needs a processor with AVX2, which a Prescott has not";
  }
  FakeBlas::kind = 1;
  BlasControls blas = FakeBlas::controls();
  blas.core = FakeBlas::prescott;
  testing::CaughtWarnings warnings;
  {
    const testing::EnvironmentVariable unset("OPENBLAS_CORETYPE", nullptr);
    const HostMath unknown(blas);
    ASSERT_EQ(warnings.texts.size(), 1U);
    EXPECT_NE(warnings.texts[0].find("OpenBLAS 0.3.21"), std::string::npos) << warnings.texts[0];
    EXPECT_NE(warnings.texts[0].find("OPENBLAS_CORETYPE="), std::string::npos) << warnings.texts[0];
    blas.core = FakeBlas::haswell;
    const HostMath known(blas);
    blas.core = nullptr;
    const HostMath silent(blas);
  }
  const testing::EnvironmentVariable chosen("OPENBLAS_CORETYPE", "Prescott");
  blas.core = FakeBlas::prescott;
  const HostMath wanted(blas);
  EXPECT_EQ(warnings.texts.size(), 1U);
}
#endif

TEST(HostMath, ThreadsCanBeSetGuardedAndRestored) {
  if (openblas_set_num_threads == nullptr && bli_thread_set_num_threads == nullptr)
    GTEST_SKIP() << "needs a BLAS with a call that sets its threads";
  EXPECT_EQ(host_math_threads(), 1);
  {
    const HostMathThreadsGuard guard(2);
    EXPECT_EQ(host_math_threads(), 2);
  }
  EXPECT_EQ(host_math_threads(), 1);
  EXPECT_THROW(set_host_math_threads(0), ValueError);
  const int before = HostMath::instance().threads_before();
  set_host_math_threads(before + 1);
  restore_host_math_threads();
  EXPECT_EQ(host_math_threads(), before);
  set_host_math_threads(1);
}

// A file of Debian's libopenblas0-serial, installed or named by LOCKSTEP_TEST_SERIAL_OPENBLAS.
std::string serial_openblas() {
  if (const char* named = std::getenv("LOCKSTEP_TEST_SERIAL_OPENBLAS")) return named;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/usr/lib", ignored)) {
    const fs::path file = entry.path() / "openblas-serial" / "libopenblas.so.0";
    if (fs::exists(file, ignored)) return file.string();
  }
  return {};
}

// Runs itself with the real serial library loaded first; the inner run then sees the error.
TEST(HostMath, RefusesTheRealSerialLibrary) {
  constexpr const char* kInner = "LOCKSTEP_TEST_RUNS_SERIAL_OPENBLAS";
  if (std::getenv(kInner) != nullptr) {
    ASSERT_NE(openblas_get_parallel, nullptr);
    ASSERT_EQ(openblas_get_parallel(), 0);
    EXPECT_THROW((void)host_math_threads(), Error);
    const float one = 1;
    float out = 0;
    EXPECT_THROW(host_gemm<float>(false, false, 1, 1, 1, 1, &one, 1, &one, 1, 0, &out, 1), Error);
    return;
  }
  const std::string library = serial_openblas();
  if (library.empty()) GTEST_SKIP() << "needs the package libopenblas0-serial";
  const std::string self = fs::read_symlink("/proc/self/exe").string();
  const std::string command = std::string(kInner) + "=1 ASAN_OPTIONS=verify_asan_link_order=0" +
                              " LD_PRELOAD='" + library + "' '" + self +
                              "' --gtest_filter=HostMath.RefusesTheRealSerialLibrary >&2";
  const int status = std::system(command.c_str());
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << command;
}

}  // namespace blas_test
}  // namespace lockstep::detail
