// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/autocast.hpp>

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/cat.hpp>
#include <lockstep/ops/compare.hpp>
#include <lockstep/ops/conv.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/ops/loss.hpp>
#include <lockstep/ops/matmul.hpp>
#include <lockstep/ops/max.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/pooling.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/softmax.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/ops/where.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "support/expect_error.hpp"
#include "support/varied.hpp"

namespace lockstep {
namespace autocast_test {

using testing::all_close;
using testing::throws;
using testing::varied;
using testing::varied_leaf;

constexpr Dtype kHalves[] = {Dtype::bf16, Dtype::f16};

std::vector<float> floats(const Tensor& tensor) { return tensor.to(Dtype::f32).to_vector<float>(); }

// The elements rounded to a dtype, in f32.
Tensor rounded(const Tensor& x, Dtype dtype) {
  const NoGradGuard guard;
  return x.to(dtype).to(Dtype::f32);
}

TEST(Autocast, TheGuardSetsTheStateAndRestoresIt) {
  const auto expect = [](bool enabled, Dtype dtype) {
    EXPECT_EQ(is_autocast_enabled(), enabled);
    EXPECT_EQ(autocast_dtype(), dtype);
  };
  expect(false, Dtype::bf16);
  {
    const AutocastGuard by_default;
    expect(true, Dtype::bf16);
    {
      const AutocastGuard inner(Dtype::f16);
      expect(true, Dtype::f16);
      const AutocastGuard off(false);
      EXPECT_FALSE(is_autocast_enabled());
    }
    expect(true, Dtype::bf16);
    bool elsewhere = true;
    std::thread([&] { elsewhere = is_autocast_enabled(); }).join();
    EXPECT_FALSE(elsewhere);
  }
  const AutocastGuard off(false, Dtype::f16);
  expect(false, Dtype::f16);
}

TEST(Autocast, OnlyHalfPrecisionIsADtypeForIt) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::i64}) {
    EXPECT_TRUE(throws<DtypeError>([&] { AutocastGuard guard(dtype); }, "AutocastGuard",
                                   "bf16 or f16", name(dtype)));
  }
  EXPECT_FALSE(is_autocast_enabled());
}

struct Product {
  const char* name;
  std::function<Tensor(const std::vector<Tensor>&)> run;
  std::vector<Tensor> arguments;
};

std::vector<Product> products() {
  const auto conv = [](const auto& a) { return conv2d(a[0], a[1], a[2], 1, 1); };
  const auto lin = [](const auto& a) { return linear(a[0], a[1], a[2]); };
  const auto mat = [](const auto& a) { return matmul(a[0], a[1]); };
  return {{"linear", lin, {varied<float>({5, 7}), varied<float>({3, 7}, 1), varied<float>({3}, 2)}},
          {"linear", lin, {varied<float>({2, 5, 7}), varied<float>({3, 7}, 1), Tensor()}},
          {"matmul", mat, {varied<float>({5, 7}), varied<float>({7, 4}, 1)}},
          {"matmul", mat, {varied<float>({4, 5}).t(), varied<float>({6, 4}, 1).t()}},
          {"matmul", mat, {varied<float>({2, 1, 5, 7}), varied<float>({3, 7, 2}, 1)}},
          {"matmul", mat, {varied<float>({7}), varied<float>({7}, 1)}},
          {"conv2d",
           conv,
           {varied<float>({3, 2, 5, 5}), varied<float>({4, 2, 3, 3}, 1), varied<float>({4}, 2)}},
          {"conv2d", conv, {varied<float>({2, 6, 6}), varied<float>({4, 2, 3, 3}, 1), Tensor()}}};
}

TEST(Autocast, ProductsAreOfItsDtypeAndRoundedOnce) {
  for (const Dtype dtype : kHalves) {
    for (const Product& product : products()) {
      SCOPED_TRACE(product.name);
      std::vector<Tensor> arguments;
      for (const Tensor& argument : product.arguments) {
        arguments.push_back(argument.defined() ? rounded(argument, dtype) : argument);
      }
      const Tensor expected = product.run(arguments).to(dtype);
      const AutocastGuard guard(dtype);
      const Tensor result = product.run(product.arguments);
      EXPECT_EQ(result.dtype(), dtype);
      EXPECT_EQ(result.sizes(), expected.sizes());
      EXPECT_EQ(floats(result), floats(expected));
    }
  }
}

