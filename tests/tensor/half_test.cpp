// SPDX-License-Identifier: Apache-2.0
#include <lockstep/tensor/half.hpp>

#include <lockstep/autograd/engine.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/channel_sum.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/pooling.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "support/expect_error.hpp"
#include "support/varied.hpp"

namespace lockstep {
namespace half_test {

using testing::throws;
using testing::varied;

constexpr Dtype kHalves[] = {Dtype::bf16, Dtype::f16};

std::vector<float> floats(const Tensor& tensor) { return tensor.to(Dtype::f32).to_vector<float>(); }

struct Operation {
  std::string name;
  std::function<Tensor(const Tensor&, const Tensor&)> run;
};

// Of two tensors of shape [3, 4, 4], the second above 0.
std::vector<Operation> operations() {
  using T = const Tensor&;
  return {{"add", [](T a, T b) { return add(a, b, 3); }},
          {"sub", [](T a, T b) { return a - b; }},
          {"mul, stretched", [](T a, T b) { return a * b.narrow(0, 1, 1); }},
          {"div, strided", [](T a, T b) { return a.transpose(0, 1) / b.transpose(0, 1); }},
          {"add a number", [](T a, T) { return a + 0.3; }},
          {"sub from", [](T a, T) { return 0.3 - a; }},
          {"mul by a number", [](T a, T) { return a * 0.3; }},
          {"div by a number", [](T a, T) { return a / 0.3; }},
          {"reciprocal", [](T, T b) { return 0.3 / b; }},
          {"neg", [](T a, T) { return -a; }},
          {"relu", [](T a, T) { return relu(a); }},
          {"exp", [](T a, T) { return exp(a); }},
          {"log", [](T, T b) { return log(b); }},
          {"sqrt", [](T, T b) { return sqrt(b); }},
          {"tanh", [](T a, T) { return tanh(a); }},
          {"sigmoid", [](T a, T) { return sigmoid(a); }},
          {"abs", [](T a, T) { return abs(a); }},
          {"square", [](T a, T) { return square(a); }},
          {"pow", [](T, T b) { return pow(b, 1.5); }},
          {"sum", [](T a, T) { return sum(a, {1}); }},
          {"mean", [](T a, T) { return mean(a.transpose(0, 2)); }},
          {"channel_sum", [](T a, T) { return detail::channel_sum(a, 1); }},
          {"max_pool2d", [](T a, T) { return max_pool2d(a, 2, 1, 1); }},
          {"linear", [](T a, T b) {
             return linear(a, b.narrow(0, 0, 1).reshape({4, 4}));
           }}};
}

TEST(Half, OperationsAreDoneInF32AndRoundedOnce) {
  for (const Dtype dtype : kHalves) {
    const Tensor a = varied<float>({3, 4, 4}).to(dtype);
    const Tensor b = (varied<float>({3, 4, 4}, 1) + 1.1).to(dtype);
    for (const Operation& operation : operations()) {
      const Tensor wide = operation.run(a.to(Dtype::f32), b.to(Dtype::f32));
      const Tensor half = operation.run(a, b);
      EXPECT_EQ(half.dtype(), dtype) << operation.name;
      EXPECT_EQ(half.sizes(), wide.sizes()) << operation.name;
      EXPECT_EQ(floats(half), floats(wide.to(dtype))) << operation.name;
    }
  }
}

TEST(Half, GradientsAreOfTheSameDtype) {
  for (const Dtype dtype : kHalves) {
    for (const Operation& operation : operations()) {
      const auto gradients = [&](Dtype in) {
        // Multiples of 1/8, so that products of two are exact in either.
        const Tensor x = varied<float>({3, 4, 4});
        const Tensor eighths = (x * 8).to(Dtype::i32).to(Dtype::f32) / 8;
        const Tensor a = (eighths + 0.0625).to(in).requires_grad_();
        const Tensor b = (eighths + 1.125).to(in).requires_grad_();
        const Tensor y = operation.run(a, b);
        autograd::backward({y, y}, {ones(y.sizes(), y.options()), ones(y.sizes(), y.options())});
        return std::vector<Tensor>{a.grad(), b.grad()};
      };
      const std::vector<Tensor> wide = gradients(Dtype::f32);
      const std::vector<Tensor> half = gradients(dtype);
      for (std::size_t i = 0; i < 2; ++i) {
        ASSERT_EQ(half[i].defined(), wide[i].defined()) << operation.name;
        if (!half[i].defined()) continue;
        EXPECT_EQ(half[i].dtype(), dtype) << operation.name;
        const double tolerance = dtype == Dtype::bf16 ? 0.04 : 0.005;
        EXPECT_TRUE(testing::all_close(half[i].to(Dtype::f32), wide[i], tolerance, 8 * tolerance))
            << operation.name;
      }
    }
  }
}

TEST(Half, GradientsOfALeafAddUp) {
  const Tensor x = varied<float>({3}).to(Dtype::bf16).requires_grad_();
  for (int pass = 0; pass < 3; ++pass) (x * 2 + x).sum().backward();
  EXPECT_EQ(x.grad().dtype(), Dtype::bf16);
  EXPECT_EQ(floats(x.grad()), (std::vector<float>{9, 9, 9}));
}

TEST(Half, IsNotMixedWithF32WithoutBeingAsked) {
  const Tensor a = varied<float>({2, 2});
  const Tensor b = a.to(Dtype::bf16);
  EXPECT_TRUE(throws<DtypeError>([&] { (void)(a + b); }, "add", "f32", "bf16"));
  EXPECT_TRUE(throws<DtypeError>([&] { (void)linear(a, b); }, "linear", "f32", "bf16"));
}

}  // namespace half_test
}  // namespace lockstep
