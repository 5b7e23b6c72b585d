// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/inplace.hpp>

#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/from_blob.hpp>
#include <lockstep/tensor/shape.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "support/expect_error.hpp"
#include "support/gradcheck.hpp"

namespace lockstep {
namespace inplace_test {

using testing::throws;

using Integers = std::vector<std::int64_t>;

TEST(InPlace, ChangesTheTensorAndItsVersion) {
  const Tensor x = ones({3});
  const std::uint64_t before = x.version();
  x.fill_(2);
  EXPECT_GT(x.version(), before);
  x.add_(tensor({1.0F, 2.0F, 3.0F}), 10).mul_(2);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{24, 44, 64}));
  x.copy_(tensor<std::int64_t>({7, 8, 9}));
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{7, 8, 9}));
  EXPECT_EQ(x.zero_().to_vector<float>(), (std::vector<float>{0, 0, 0}));
}

TEST(InPlace, NumbersAreAddedSubtractedMultipliedAndDividedBy) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16}) {
    const Tensor x = tensor({1.0F, 2.0F, 3.0F, 4.0F}).to(dtype).reshape({2, 2});
    const std::uint64_t before = x.version();
    EXPECT_TRUE(x.add_(0.5).is_same(x));
    EXPECT_GT(x.version(), before);
    x.t().sub_(1).mul_(6).div_(1.5);  // not contiguous
    EXPECT_EQ(x.to(Dtype::f32).to_vector<float>(), (std::vector<float>{2, 6, 10, 14}));
    x.add_(x.detach(), 0.5);
    EXPECT_EQ(x.to(Dtype::f32).to_vector<float>(), (std::vector<float>{3, 9, 15, 21}));
  }
  const Tensor whole = arange(3);
  constexpr std::int64_t kOdd = (std::int64_t{1} << 53) + 1;  // no double is
  EXPECT_EQ(whole.add_(kOdd).to_vector<std::int64_t>(), (Integers{kOdd, kOdd + 1, kOdd + 2}));
  EXPECT_EQ(whole.sub_(kOdd).to_vector<std::int64_t>(), (Integers{0, 1, 2}));
  EXPECT_EQ(whole.sub_(INT64_MIN).sub_(INT64_MIN).to_vector<std::int64_t>(), (Integers{0, 1, 2}));
  EXPECT_TRUE(throws<DtypeError>([&] { whole.add_(0.5); }, "add_: the number 0.5"));
  EXPECT_TRUE(throws<DtypeError>([&] { whole.sub_(0.5); }, "sub_: the number 0.5"));
  EXPECT_TRUE(throws<DtypeError>([&] { whole.div_(2); }, "div_: expected f32 or f64, got i64"));
}

TEST(InPlace, ASourceThatSharesTheMemoryInOtherPlacesIsReadBeforeItChanges) {
  const Tensor rows = arange(8).reshape({2, 4});
  rows.narrow(1, 1, 3).copy_(rows.narrow(1, 0, 3));
  EXPECT_EQ(rows.to_vector<std::int64_t>(), (Integers{0, 0, 1, 2, 4, 4, 5, 6}));
  const Tensor square = arange(9).reshape({3, 3});
  square.copy_(square.t());
  EXPECT_EQ(square.to_vector<std::int64_t>(), (Integers{0, 3, 6, 1, 4, 7, 2, 5, 8}));
  square.copy_(square.narrow(0, 1, 1));  // stretched
  EXPECT_EQ(square.to_vector<std::int64_t>(), (Integers{1, 4, 7, 1, 4, 7, 1, 4, 7}));
  const Tensor line = arange(4);
  line.narrow(0, 1, 3).add_(line.narrow(0, 0, 3));
  EXPECT_EQ(line.to_vector<std::int64_t>(), (Integers{0, 1, 3, 5}));
  line.narrow(0, 0, 2).copy_(line.narrow(0, 2, 2));  // apart
  EXPECT_EQ(line.to_vector<std::int64_t>(), (Integers{3, 5, 3, 5}));
  line.copy_(line);
  EXPECT_EQ(line.to_vector<std::int64_t>(), (Integers{3, 5, 3, 5}));
}

TEST(InPlace, IntegersWrapAround) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const Tensor x = tensor({kMost, kMost});
  x.add_(tensor<std::int64_t>({1, kMost}), 3);
  EXPECT_EQ(x.to_vector<std::int64_t>(), (Integers{1 - kMost, -4}));
}

