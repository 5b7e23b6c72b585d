// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/function.hpp>

#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/inference_mode.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/softmax.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/random.hpp>

#include "support/expect_error.hpp"
#include "support/gradcheck.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace ls = lockstep;

namespace function_test {

using ls::testing::throws;

// The example of the header.
struct Cube {
  static constexpr const char* name = "cube";
  ls::Saved x = {};
  ls::Tensor forward(const ls::Tensor& input) {
    x = input;
    return input * input * input;
  }
  ls::Tensor backward(const ls::Backward& saved, const ls::Tensor& grad) {
    return grad * saved(x) * saved(x) * 3;
  }
};

constexpr ls::TensorOptions kLeaf{.dtype = ls::Dtype::f64, .device = {}, .requires_grad = true};

TEST(Function, AnOperationOfOnesOwnHasAllDerivatives) {
  const ls::Tensor x = ls::tensor<double>({2}).requires_grad_();
  const ls::Tensor y = ls::apply(Cube{}, x);
  EXPECT_EQ(y.item(), 8);
  EXPECT_STREQ(y.grad_fn()->name(), "cube");
  const ls::Tensor first = ls::autograd::grad({y}, {x}, {}, {}, true)[0];
  EXPECT_EQ(first.item(), 12);
  EXPECT_EQ(ls::autograd::grad({first}, {x})[0].item(), 12);
  const auto cube = [](const ls::Tensor& a) { return ls::apply(Cube{}, a); };
  EXPECT_TRUE(ls::testing::gradcheck(cube, {ls::rand({3}, kLeaf, 1, 2)}));
  EXPECT_TRUE(ls::testing::gradgradcheck(cube, {ls::rand({3}, kLeaf, 1, 2)}));
}

// A result of a type that is derived from Tensor.
struct Counted {
  static constexpr const char* name = "counted";
  ls::Buffer forward(const ls::Tensor& input) { return ls::Buffer(input * 2); }
  ls::Tensor backward(const ls::Backward& /*saved*/, const ls::Tensor& grad) { return grad * 2; }
};

TEST(Function, AResultMayBeABuffer) {
  const ls::Tensor x = ls::ones({2}, kLeaf);
  ls::sum(ls::apply(Counted{}, x)).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 2}));
}

TEST(Function, NothingIsRecordedWithoutNeed) {
  EXPECT_FALSE(ls::apply(Cube{}, ls::ones({2})).requires_grad());
  const ls::NoGradGuard guard;
  EXPECT_FALSE(ls::apply(Cube{}, ls::ones({2}, kLeaf)).requires_grad());
}

// Two results of several tensors and a number; one result may go unused.
struct SumAndScale {
  static constexpr const char* name = "sum_and_scale";
  double factor = 0;
  std::size_t count = 0;
  std::vector<ls::Tensor> forward(const std::vector<ls::Tensor>& inputs, double by) {
    factor = by;
    count = inputs.size();
    ls::Tensor total = inputs[0];
    for (std::size_t i = 1; i < inputs.size(); ++i) total = total + inputs[i];
    return {total * 1, inputs[0] * by};
  }
  std::vector<ls::Tensor> backward(const ls::Backward& saved,
                                   const std::vector<ls::Tensor>& grads) const {
    std::vector<ls::Tensor> results(count, grads[0]);
    if (saved.needs(0) && grads[1].defined()) {
      const ls::Tensor scaled = grads[1] * factor;
      results[0] = grads[0].defined() ? grads[0] + scaled : scaled;
    }
    return results;
  }
};