TEST(Autocast, ItsProductsTakeDtypesInAnyMixture) {
  const AutocastGuard guard;
  const Tensor x = varied<float>({2, 3}).to(Dtype::f16);
  const Tensor weight = varied<float>({4, 3}, 1).to(Dtype::bf16);
  EXPECT_EQ(linear(x, weight, varied<float>({4}, 2)).dtype(), Dtype::bf16);
  EXPECT_EQ(matmul(x, weight.t()).dtype(), Dtype::bf16);
}

TEST(Autocast, NeverConvertsF64) {
  const AutocastGuard guard;
  const Tensor x = varied({2, 3});
  EXPECT_EQ(matmul(x, varied({3, 2}, 1)).dtype(), Dtype::f64);
  EXPECT_EQ(linear(x, varied({4, 3}, 1), varied({4}, 2)).dtype(), Dtype::f64);
  EXPECT_EQ(softmax(x, 1).dtype(), Dtype::f64);
  EXPECT_EQ(mse_loss(x, varied({2, 3}, 1)).dtype(), Dtype::f64);
  EXPECT_TRUE(throws<DtypeError>(
      [&] {
        (void)matmul(x, varied<float>({3, 2}));
      },
      "matmul", "f64", "f32"));
  EXPECT_TRUE(throws<DtypeError>([&] { (void)(x + varied<float>({2, 3})); }, "add", "f64", "f32"));
}

TEST(Autocast, SoftmaxAndLossesAreInF32) {
  const Tensor labels = tensor<std::int64_t>({2, 0}, "cpu:0");
  for (const Dtype dtype : kHalves) {
    const Tensor x = varied<float>({2, 3}).to(dtype);
    const Tensor target = varied<float>({2, 3}, 1);
    const Tensor wide = x.to(Dtype::f32);
    const std::vector<Tensor> expected = {softmax(wide, 1), log_softmax(wide, 1),
                                          cross_entropy(wide, labels), nll_loss(wide, labels),
                                          mse_loss(wide, target)};
    const AutocastGuard guard(dtype);
    const std::vector<Tensor> results = {softmax(x, 1), log_softmax(x, 1), cross_entropy(x, labels),
                                         nll_loss(x, labels), mse_loss(x, target)};
    for (std::size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(results[i].dtype(), Dtype::f32) << i;
      EXPECT_EQ(results[i].to_vector<float>(), expected[i].to_vector<float>()) << i;
    }
    EXPECT_EQ(cross_entropy(x, labels, Reduction::none).sizes(), Shape{2});
  }
}

TEST(Autocast, WhatLeavesTheRangeOfHalfPrecisionIsInF32) {
  const Tensor x = full({2, 3}, 12, {.dtype = Dtype::f16});
  const AutocastGuard guard(Dtype::f16);
  const float twelve = 12;
  EXPECT_FLOAT_EQ(exp(x).to_vector<float>()[0], std::exp(twelve));
  EXPECT_FLOAT_EQ(log(x).to_vector<float>()[0], std::log(twelve));
  EXPECT_FLOAT_EQ(pow(x, 5).to_vector<float>()[0], 248832);
  EXPECT_FLOAT_EQ((1 / x).to_vector<float>()[0], 1 / twelve);
  EXPECT_EQ(sum(full({70000}, 12, {.dtype = Dtype::f16})).to_vector<float>()[0], 840000);
  EXPECT_EQ(sum(x, {1}).dtype(), Dtype::f32);
  EXPECT_EQ(sum(x.to(Dtype::f64)).dtype(), Dtype::f64);
}