TEST(InPlace, ChangesOnlyTheElementsOfAView) {
  const Tensor x = arange(6).reshape({2, 3});
  const Tensor column = x.narrow(1, 1, 1);
  column.add_(full({2, 1}, 10, {.dtype = Dtype::i64}));
  EXPECT_EQ(x.to_vector<std::int64_t>(), (Integers{0, 11, 2, 3, 14, 5}));
  column.mul_(2);
  EXPECT_EQ(x.to_vector<std::int64_t>(), (Integers{0, 22, 2, 3, 28, 5}));
  column.fill_(-1);
  EXPECT_EQ(x.to_vector<std::int64_t>(), (Integers{0, -1, 2, 3, -1, 5}));
  x.t().copy_(arange(6).reshape({3, 2}));
  EXPECT_EQ(x.to_vector<std::int64_t>(), (Integers{0, 2, 4, 1, 3, 5}));
  column.zero_();
  EXPECT_EQ(x.to_vector<std::int64_t>(), (Integers{0, 0, 4, 1, 0, 5}));
}

TEST(InPlace, SourcesAreStretched) {
  const Tensor x = zeros({2, 2});
  x.copy_(tensor({1.0F, 2.0F}));
  x.add_(scalar_tensor(10.0F));
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{11, 12, 11, 12}));
  EXPECT_THROW(x.add_(zeros({3})), ShapeError);
  EXPECT_THROW(x.copy_(zeros({1, 2, 2})), ShapeError);
  EXPECT_THROW(zeros({1}).add_(zeros({2})), ShapeError);
}

TEST(InPlace, CopyBringsDataFromOtherDevices) {
  const Tensor x = zeros({2, 2}, {.device = "cpu:1"});
  x.narrow(1, 0, 1).copy_(ones({2, 1}, {.dtype = Dtype::f64, .device = "cpu:2"}));
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 0, 1, 0}));
}

TEST(InPlace, KindsThatDoNotFitAreErrors) {
  const Tensor x = zeros({2});
  EXPECT_THROW(x.add_(zeros({2}, {.dtype = Dtype::f64})), DtypeError);
  EXPECT_THROW(x.add_(zeros({2}, {.device = "cpu:0"})), DeviceError);
  EXPECT_THROW(arange(2).mul_(0.5), DtypeError);
  EXPECT_THROW(arange(2).add_(arange(2), 0.5), DtypeError);
  EXPECT_THROW(x.copy_(Tensor()), ValueError);
  EXPECT_THROW(expand(zeros({1}), {3}).fill_(1), ValueError);
  EXPECT_EQ(expand(zeros({}), {0, 3}).fill_(1).add_(ones({0, 3})).numel(), 0);
}

TEST(InPlace, ElementsThatOverlapInMemoryAreErrors) {
  std::vector<float> memory(8);
  const auto lent = [&](const Shape& shape, const Shape& strides) {
    return from_blob(memory.data(), shape, {.strides = strides});
  };
  for (const Shape& strides : {Shape{1, 1}, Shape{2, 1}, Shape{0, 1}, Shape{1, 0}}) {
    EXPECT_TRUE(throws<ValueError>([&] { lent({2, 3}, strides).add_(1); }, "same element"));
  }
  EXPECT_EQ(memory, std::vector<float>(8));
  lent({2, 3}, {4, 1}).add_(1);                     // a gap between the rows
  lent({2, 2, 2}, {1, 4, 2}).narrow(1, 1, 1) += 2;  // permuted
  lent({1, 2, 1}, {0, 7, 0}).mul_(3);               // single elements need no stride
  EXPECT_EQ(memory, (std::vector<float>{3, 1, 1, 0, 3, 3, 3, 6}));
}