TEST(Function, SeveralResultsAndLists) {
  const ls::Tensor a = ls::ones({2}, kLeaf);
  const ls::Tensor b = ls::ones({2}, kLeaf);
  const ls::Tensor c = ls::ones({2}, {.dtype = ls::Dtype::f64});
  const std::vector<ls::Tensor> y = ls::apply(SumAndScale{}, std::vector<ls::Tensor>{a, b, c}, 5.0);
  EXPECT_EQ(y[0].grad_fn(), y[1].grad_fn());
  sum(y[1]).backward({}, true);
  EXPECT_EQ(a.grad().to_vector<double>(), (std::vector<double>{5, 5}));
  EXPECT_FALSE(b.grad().defined());
  sum(y[0]).backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (std::vector<double>{6, 6}));
  EXPECT_EQ(b.grad().to_vector<double>(), (std::vector<double>{1, 1}));
  EXPECT_FALSE(c.requires_grad());
}

// Hands one of its arguments through.
struct First {
  static constexpr const char* name = "first";
  ls::Tensor forward(const ls::Tensor& a, const ls::Tensor&) const { return a; }
  std::array<ls::Tensor, 2> backward(const ls::Backward&, const ls::Tensor& grad) const {
    return {grad, ls::Tensor()};
  }
};

TEST(Function, AnArgumentHandedThroughIsLeftAlone) {
  const ls::Tensor plain = ls::ones({1});
  const ls::Tensor learnt = ls::ones({1}, {.requires_grad = true});
  const ls::Tensor from_plain = ls::apply(First{}, plain, learnt);
  EXPECT_TRUE(from_plain.requires_grad());
  EXPECT_FALSE(plain.requires_grad());
  EXPECT_TRUE(plain.is_leaf());
  const ls::Tensor from_learnt = ls::apply(First{}, learnt, plain);
  EXPECT_TRUE(learnt.is_leaf());
  from_learnt.backward();
  EXPECT_EQ(learnt.grad().item(), 1);
}

TEST(Function, AnArgumentHandedThroughNeedsNoGradientWhereNothingIsRecorded) {
  const ls::Tensor learnt = ls::ones({1}, {.requires_grad = true});
  const auto given_back = [&] { return ls::apply(First{}, learnt, learnt); };
  {
    const ls::NoGradGuard no_grad;
    EXPECT_FALSE(given_back().requires_grad());
  }
  {
    const ls::InferenceModeGuard inference;
    EXPECT_FALSE(given_back().requires_grad());
  }
  EXPECT_TRUE(learnt.requires_grad());
}

struct WrongCount {
  static constexpr const char* name = "wrong_count";
  ls::Tensor forward(const ls::Tensor& a, const ls::Tensor& b) const { return a + b; }
  ls::Tensor backward(const ls::Backward&, const ls::Tensor& grad) const { return grad; }
};

struct WrongShape {
  static constexpr const char* name = "wrong_shape";
  ls::Tensor forward(const ls::Tensor& a) const { return ls::sum(a); }
  ls::Tensor backward(const ls::Backward&, const ls::Tensor& grad) const { return grad; }
};

TEST(Function, GradientsThatCannotBeAreErrors) {
  const ls::Tensor x = ls::ones({3}, kLeaf);
  try {
    ls::sum(ls::apply(WrongCount{}, x, x)).backward();
    FAIL();
  } catch (const ls::AutogradError& error) {
    EXPECT_EQ(std::string(error.what()),
              "backward of wrong_count returned 1 gradients for 2 tensor arguments (in the "
              "backward of wrong_count on cpu)");
  }
  try {
    ls::apply(WrongShape{}, x).backward();
    FAIL();
  } catch (const ls::AutogradError& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "a gradient of shape [] and f64 came for a leaf of shape [3] and f64 (in the backward of "
        "AccumulateGrad on cpu)");
  }
}

// Forgets that the gradient of a sum is that of each row.
struct RowSum {
  static constexpr const char* name = "row_sum";
  ls::Tensor forward(const ls::Tensor& a) const { return ls::sum(a, {1}); }
  ls::Tensor backward(const ls::Backward&, const ls::Tensor& grad) const { return grad; }
};