TEST(Autocast, OtherOperationsTakeWhatComes) {
  const AutocastGuard guard;
  const Tensor wide = varied<float>({1, 2, 4, 4});
  const Tensor half = wide.to(Dtype::bf16);
  for (const Tensor& x : {wide, half}) {
    EXPECT_EQ(relu(x).dtype(), x.dtype());
    EXPECT_EQ((x * 2 + x).dtype(), x.dtype());
    EXPECT_EQ(max_pool2d(x, 2).dtype(), x.dtype());
    EXPECT_EQ(x.flatten(1).dtype(), x.dtype());
    EXPECT_EQ(mean(x).dtype(), x.dtype());
    EXPECT_EQ(sqrt(relu(x)).dtype(), x.dtype());
  }
  const Tensor total = varied<float>({3});
  total.add_(varied<float>({3}, 1));
  EXPECT_EQ(total.dtype(), Dtype::f32);
}

TEST(Autocast, F32AndHalfPrecisionMeetInF32) {
  const Tensor a = varied_leaf<float>({2, 3});
  const Tensor b = varied_leaf<float>({3}, 1);
  {
    const AutocastGuard guard;
    const Tensor half = b.to(Dtype::bf16);
    for (const Tensor& result : {a + half, half - a, a * half, half / a}) {
      EXPECT_EQ(result.dtype(), Dtype::f32);
    }
    EXPECT_EQ(floats(a * half), floats(a * rounded(b, Dtype::bf16)));
    (a + half).sum().backward();
  }
  EXPECT_EQ(a.grad().dtype(), Dtype::f32);
  EXPECT_EQ(b.grad().to_vector<float>(), (std::vector<float>{2, 2, 2}));
  EXPECT_TRUE(throws<DtypeError>([&] { (void)(a + b.to(Dtype::bf16)); }, "add", "f32", "bf16"));
}

TEST(Autocast, WhatJoinsOrChoosesMeetsInF32AsWell) {
  const Tensor a = varied_leaf<float>({2, 3});
  const Tensor b = varied_leaf<float>({2, 3}, 1);
  for (const Dtype dtype : kHalves) {
    const auto results = [&](const Tensor& x, const Tensor& y) {
      const Tensor condition = gt(a.detach(), 0);
      return std::vector<Tensor>{cat({x, y}, 1),        cat({y, x}),   stack({y, x, y}),
                                 maximum(x, y),         minimum(y, x), where(condition, x, y),
                                 where(condition, y, x)};
    };
    const std::vector<Tensor> expected = results(a, rounded(b, dtype));
    const AutocastGuard guard(dtype);
    const std::vector<Tensor> found = results(a, b.to(dtype));
    for (std::size_t i = 0; i < found.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(found[i].dtype(), Dtype::f32);
      EXPECT_EQ(floats(found[i]), floats(expected[i]));
    }
    for (const Tensor& same : results(a.to(dtype), b.to(dtype))) EXPECT_EQ(same.dtype(), dtype);
    const Tensor other = b.to(dtype == Dtype::f16 ? Dtype::bf16 : Dtype::f16);
    EXPECT_EQ(cat({b.to(dtype), other}).dtype(), Dtype::f32);
  }
  {
    const AutocastGuard guard;
    cat({a, b.to(Dtype::bf16)}).sum().backward();
  }
  EXPECT_EQ(b.grad().dtype(), Dtype::f32);
  EXPECT_EQ(floats(b.grad()), std::vector<float>(6, 1));
  EXPECT_TRUE(throws<DtypeError>([&] { (void)cat({a, b.to(Dtype::bf16)}); }, "cat", "f32", "bf16"));
}