TEST(InPlace, ChangesThatAGradientWouldMissAreErrors) {
  const Tensor x = ones({2}, {.requires_grad = true});
  const std::string remedy =
      " on a tensor that requires grad is not recorded: do it under NoGradGuard, or out of place";
  EXPECT_TRUE(throws<AutogradError>([&] { x.fill_(0); }, "fill_" + remedy));
  EXPECT_TRUE(throws<AutogradError>([&] { x.add_(1); }, "add_" + remedy));
  EXPECT_TRUE(throws<AutogradError>([&] { x.sub_(1); }, "sub_" + remedy));
  EXPECT_TRUE(throws<AutogradError>([&] { x.mul_(0); }, "mul_" + remedy));
  EXPECT_TRUE(throws<AutogradError>([&] { x.div_(2); }, "div_" + remedy));
  EXPECT_THROW((x * 2).add_(ones({2})), AutogradError);
  const std::string by = " by a tensor that requires grad is not recorded";
  EXPECT_TRUE(throws<AutogradError>([&] { ones({2}).copy_(x); }, "copy_" + by, "stack"));
  EXPECT_TRUE(throws<AutogradError>([&] { ones({2}).add_(x); }, "add_" + by));
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 1}));
  {
    const NoGradGuard guard;
    x.add_(ones({2}), 2);
  }
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{3, 3}));
}

// What is added, subtracted, multiplied and divided by turns, in place and out of it.
template <class X, class Y>
void apply_all(X& x, const Y& y) {
  x += y;
  x *= y;
  x -= y;
  x /= y;
}

TEST(UpdateOperators, ChangeTheElementsWhereNothingIsRecorded) {
  const Tensor x = tensor({1.0F, 2.0F, 3.0F, 4.0F}).reshape({2, 2});
  const float* const before = x.const_data_ptr<float>();
  const std::uint64_t version = x.version();
  x += tensor({10.0F, 20.0F});
  x -= 1;
  x *= 2;
  x /= tensor({4.0F});
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{5, 10.5, 6, 11.5}));
  EXPECT_EQ(x.const_data_ptr<float>(), before);
  EXPECT_GT(x.version(), version);
  x[1] *= 10;
  x.t()[0] += tensor({1.0F, 2.0F});
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{6, 10.5, 62, 115}));
  const Tensor half = tensor({1.0F, 2.0F}).to(Dtype::bf16);
  half += half;
  half /= 4;
  EXPECT_EQ(half.to(Dtype::f32).to_vector<float>(), (std::vector<float>{0.5, 1}));
  const Tensor integers = arange(3, {.dtype = Dtype::i64});
  integers *= integers;
  EXPECT_EQ(integers.to_vector<std::int64_t>(), (Integers{0, 1, 4}));
}

TEST(UpdateOperators, AStepOfGradientDescentByHand) {
  const Tensor w = ones({2}, {.requires_grad = true});
  sum(w * w).backward();
  {
    const NoGradGuard guard;
    w -= w.grad() * 0.25;
  }
  EXPECT_EQ(w.to_vector<float>(), (std::vector<float>{0.5, 0.5}));
  EXPECT_TRUE(w.is_leaf());
  EXPECT_TRUE(w.requires_grad());
}

TEST(UpdateOperators, AreRecordedAndSeenByEveryHandle) {
  const auto in_place = [](const Tensor& a, const Tensor& b) {
    const Tensor x = a * 2;
    const Tensor handle = x;
    apply_all(x, b);
    apply_all(x, 3);
    return handle;
  };
  const Tensor a = tensor<double>({1, -2, 3}).requires_grad_();
  const Tensor b = tensor<double>({2, 0.5, -1.5}).requires_grad_();
  const Tensor expected = ((((a * 2 + b) * b - b) / b + 3) * 3 - 3) / 3;
  EXPECT_EQ(in_place(a, b).to_vector<double>(), expected.to_vector<double>());
  EXPECT_TRUE(testing::gradcheck(in_place, {a, b}));
  EXPECT_TRUE(testing::gradgradcheck(in_place, {a, b}));
  EXPECT_TRUE(testing::gradcheck(in_place, {a, b.detach()}));
}

TEST(UpdateOperators, ATensorThatNeedsNoGradientTakesOneUp) {
  const Tensor w = ones({3}, {.requires_grad = true});
  const Tensor loss = zeros({});
  for (int i = 1; i <= 3; ++i) loss += sum(w) * i;
  EXPECT_FALSE(loss.is_leaf());
  EXPECT_EQ(loss.item(), 18);
  loss.backward();
  EXPECT_EQ(w.grad().to_vector<float>(), (std::vector<float>{6, 6, 6}));
}