TEST(Function, AGradientOfAnotherShapeIsAnErrorWhereverItGoes) {
  const ls::Tensor x = ls::ones({3, 3}, kLeaf);
  for (const ls::Tensor& between : {ls::relu(x), ls::softmax(x, 1), x * 2}) {
    EXPECT_TRUE(throws<ls::AutogradError>([&] { ls::sum(ls::apply(RowSum{}, between)).backward(); },
                                          "a gradient of shape [3] was returned for the result of ",
                                          "which is of shape [3, 3]",
                                          "in the backward of row_sum"));
    EXPECT_TRUE(throws<ls::AutogradError>(
        [&] { ls::autograd::grad({ls::sum(ls::apply(RowSum{}, between))}, {between}); }, "[3, 3]"));
  }
  EXPECT_FALSE(x.grad().defined());
  EXPECT_TRUE(
      throws<ls::AutogradError>([&] { ls::autograd::grad({ls::sum(ls::apply(RowSum{}, x))}, {x}); },
                                "a gradient of shape [3]", "came for a leaf of shape [3, 3]"));
}

// Computes its gradient in f64, whatever it has been given.
struct Doubled {
  static constexpr const char* name = "doubled";
  ls::Tensor forward(const ls::Tensor& a) const { return a * 2; }
  ls::Tensor backward(const ls::Backward&, const ls::Tensor& grad) const {
    return grad.to(ls::Dtype::f64) * 2;
  }
};

TEST(Function, AGradientOfAnotherDtypeIsConverted) {
  for (const ls::Dtype dtype : {ls::Dtype::f32, ls::Dtype::bf16}) {
    const ls::Tensor x = ls::from_values<float>({-1, 2, 3}, {3}).requires_grad_();
    const ls::Tensor y = ls::relu(x.to(dtype));
    const ls::Tensor both = ls::sum(ls::apply(Doubled{}, y) + y);  // two gradients of y
    EXPECT_EQ(ls::autograd::grad({both}, {y}, {}, true)[0].dtype(), dtype);
    both.backward();
    EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 3, 3}));
  }
  const ls::Tensor x = ls::from_values<float>({1, 2}, {2}).requires_grad_();
  const ls::Tensor of_leaf = ls::sum(ls::apply(Doubled{}, x));
  EXPECT_TRUE(throws<ls::AutogradError>([&] { ls::autograd::grad({of_leaf}, {x}, {}, true); },
                                        "f64 came for a leaf of shape [2] and f32"));
  EXPECT_TRUE(throws<ls::AutogradError>([&] { of_leaf.backward(); },
                                        "f64 came for a leaf of shape [2] and f32"));
  const ls::Tensor y = ls::sum(ls::apply(Doubled{}, x * x));
  const ls::Tensor slope = ls::autograd::grad({y}, {x}, {}, {}, true)[0];
  ls::sum(slope).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{4, 4}));
  // The conversion itself has a derivative: of 16 x³ it is 48 x².
  const ls::Tensor fourth = ls::sum(ls::square(ls::apply(Doubled{}, x * x)));
  const ls::Tensor cubic = ls::autograd::grad({fourth}, {x}, {}, {}, true)[0];
  EXPECT_EQ(ls::autograd::grad({ls::sum(cubic)}, {x})[0].to_vector<float>(),
            (std::vector<float>{48, 192}));
}

// The second result is one of integers.
struct WithCount {
  static constexpr const char* name = "with_count";
  std::vector<ls::Tensor> forward(const ls::Tensor& a) const {
    return {a * 2, ls::tensor({a.numel()})};
  }
  ls::Tensor backward(const ls::Backward&, const std::vector<ls::Tensor>& grads) const {
    return grads[0] * 2;
  }
};

TEST(Function, AResultOfIntegersIsNotRecorded) {
  const ls::Tensor x = ls::ones({3}, kLeaf);
  const std::vector<ls::Tensor> both = ls::apply(WithCount{}, x);
  EXPECT_FALSE(both[1].requires_grad());
  EXPECT_EQ(both[1].grad_fn(), nullptr);
  ls::sum(both[0]).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 2, 2}));
}

