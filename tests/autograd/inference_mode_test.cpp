// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/inference_mode.hpp>

#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

namespace ls = lockstep;
using ls::testing::throws;

namespace inference_mode_test {

using Values = std::vector<double>;

ls::Tensor vector(const Values& values) {
  return ls::from_values(values, {static_cast<std::int64_t>(values.size())});
}
ls::Tensor leaf(const Values& values) { return vector(values).requires_grad_(); }

// Made in inference mode, seen outside.
ls::Tensor inference(const Values& values) {
  const ls::InferenceModeGuard guard;
  return vector(values);
}

TEST(InferenceMode, TheGuardSetsBothModesAndRestoresThem) {
  const auto expect = [](bool inference, bool grad) {
    EXPECT_EQ(ls::is_inference_mode_enabled(), inference);
    EXPECT_EQ(ls::is_grad_enabled(), grad);
  };
  expect(false, true);
  {
    const ls::InferenceModeGuard outer;
    expect(true, false);
    {
      const ls::InferenceModeGuard off(false);
      expect(false, true);
    }
    expect(true, false);
  }
  expect(false, true);
  const ls::NoGradGuard no_grad;
  {
    const ls::InferenceModeGuard guard;
    expect(true, false);
  }
  expect(false, false);
}

TEST(InferenceMode, IsTheThreadsOwn) {
  const ls::InferenceModeGuard guard;
  bool elsewhere = true;
  std::thread([&] { elsewhere = ls::is_inference_mode_enabled(); }).join();
  EXPECT_FALSE(elsewhere);
}

TEST(InferenceMode, WhatIsMadeWithinIsAnInferenceTensor) {
  const ls::Tensor x = leaf({1, 2});
  EXPECT_FALSE(x.is_inference());
  const ls::InferenceModeGuard guard;
  EXPECT_TRUE(ls::zeros({2}).is_inference());
  EXPECT_TRUE(ls::tensor<double>({1, 2}).is_inference());
  const ls::Tensor y = x * 2 + x;
  EXPECT_TRUE(y.is_inference());
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(y.grad_fn(), nullptr);
  EXPECT_TRUE(x.clone().is_inference());
  EXPECT_TRUE(x.to(ls::Dtype::f32).is_inference());
  EXPECT_TRUE(x.to(ls::Device("cpu:0")).is_inference());
  const ls::InferenceModeGuard off(false);
  EXPECT_FALSE((x * 2).is_inference());
  EXPECT_TRUE((x * 2).requires_grad());
}

TEST(InferenceMode, AViewIsWhatItsBaseIs) {
  const ls::Tensor normal = leaf({1, 2, 3, 4});
  const ls::Tensor made_within = inference({1, 2, 3, 4});
  EXPECT_TRUE(made_within.reshape({2, 2}).is_inference());
  EXPECT_TRUE(made_within.detach().is_inference());
  const ls::InferenceModeGuard guard;
  EXPECT_FALSE(normal.reshape({2, 2}).is_inference());
  EXPECT_FALSE(normal.detach().is_inference());
  EXPECT_FALSE(normal.to(ls::Dtype::f64).is_inference());  // itself
  EXPECT_TRUE(made_within.reshape({2, 2}).is_inference());
}

TEST(InferenceMode, AResultComputedOutsideIsNormal) {
  const ls::Tensor x = inference({1, 2});
  EXPECT_FALSE((x * 1).is_inference());
  EXPECT_FALSE((x * x).is_inference());
  EXPECT_FALSE((x * x).requires_grad());
  const ls::Tensor copy = x.clone();
  EXPECT_FALSE(copy.is_inference());
  copy.requires_grad_();
  (copy * copy).sum().backward();
  EXPECT_EQ(copy.grad().to_vector<double>(), (Values{2, 4}));
}

TEST(InferenceMode, AnInferenceTensorCannotBeSavedForBackward) {
  const ls::Tensor x = inference({3, 4});
  const ls::Tensor w = leaf({1, 2});
  EXPECT_TRUE(throws<ls::AutogradError>([&] { (void)(w * x); },
                                        "Inference tensors cannot be saved for backward. To work "
                                        "around you can make a clone to get a normal tensor and "
                                        "use it in autograd",
                                        "shape [2]"));
  EXPECT_TRUE(throws<ls::AutogradError>([&] { (void)(x.reshape({2}) * w); }, "Inference tensors"));
  (w * x.clone()).sum().backward();
  EXPECT_EQ(w.grad().to_vector<double>(), (Values{3, 4}));
  const ls::NoGradGuard guard;
  EXPECT_EQ((w * x).to_vector<double>(), (Values{3, 8}));  // nothing is saved
}

TEST(InferenceMode, AnOperationThatDoesNotSaveItTakesIt) {
  const ls::Tensor x = inference({3, 4});
  const ls::Tensor w = leaf({1, 2});
  const ls::Tensor sum = x + w;
  EXPECT_FALSE(sum.is_inference());
  sum.sum().backward();
  EXPECT_EQ(w.grad().to_vector<double>(), (Values{1, 1}));
}

// Recorded because of `w`; the product within is not, so what that one saves does not matter.
struct AddsASquare {
  static constexpr const char* name = "adds_a_square";
  ls::Tensor forward(const ls::Tensor& w, const ls::Tensor& x) const { return w + x * x; }
  std::vector<ls::Tensor> backward(const ls::Backward&, const ls::Tensor& grad) const {
    return {grad, ls::Tensor()};
  }
};

TEST(InferenceMode, OnlyWhatTheRecordedOperationItselfSavesMatters) {
  const ls::Tensor w = leaf({1, 2});
  const ls::Tensor y = ls::apply(AddsASquare{}, w, inference({3, 4}));
  EXPECT_EQ(y.to_vector<double>(), (Values{10, 18}));
  y.sum().backward();
  EXPECT_EQ(w.grad().to_vector<double>(), (Values{1, 1}));
}

TEST(InferenceMode, AnInferenceTensorDoesNotChangeOutside) {
  const ls::Tensor x = inference({3, 4});
  const ls::Tensor other = ls::tensor<double>({1, 1});
  const char* const text =
      "Inplace update to inference tensor outside InferenceMode is not allowed";
  EXPECT_TRUE(throws<ls::AutogradError>([&] { x.mul_(2); }, "mul_", text));
  EXPECT_TRUE(throws<ls::AutogradError>([&] { x.add_(other); }, "add_", text));
  EXPECT_TRUE(throws<ls::AutogradError>([&] { x.copy_(other); }, "copy_", text));
  EXPECT_TRUE(throws<ls::AutogradError>([&] { x.fill_(0); }, "fill_", text));
  EXPECT_TRUE(throws<ls::AutogradError>([&] { x += leaf({1, 2}); }, "+=", text));
  EXPECT_TRUE(throws<ls::AutogradError>([&] { x.zero_(); }, "zero_", text));
  EXPECT_TRUE(throws<ls::AutogradError>([&] { x.reshape({1, 2}).mul_(2); }, text));
  EXPECT_TRUE(throws<ls::AutogradError>(
      [&] {
        const ls::NoGradGuard guard;
        x.mul_(2);
      },
      text));
  EXPECT_EQ(x.to_vector<double>(), (Values{3, 4}));
  other.add_(x);  // reading it is allowed
  EXPECT_EQ(other.to_vector<double>(), (Values{4, 5}));
  const ls::InferenceModeGuard guard;
  x.mul_(2);
  EXPECT_EQ(x.to_vector<double>(), (Values{6, 8}));
}

TEST(InferenceMode, AnInferenceTensorIsNotMadeToRequireGradOutside) {
  const ls::Tensor x = inference({3, 4});
  EXPECT_TRUE(throws<ls::AutogradError>([&] { x.requires_grad_(); },
                                        "Setting requires_grad=True on inference tensor outside",
                                        "[2]"));
  EXPECT_FALSE(x.requires_grad_(false).requires_grad());
  ls::Tensor made;
  {
    const ls::InferenceModeGuard guard;
    made = leaf({5, 6});
    EXPECT_TRUE(made.requires_grad());
    EXPECT_FALSE((made * made).requires_grad());
  }
  (made + leaf({1, 1})).sum().backward();
  EXPECT_EQ(made.grad().to_vector<double>(), (Values{1, 1}));
  EXPECT_TRUE(throws<ls::AutogradError>([&] { (void)(made * made); }, "Inference tensors"));
}

TEST(InferenceMode, ANormalTensorThatChangesWithinIsNoticedByBackward) {
  const ls::Tensor x = leaf({1, 2});
  const ls::Tensor y = x * x;
  {
    const ls::InferenceModeGuard guard;
    x.mul_(2);  // no gradient can go wrong within, so this needs no other guard
  }
  EXPECT_FALSE(x.is_inference());
  EXPECT_TRUE(x.requires_grad());
  EXPECT_TRUE(throws<ls::AutogradError>([&] { y.sum().backward(); }, "modified by an inplace"));
}

TEST(InferenceMode, AskingForGradWithinIsToNoEffect) {
  const ls::Tensor x = leaf({1, 2});
  const ls::InferenceModeGuard guard;
  const ls::GradModeGuard grad(true);
  EXPECT_TRUE(ls::is_grad_enabled());
  EXPECT_FALSE((x * 2).requires_grad());
  EXPECT_TRUE((x * 2).is_inference());
}

TEST(InferenceMode, BackwardOfWhatWasMadeWithinIsAnError) {
  const ls::Tensor x = leaf({1, 2});
  const ls::InferenceModeGuard guard;
  const ls::Tensor y = (x * x).sum();
  EXPECT_TRUE(throws<ls::AutogradError>([&] { y.backward(); }, "does not require grad"));
}

TEST(InferenceMode, GradientsComputedWithinAreNormalTensors) {
  for (const bool create_graph : {false, true}) {
    const ls::Tensor x = leaf({1, 2});
    const ls::Tensor here = leaf({3, 4});
    // Two devices, so that one of them is another thread's.
    const ls::Tensor on_0 = x.to(ls::Device("cpu:0"));
    const ls::Tensor on_1 = here.to(ls::Device("cpu:1")) * x.to(ls::Device("cpu:1"));
    const ls::Tensor y = (on_0 * on_0).sum() + on_1.sum().to(ls::Device("cpu:0"));
    const ls::Tensor root = leaf({5});
    {
      const ls::InferenceModeGuard guard;
      y.backward({}, true, create_graph);
      root.backward();
    }
    EXPECT_FALSE(root.grad().is_inference());
    EXPECT_EQ(x.grad().to_vector<double>(), (Values{5, 8}));
    EXPECT_EQ(here.grad().to_vector<double>(), (Values{1, 2}));
    EXPECT_FALSE(x.grad().is_inference());
    EXPECT_FALSE(here.grad().is_inference());
    EXPECT_EQ(x.grad().requires_grad(), create_graph);
    y.backward();
    EXPECT_EQ(x.grad().to_vector<double>(), (Values{10, 16}));
    // A gradient with a graph of its own and its leaf would own each other for ever.
    x.set_grad({});
    here.set_grad({});
  }
}

TEST(InferenceMode, SetDataLeavesANormalTensorNormal) {
  const ls::Tensor x = leaf({1, 2});
  x.set_data(inference({3, 4}));
  EXPECT_FALSE(x.is_inference());
  (x * x).sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{6, 8}));
}

}  // namespace inference_mode_test