TEST(UpdateOperators, ByTheTensorItselfAreRecordedAndFreed) {
  const auto changed = [](const auto& change) {
    const Tensor x = tensor({2.0F, 4.0F}).requires_grad_();
    std::weak_ptr<Node> node;
    {
      const Tensor y = x * 1;
      change(y);
      node = y.grad_fn();
    }
    EXPECT_TRUE(node.expired());
    const Tensor y = x * 1;
    change(y);
    sum(y).backward();
    return x.grad().to_vector<float>();
  };
  EXPECT_EQ(changed([](const Tensor& y) { y += y; }), (std::vector<float>{2, 2}));
  EXPECT_EQ(changed([](const Tensor& y) { y -= y; }), (std::vector<float>{0, 0}));
  EXPECT_EQ(changed([](const Tensor& y) { y *= y; }), (std::vector<float>{4, 8}));
  EXPECT_EQ(changed([](const Tensor& y) { y /= y; }), (std::vector<float>{0, 0}));
}

TEST(UpdateOperators, WhatAGradientWouldMissIsAnError) {
  const Tensor w = ones({2}, {.requires_grad = true});
  EXPECT_TRUE(throws<AutogradError>([&] { w += 1; }, "+=: a leaf that requires grad"));
  const Tensor y = w * 2;
  const Tensor view = y[0];
  EXPECT_TRUE(throws<AutogradError>([&] { y *= 2; }, "*=: another tensor shares the memory"));
  EXPECT_TRUE(throws<AutogradError>([&] { view -= 2; }, "-=: another tensor shares the memory"));
  const Tensor plain = zeros({2});
  EXPECT_TRUE(throws<AutogradError>([&] { plain[0] += w[0]; }, "shares the memory"));
  const Tensor saved = w * 3;
  const Tensor product = sum(saved * w);
  saved += 1;
  EXPECT_TRUE(
      throws<AutogradError>([&] { product.backward(); }, "modified by an inplace operation"));
  EXPECT_EQ(w.to_vector<float>(), (std::vector<float>{1, 1}));
}

TEST(UpdateOperators, KindsThatDoNotFitAreErrors) {
  const Tensor x = zeros({2});
  EXPECT_TRUE(throws<ShapeError>([&] { x += zeros({3, 2}); }, "+=", "[3, 2]", "[2]"));
  const Tensor w = ones({3, 2}, {.requires_grad = true});
  EXPECT_TRUE(throws<ShapeError>([&] { x *= w; }, "*=", "[3, 2]", "[2]"));
  EXPECT_FALSE(x.requires_grad());
  EXPECT_THROW(x -= zeros({2}, {.dtype = Dtype::f64}), DtypeError);
  EXPECT_THROW(x /= zeros({2}, {.device = "cpu:0"}), DeviceError);
  EXPECT_THROW(arange(2).to(Dtype::i64) *= 0.5, DtypeError);
  EXPECT_THROW(expand(zeros({1}), {3}) += 1, ValueError);
  EXPECT_THROW(x += Tensor(), ValueError);
  EXPECT_THROW(Tensor() += x, ValueError);
}

TEST(InPlace, BackwardNoticesWhatItNeedsUnchanged) {
  const Tensor x = ones({2}, {.requires_grad = true});
  const Tensor factor = ones({2});
  const Tensor needs_factor = sum(x * factor);
  const Tensor needs_none = sum(x + factor);
  factor.zero_();
  EXPECT_TRUE(
      throws<AutogradError>([&] { needs_factor.backward(); },
                            "needed for the gradient of mul has been modified by an inplace",
                            "of shape [2] on cpu is at version 2; expected version 1"));
  needs_none.backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{1, 1}));
}

// Two new memories may lie where one was before.
TEST(Operators, HoweverManyChangesABackwardNoticesThem) {
  for (int changes = 1; changes <= 4; ++changes) {
    const Tensor x = tensor({1.0F, 2.0F}).requires_grad_();
    const Tensor y = x * 2;
    const Tensor z = y * y;
    for (int i = 0; i < changes; ++i) y += 1;
    EXPECT_THROW(sum(z).backward(), AutogradError) << changes;
  }
}

TEST(Operators, WhatRetainsTheGradientFollowsTheTensor) {
  const Tensor x = tensor({1.0F, 2.0F}).requires_grad_();
  const Tensor y = x * 3;
  y.retain_grad();
  y *= 2;
  y.retain_grad();
  sum(y * 5).backward();
  EXPECT_EQ(y.grad().to_vector<float>(), (std::vector<float>{5, 5}));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{30, 30}));
}

}  // namespace inplace_test
}  // namespace lockstep