struct Pair {
  static constexpr const char* name = "pair";
  std::vector<ls::Tensor> forward(const ls::Tensor& a) const { return {a * 2, a * 3}; }
  ls::Tensor backward(const ls::Backward&, const ls::Tensor& grad) const { return grad * 2; }
};

TEST(Function, ABackwardThatTakesOneGradientOfSeveralIsAnError) {
  const ls::Tensor x = ls::ones({3}, kLeaf);
  const std::vector<ls::Tensor> both = ls::apply(Pair{}, x);
  EXPECT_TRUE(throws<ls::AutogradError>([&] { ls::sum(both[1]).backward(); },
                                        "backward of pair takes one gradient",
                                        "returned 2 tensors"));
}

// Keeps its own result, as exp does, or as it would an argument.
struct Squaring {
  static constexpr const char* name = "squaring";
  bool as_argument = false;
  ls::Saved y = {};
  ls::Tensor forward(const ls::Tensor& x) {
    ls::Tensor result = x * x;
    y = as_argument ? ls::Saved(result) : ls::Saved::output(result);
    return result;
  }
  ls::Tensor backward(const ls::Backward& saved, const ls::Tensor& grad) const {
    return grad * ls::sqrt(saved(y)) * 2;
  }
};

TEST(Function, ASavedResultKeepsItsPlaceInTheGraph) {
  for (const bool as_argument : {false, true}) {
    const auto squaring = [&](const ls::Tensor& a) {
      return ls::apply(Squaring{as_argument}, a) * a;
    };
    EXPECT_TRUE(ls::testing::gradcheck(squaring, {ls::rand({3}, kLeaf, 1, 2)}));
    EXPECT_TRUE(ls::testing::gradgradcheck(squaring, {ls::rand({3}, kLeaf, 1, 2)}));
    const ls::Tensor x = ls::ones({1}, kLeaf);
    const ls::Tensor y = ls::apply(Squaring{as_argument}, x);
    y.mark_changed();
    EXPECT_THROW(y.backward(), ls::AutogradError);
  }
}

// Its first result is x², its second 3x, and the gradient of the first is written with the second.
struct SquareAndTriple {
  static constexpr const char* name = "square_and_triple";
  bool as_argument = false;
  ls::Saved triple = {};
  std::vector<ls::Tensor> forward(const ls::Tensor& x) {
    std::vector<ls::Tensor> results = {x * x, x * 3};
    triple = as_argument ? ls::Saved(results[1]) : ls::Saved::output(results[1], 1);
    return results;
  }
  ls::Tensor backward(const ls::Backward& saved, const std::vector<ls::Tensor>& grads) const {
    ls::Tensor result;
    if (grads[0].defined()) result = grads[0] * saved(triple) * (2.0 / 3);
    if (!grads[1].defined()) return result;
    return result.defined() ? result + grads[1] * 3 : grads[1] * 3;
  }
};

TEST(Function, ASavedResultIsTheOutputOfItsNumber) {
  for (const bool as_argument : {false, true}) {
    // The second derivative of x² goes through the second result: 2/3 · 3, not 2/3 · 2x.
    const ls::Tensor x = ls::tensor<double>({5}).requires_grad_();
    const std::vector<ls::Tensor> y = ls::apply(SquareAndTriple{as_argument}, x);
    const ls::Tensor first = ls::autograd::grad({y[0]}, {x}, {}, {}, true)[0];
    EXPECT_DOUBLE_EQ(first.item(), 10);
    EXPECT_DOUBLE_EQ(ls::autograd::grad({first}, {x})[0].item(), 2);
    const auto both = [&](const ls::Tensor& a) {
      return ls::apply(SquareAndTriple{as_argument}, a);
    };
    EXPECT_TRUE(ls::testing::gradcheck(both, {ls::rand({3}, kLeaf, 1, 2)}));
    EXPECT_TRUE(ls::testing::gradgradcheck(both, {ls::rand({3}, kLeaf, 1, 2)}));
  }
}