TEST(Autocast, ErrorsNameTheDtypesThatWereGiven) {
  const Tensor wide = varied({2, 2});
  const Tensor half = varied<float>({2, 2}, 1).to(Dtype::f16);
  const Tensor whole = arange(4, {.dtype = Dtype::i64, .device = "cpu:0"}).reshape({2, 2});
  const AutocastGuard guard(Dtype::bf16);
  const auto expect = [&](const char* name, const char* other, const auto& operation) {
    EXPECT_TRUE(throws<DtypeError>([&] { (void)operation(); }, name, other, "f16"));
    try {
      (void)operation();
    } catch (const DtypeError& error) {
      EXPECT_EQ(std::string(error.what()).find("bf16"), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find("f32"), std::string::npos) << error.what();
    }
  };
  expect("matmul", "f64", [&] { return matmul(wide, half); });
  expect("linear", "i64", [&] { return linear(half, whole); });
  expect("add", "f64", [&] { return half + wide; });
  expect("mse_loss", "f64", [&] { return mse_loss(half, wide); });
  expect("cat", "i64", [&] { return cat({half, whole}); });
  expect("maximum", "f64", [&] { return maximum(half, wide); });
  expect("where", "f64", [&] { return where(gt(wide, 0), wide, half); });
}

TEST(Autocast, GradientsComeBackInTheDtypeOfTheArgument) {
  for (const Dtype dtype : kHalves) {
    for (const Product& product : products()) {
      SCOPED_TRACE(product.name);
      const auto gradients = [&](bool lower, bool during_backward) {
        std::vector<Tensor> leaves;
        for (const Tensor& argument : product.arguments) {
          leaves.push_back(argument.defined() ? argument.detach().requires_grad_() : argument);
        }
        Tensor total;
        {
          const AutocastGuard guard(lower, dtype);
          total = square(product.run(leaves).to(Dtype::f32)).sum();
        }
        const AutocastGuard guard(during_backward, dtype);
        total.backward();
        std::vector<Tensor> grads;
        for (const Tensor& leaf : leaves) {
          if (leaf.defined()) grads.push_back(leaf.grad());
        }
        return grads;
      };
      const std::vector<Tensor> found = gradients(true, false);
      const std::vector<Tensor> same = gradients(true, true);
      const std::vector<Tensor> exact = gradients(false, false);
      const std::vector<Tensor> exact_too = gradients(false, true);
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].dtype(), Dtype::f32);
        EXPECT_TRUE(all_close(found[i], exact[i], 0.03, dtype == Dtype::bf16 ? 0.1 : 0.01));
        // Autocast has no say in backward: what was computed in f32 has gradients computed in f32.
        EXPECT_EQ(floats(found[i]), floats(same[i]));
        EXPECT_EQ(floats(exact[i]), floats(exact_too[i]));
      }
    }
  }
}

// A backward written with a product that autocast would lower.
struct Doubles {
  static constexpr const char* name = "doubles";
  Tensor forward(const Tensor& x) const { return x * 2; }
  Tensor backward(const Backward&, const Tensor& grad) const {
    EXPECT_FALSE(is_autocast_enabled());
    return matmul(grad, from_values(std::vector<float>{2}, {1, 1}));
  }
};

TEST(Autocast, IsOffWithinBackward) {
  const Tensor x = varied_leaf<float>({3, 1}, 0, Device());
  const AutocastGuard guard;
  apply(Doubles{}, x).sum().backward();
  EXPECT_EQ(x.grad().dtype(), Dtype::f32);
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{2, 2, 2}));
  EXPECT_TRUE(is_autocast_enabled());
}

TEST(Autocast, HasSecondDerivatives) {
  const Tensor x = tensor<float>({1, 2}).requires_grad_();
  const Tensor w = tensor<float>({3, 4}).requires_grad_();
  Tensor y;
  {
    const AutocastGuard guard;
    y = square(matmul(x, w));  // (x·w)²
  }
  const Tensor first = autograd::grad({y}, {x}, {}, {}, true)[0];  // 2 (x·w) w
  EXPECT_EQ(first.dtype(), Dtype::f32);
  EXPECT_EQ(first.to_vector<float>(), (std::vector<float>{66, 88}));
  const Tensor second = autograd::grad({sum(first)}, {x})[0];  // 2 (Σw) w
  EXPECT_EQ(second.dtype(), Dtype::f32);
  EXPECT_EQ(second.to_vector<float>(), (std::vector<float>{42, 56}));
}

