// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/libraries/precision.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/rnn.hpp>
#include <lockstep/ops/rnn/rnn_library.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/empty.hpp>

#include <cudasim/cudasim.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <future>
#include <latch>
#include <string>
#include <vector>

#include "support/varied.hpp"

// Recurrent layers by cuDNN, against those of the host.
namespace lockstep::cuda {
namespace rnn_test {

using lockstep::testing::all_close;
using lockstep::testing::varied;
using lockstep::testing::varied_leaf;
using A = detail::RecurrentArguments;

struct Sizes {
  std::int64_t length, batch, features, width;
};
constexpr Sizes kSmall{3, 2, 4, 3};

// Arguments that want gradients; the biases that there are, as bits.
template <class Cell, class T>
A arguments_on(Device device, const Sizes& s, int biases = 3) {
  const std::int64_t rows = static_cast<std::int64_t>(Cell::kGates) * s.width;
  A arguments;
  const auto set = [&](A::Argument which, const Shape& shape) {
    arguments.tensors[which] = varied_leaf<T>(shape, which + 1, device);
  };
  set(A::x, {s.length, s.batch, s.features});
  set(A::h0, {s.batch, s.width});
  if (Cell::kHasC) set(A::c0, {s.batch, s.width});
  set(A::weight_ih, {rows, s.features});
  set(A::weight_hh, {rows, s.width});
  if (biases & 1) set(A::bias_ih, {rows});
  if (biases & 2) set(A::bias_hh, {rows});
  return arguments;
}

// The sum of all results, each element with a weight of its own.
template <class T>
Tensor weighted(const std::vector<Tensor>& results) {
  Tensor total;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Tensor part = sum(results[i] * varied<T>(results[i].sizes(), i, results[i].device()));
    total = total.defined() ? total + part : part;
  }
  return total;
}

// The results, and the gradients of the arguments.
template <class Cell, class T>
std::vector<Tensor> passes(Device device, const Sizes& s, bool reverse, int biases = 3) {
  const A arguments = arguments_on<Cell, T>(device, s, biases);
  std::vector<Tensor> all = detail::recurrent<Cell>(arguments, reverse);
  weighted<T>(all).backward();
  for (const Tensor& argument : arguments.tensors) {
    if (argument.defined()) all.push_back(argument.grad());
  }
  return all;
}

// As the units of a precision compute f32, from here to the end of the scope.
class Precision {
 public:
  explicit Precision(MatmulPrecision precision) { set_float32_matmul_precision(precision); }
  Precision(const Precision&) = delete;
  Precision& operator=(const Precision&) = delete;
  ~Precision() { set_float32_matmul_precision(MatmulPrecision::highest); }
};

// How often the library was called, by the name of the function.
std::ptrdiff_t calls_of(const std::vector<cudasim::Call>& calls, const std::string& name) {
  return std::count_if(calls.begin(), calls.end(),
                       [&](const cudasim::Call& call) { return call.name == name; });
}

template <class Cell>
class CudaRnn : public ::testing::Test {};
using Cells =
    ::testing::Types<detail::TanhCell, detail::ReluCell, detail::LstmCell, detail::GruCell>;
TYPED_TEST_SUITE(CudaRnn, Cells);

TYPED_TEST(CudaRnn, IsLikeOnTheHost) {
  const auto compare = [](auto value, const Sizes& s, bool reverse, int biases, double tolerance) {
    using T = decltype(value);
    const auto on_host = passes<TypeParam, T>("cpu:0", s, reverse, biases);
    const auto on_gpu = passes<TypeParam, T>("cuda:1", s, reverse, biases);
    for (std::size_t i = 0; i < on_host.size(); ++i) {
      EXPECT_EQ(on_gpu[i].device(), Device("cuda:1"));
      EXPECT_TRUE(all_close(on_gpu[i], on_host[i], tolerance, tolerance))
          << "tensor " << i << ", reverse " << reverse << ", biases " << biases;
    }
  };
  for (const bool reverse : {false, true}) {
    for (const int biases : {0, 1, 2, 3}) compare(double{}, kSmall, reverse, biases, 1e-12);
    compare(double{}, {1, 3, 2, 5}, reverse, 3, 1e-12);
    compare(double{}, {5, 1, 1, 1}, reverse, 3, 1e-12);
    compare(float{}, {4, 3, 5, 2}, reverse, 3, 1e-4);
  }
}

// Whatever is defined of the gradients of y, h and c, and whatever is wanted.
TYPED_TEST(CudaRnn, EachGradientAlone) {
  const auto grads = [](Device device, std::size_t result, std::size_t wanted) {
    A arguments = arguments_on<TypeParam, double>(device, kSmall);
    for (std::size_t i = 0; i < A::count; ++i) {
      Tensor& tensor = arguments.tensors[i];
      if (i != wanted && tensor.defined()) tensor = tensor.detach();
    }
    weighted<double>({detail::recurrent<TypeParam>(arguments, true)[result]}).backward();
    return arguments.tensors[wanted].grad();
  };
  for (std::size_t result = 0; result < (TypeParam::kHasC ? 3U : 2U); ++result) {
    for (std::size_t wanted = 0; wanted < A::count; ++wanted) {
      if (wanted == A::c0 && !TypeParam::kHasC) continue;
      EXPECT_TRUE(
          all_close(grads("cuda:0", result, wanted), grads("cpu:0", result, wanted), 1e-12, 1e-12))
          << "of argument " << wanted << " for result " << result;
    }
  }
}

TYPED_TEST(CudaRnn, IsOneCallForAllTimeSteps) {
  const A arguments = arguments_on<TypeParam, float>("cuda:0", {7, 2, 3, 4});
  (void)passes<TypeParam, float>("cuda:0", {7, 2, 3, 4}, false);  // the plan is made
  cudasim::record_calls(true);
  const std::vector<Tensor> results = detail::recurrent<TypeParam>(arguments, false);
  const auto forward = cudasim::take_calls();
  results[0].backward(ones_like(results[0]));
  const auto backward = cudasim::take_calls();
  cudasim::record_calls(false);
  EXPECT_EQ(calls_of(forward, "cudnnRNNForward"), 1);
  EXPECT_EQ(calls_of(backward, "cudnnRNNBackwardData_v8"), 1);
  EXPECT_EQ(calls_of(backward, "cudnnRNNBackwardWeights_v8"), 1);
  const auto kernels = std::count_if(forward.begin(), forward.end(), [](const auto& call) {
    return call.function == "cudaLaunchKernel";
  });
  EXPECT_EQ(kernels, 0);
}

// What the library's backward reads of the forward, it destroys.
TYPED_TEST(CudaRnn, AGraphThatIsKeptGivesTheSameGradientsAgain) {
  const A arguments = arguments_on<TypeParam, double>("cuda:0", kSmall);
  std::vector<Tensor> wanted;
  for (const Tensor& argument : arguments.tensors) {
    if (argument.defined()) wanted.push_back(argument);
  }
  const Tensor total = weighted<double>(detail::recurrent<TypeParam>(arguments, false));
  const auto first = autograd::grad({total}, wanted, {}, true);
  const auto second = autograd::grad({total}, wanted);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(first[i].to_vector<double>(), second[i].to_vector<double>()) << i;
  }
}