// Keeps its result while guards of its own hold.
struct GuardedDoubling {
  static constexpr const char* name = "guarded_doubling";
  ls::Saved y = {};
  ls::Tensor forward(const ls::Tensor& x) {
    ls::Tensor result = x * 2;
    const ls::InferenceModeGuard normal(false);
    (void)ls::apply(Squaring{}, ls::ones({1}));  // has an output of its own
    y = ls::Saved::output(result);
    return result;
  }
  ls::Tensor backward(const ls::Backward& saved, const ls::Tensor& grad) const {
    return grad * saved(y) / saved(y) * 2;
  }
};

TEST(Function, AResultSavedWithinAGuardKeepsItsPlaceInTheGraph) {
  const auto doubling = [](const ls::Tensor& a) { return ls::apply(GuardedDoubling{}, a) * a; };
  EXPECT_TRUE(ls::testing::gradgradcheck(doubling, {ls::rand({3}, kLeaf, 1, 2)}));
}

// What forward saw of its argument's handles once it had saved it.
struct CountsHandles {
  static constexpr const char* name = "counts_handles";
  long* handles;
  ls::Saved x = {};
  ls::Tensor forward(const ls::Tensor& input) {
    x = input;
    *handles = input.impl().use_count();
    return input * 2;
  }
  ls::Tensor backward(const ls::Backward& saved, const ls::Tensor& grad) const {
    return grad * saved(x) / saved(x) * 2;
  }
};

TEST(Function, SavesNothingWhereNothingIsRecorded) {
  long handles = 0;
  const ls::Tensor x = ls::ones({1}, kLeaf);
  {
    const ls::NoGradGuard guard;
    (void)ls::apply(CountsHandles{&handles}, x);
  }
  EXPECT_EQ(handles, 1);
  const ls::Tensor y = ls::apply(CountsHandles{&handles}, x);
  EXPECT_GT(handles, 1);
  y.backward();
  EXPECT_EQ(x.grad().item(), 2);
}

// Saves before its forward runs.
struct Scaled {
  static constexpr const char* name = "scaled";
  ls::Saved factor;
  ls::Tensor forward(const ls::Tensor& x) const { return x * 3; }
  ls::Tensor backward(const ls::Backward& saved, const ls::Tensor& grad) const {
    return grad * saved(factor);
  }
};

TEST(Function, WhatIsSavedBeforeForwardIsKept) {
  const ls::Tensor x = ls::ones({1}, kLeaf);
  ls::apply(Scaled{ls::ones({1}, {.dtype = ls::Dtype::f64}) * 3}, x).backward();
  EXPECT_EQ(x.grad().item(), 3);
}

// Not recorded itself, but builds a recorded operation in its forward.
struct Builder {
  static constexpr const char* name = "builder";
  ls::Tensor weight;
  ls::Tensor* product;
  ls::Tensor forward(const ls::Tensor& input) {
    *product = ls::apply(Scaled{input * 3}, weight);
    return input;
  }
  ls::Tensor backward(const ls::Backward&, const ls::Tensor& grad) const { return grad; }
};

TEST(Function, WhatIsSavedForAnOperationWithinOneThatIsNotRecordedIsKept) {
  const ls::Tensor weight = ls::ones({1}, kLeaf);
  const ls::Tensor input = ls::ones({1}, {.dtype = ls::Dtype::f64});
  ls::Tensor product;
  (void)ls::apply(Builder{weight, &product}, input);
  product.backward();
  EXPECT_EQ(weight.grad().item(), 3);

  const ls::NoGradGuard no_grad;
  struct Turned : Builder {
    ls::Tensor forward(const ls::Tensor& x) {
      const ls::GradModeGuard enable(true);
      return Builder::forward(x);
    }
  };
  weight.set_grad({});
  (void)ls::apply(Turned{{weight, &product}}, input);
  product.backward();
  EXPECT_EQ(weight.grad().item(), 3);
}

}  // namespace function_test