// The losses of some steps of training in f32 and with autocast, which have to stay close.
template <class Forward>
void expect_training_agrees(const std::vector<Shape>& shapes, const Tensor& x, const Tensor& labels,
                            Dtype dtype, const Forward& forward) {
  const auto train = [&](bool lower) {
    std::vector<Tensor> parameters;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const double fan_in = static_cast<double>(numel(shapes[i]) / shapes[i][0]);
      parameters.push_back(
          (varied<float>(shapes[i], i) * (1 / std::sqrt(fan_in))).requires_grad_());
    }
    optim::SGD sgd{parameters, {.lr = 0.1, .momentum = 0.5}};
    std::vector<float> losses;
    for (int step = 0; step < 8; ++step) {
      Tensor loss;
      {
        const AutocastGuard guard(lower, dtype);
        const Tensor out = forward(parameters, x);
        EXPECT_EQ(out.dtype(), lower ? dtype : Dtype::f32);
        loss = cross_entropy(out, labels);
        EXPECT_EQ(loss.dtype(), Dtype::f32);
      }
      sgd.zero_grad();
      loss.backward();
      for (const Tensor& parameter : parameters) {
        EXPECT_EQ(parameter.grad().dtype(), Dtype::f32);
      }
      sgd.step();
      losses.push_back(loss.item<float>());
    }
    for (const Tensor& parameter : parameters) EXPECT_EQ(parameter.dtype(), Dtype::f32);
    return losses;
  };
  const std::vector<float> exact = train(false);
  const std::vector<float> lowered = train(true);
  EXPECT_NE(exact, lowered);  // it was in effect
  EXPECT_LT(exact.back(), 0.9F * exact.front());
  for (std::size_t step = 0; step < exact.size(); ++step) {
    EXPECT_NEAR(lowered[step], exact[step], 0.02F * exact[step]) << step;
  }
}

TEST(Autocast, TrainsAPerceptronAsF32Does) {
  const Tensor labels = tensor<std::int64_t>({0, 1, 2, 0, 1, 2, 0, 1}, "cpu:0");
  for (const Dtype dtype : kHalves) {
    expect_training_agrees(
        {{16, 10}, {16}, {16, 16}, {16}, {3, 16}, {3}}, varied<float>({8, 10}, 9), labels, dtype,
        [](const std::vector<Tensor>& p, const Tensor& x) {
          const Tensor h = relu(linear(x, p[0], p[1]));
          return linear(h + relu(linear(h, p[2], p[3])), p[4], p[5]);  // two gradients meet in h
        });
  }
}

TEST(Autocast, TrainsAConvolutionalNetworkAsF32Does) {
  const Tensor labels = tensor<std::int64_t>({0, 1, 2, 1}, "cpu:0");
  for (const Dtype dtype : kHalves) {
    expect_training_agrees(
        {{4, 1, 3, 3}, {4}, {6, 4, 3, 3}, {6}, {3, 24}, {3}}, varied<float>({4, 1, 8, 8}, 9),
        labels, dtype, [](const std::vector<Tensor>& p, const Tensor& x) {
          const Tensor first = max_pool2d(relu(conv2d(x, p[0], p[1], 1, 1)), 2);
          const Tensor second = max_pool2d(relu(conv2d(first, p[2], p[3], 1, 1)), 2);
          return linear(second.flatten(1), p[4], p[5]);
        });
  }
}

// A name would be taken for `true`, and its dtype for bf16.
static_assert(!std::is_constructible_v<AutocastGuard, const char*>);
static_assert(!std::is_constructible_v<AutocastGuard, int>);
static_assert(std::is_constructible_v<AutocastGuard, bool>);

TEST(Autocast, ThePredictedClassIsFoundInHalfPrecisionToo) {
  const Tensor x = varied<float>({6, 5});
  const AutocastGuard guard;
  const Tensor half = x.to(Dtype::bf16);
  EXPECT_EQ(argmax(half, 1).to_vector<std::int64_t>(),
            argmax(half.to(Dtype::f32), 1).to_vector<std::int64_t>());
}

}  // namespace autocast_test
}  // namespace lockstep