// What the forward has kept is of its own arithmetic.
TYPED_TEST(CudaRnn, BackwardComputesAsItsForwardDid) {
  const auto gradients = [](MatmulPrecision forward, MatmulPrecision backward) {
    const A arguments = arguments_on<TypeParam, float>("cuda:0", kSmall);
    Tensor total;
    {
      const Precision set(forward);
      total = weighted<float>(detail::recurrent<TypeParam>(arguments, true));
    }
    const Precision set(backward);
    total.backward();
    std::vector<float> all;
    for (const Tensor& argument : arguments.tensors) {
      if (!argument.defined()) continue;
      for (const float value : argument.grad().to_vector<float>()) all.push_back(value);
    }
    return all;
  };
  const auto exact = gradients(MatmulPrecision::highest, MatmulPrecision::highest);
  const auto rounded = gradients(MatmulPrecision::high, MatmulPrecision::high);
  EXPECT_NE(exact, rounded);
  EXPECT_EQ(gradients(MatmulPrecision::highest, MatmulPrecision::high), exact);
  EXPECT_EQ(gradients(MatmulPrecision::high, MatmulPrecision::highest), rounded);
}

TYPED_TEST(CudaRnn, IsDifferentiableTwice) {
  const auto second = [](Device device) {
    const A arguments = arguments_on<TypeParam, double>(device, kSmall);
    const std::vector<Tensor> of{arguments[A::x], arguments[A::h0], arguments[A::weight_hh]};
    const Tensor y = detail::recurrent<TypeParam>(arguments, true)[0];
    const auto first = autograd::grad({sum(y * y)}, of, {}, {}, true);
    return autograd::grad({sum(first[0] * first[0]) + sum(first[2] * first[2])}, of);
  };
  const auto on_host = second("cpu:0");
  const auto on_gpu = second("cuda:0");
  for (std::size_t i = 0; i < on_host.size(); ++i) {
    EXPECT_TRUE(all_close(on_gpu[i], on_host[i], 1e-9, 1e-9)) << "gradient " << i;
  }
}

// Nothing is kept for a backward that never comes.
TYPED_TEST(CudaRnn, WithoutBackwardItTakesNoReserve) {
  const auto kept = [] {
    const A arguments = arguments_on<TypeParam, float>("cuda:0", {6, 2, 3, 4});
    const std::uint64_t before = memory_stats("cuda:0").allocated_bytes;
    const std::vector<Tensor> results = detail::recurrent<TypeParam>(arguments, false);
    std::uint64_t own = 0;
    for (const Tensor& result : results) {
      own += static_cast<std::uint64_t>(result.numel()) * sizeof(float);
    }
    return memory_stats("cuda:0").allocated_bytes - before - own;
  };
  EXPECT_GT(kept(), 0U);
  const NoGradGuard guard;
  EXPECT_EQ(kept(), 0U);
}

TYPED_TEST(CudaRnn, SizesThatTheLibraryDoesNotTakeAreComputedStepByStep) {
  const NoGradGuard guard;
  cudasim::record_calls(true);
  for (const Sizes& s : {Sizes{3, 0, 4, 3}, Sizes{3, 2, 0, 3}}) {
    const auto run = [&](Device device) {
      return detail::recurrent<TypeParam>(arguments_on<TypeParam, double>(device, s), false);
    };
    const auto on_host = run("cpu:0");
    const auto on_gpu = run("cuda:0");
    for (std::size_t i = 0; i < on_host.size(); ++i) {
      EXPECT_TRUE(all_close(on_gpu[i], on_host[i], 1e-12, 1e-12)) << "result " << i;
    }
  }
  EXPECT_EQ(calls_of(cudasim::take_calls(), "cudnnRNNForward"), 0);
  cudasim::record_calls(false);
}

TYPED_TEST(CudaRnn, ThreadsRunItAtOnce) {
  const auto expected = passes<TypeParam, float>("cpu:0", kSmall, false);
  std::vector<std::vector<Tensor>> results(4);
  std::latch start(4);
  std::vector<std::future<void>> threads;
  for (int i = 0; i < 4; ++i) {
    threads.push_back(std::async(std::launch::async, [&, i] {
      const Device device(DeviceType::cuda, i % 2);  // two threads a device
      start.arrive_and_wait();
      for (int turn = 0; turn < 3; ++turn) {
        results[static_cast<std::size_t>(i)] = passes<TypeParam, float>(device, kSmall, i > 1);
      }
    }));
  }
  for (std::future<void>& thread : threads) thread.get();
  const auto reversed = passes<TypeParam, float>("cpu:0", kSmall, true);
  for (std::size_t k = 0; k < results.size(); ++k) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(all_close(results[k][i], (k > 1 ? reversed : expected)[i], 1e-4, 1e-5))
          << "tensor " << i << " of thread " << k;
    }
  }
}

TEST(CudaRnnOptions, ALayerIsTheLibrarysWithinTheSizesItCountsWith) {
  const auto taken = [](const Shape& x, std::int64_t rows, Device device = "cuda:0") {
    return detail::has_recurrent_library(empty(x, {.device = device}), rows);
  };
  EXPECT_TRUE(taken({1, 1, 1}, 1));
  EXPECT_TRUE(taken({65535, 1, 1}, 1));
  EXPECT_FALSE(taken({65536, 1, 1}, 1));
  EXPECT_TRUE(taken({1, 2, 1}, (std::int64_t{1} << 30) - 1));
  EXPECT_FALSE(taken({1, 2, 1}, std::int64_t{1} << 30));
  EXPECT_FALSE(taken({1, 0, 1}, 1));
  EXPECT_FALSE(taken({1, 1, 1}, 1, "cpu:0"));
}

TEST(CudaRnnOptions, RoundsToTf32OnRequestAlone) {
  const auto state = [](auto value) {
    using T = decltype(value);
    const TensorOptions options{.dtype = dtype_of<T>, .device = "cuda:0"};
    A arguments;
    arguments.tensors[A::x] = full({1, 1, 1}, 1 + 0x1p-9, options);
    arguments.tensors[A::weight_ih] = full({1, 1}, 1 + 0x1p-12, options);
    arguments.tensors[A::weight_hh] = full({1, 1}, 1, options);
    return static_cast<double>(
        detail::recurrent<detail::ReluCell>(arguments, false)[0].template to_vector<T>()[0]);
  };
  const double exact = (1 + 0x1p-9) * (1 + 0x1p-12);
  EXPECT_EQ(state(float{}), exact);
  set_float32_matmul_precision(MatmulPrecision::high);
  EXPECT_EQ(state(float{}), 1 + 0x1p-9);
  EXPECT_EQ(state(double{}), exact);
  set_float32_matmul_precision(MatmulPrecision::highest);
  EXPECT_EQ(state(float{}), exact);
}

}  // namespace rnn_test
}  // namespace lockstep::cuda
