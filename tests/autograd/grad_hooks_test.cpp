// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/grad_hooks.hpp>

#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/engine/backward_pass.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/split.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/from_blob.hpp>

#include "support/devices.hpp"
#include "support/expect_error.hpp"
#include "support/within.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {
namespace grad_hooks_test {

using testing::first_devices;
using testing::throws;
using testing::Within;
using Values = std::vector<double>;

Tensor leaf(const Values& values, Device device = {}) {
  const Tensor tensor = from_values(values, {static_cast<std::int64_t>(values.size())}, device);
  return tensor.requires_grad_();
}

TEST(GradHooks, RunOnceForEachPassWithTheSumInGrad) {
  const Tensor w = leaf({1, 2});
  std::vector<Values> seen;
  w.register_post_accumulate_grad_hook(
      [&](const Tensor& parameter) { seen.push_back(parameter.grad().to_vector<double>()); });
  (w * w + w).sum().backward();  // two ways to the leaf, one gradient
  EXPECT_EQ(seen, (std::vector<Values>{{3, 5}}));
  w.sum().backward();
  EXPECT_EQ(seen, (std::vector<Values>{{3, 5}, {4, 6}}));
}

TEST(GradHooks, RunInTheOrderOfRegistrationAndCanBeRemoved) {
  const Tensor w = leaf({1});
  std::string calls;
  const RemovableHandle a =
      w.register_post_accumulate_grad_hook([&](const Tensor&) { calls += 'a'; });
  const RemovableHandle b =
      w.register_post_accumulate_grad_hook([&](const Tensor&) { calls += 'b'; });
  w.sum().backward();
  EXPECT_EQ(calls, "ab");
  a.remove();
  a.remove();
  w.sum().backward();
  EXPECT_EQ(calls, "abb");
  b.remove();
  w.sum().backward();
  EXPECT_EQ(calls, "abb");
  RemovableHandle().remove();
}

TEST(GradHooks, AHookMayRemoveItselfAndRegisterAnother) {
  const Tensor w = leaf({1});
  int calls = 0;
  RemovableHandle handle;
  handle = w.register_post_accumulate_grad_hook([&](const Tensor& parameter) {
    ++calls;
    handle.remove();
    parameter.register_post_accumulate_grad_hook([&](const Tensor&) { calls += 10; });
  });
  w.sum().backward();
  EXPECT_EQ(calls, 1);
  w.sum().backward();
  EXPECT_EQ(calls, 11);
}

TEST(GradHooks, RemovingReleasesWhatTheFunctionHolds) {
  const Tensor w = leaf({1});
  const auto token = std::make_shared<int>();
  const RemovableHandle handle =
      w.register_post_accumulate_grad_hook([token](const Tensor&) { (void)*token; });
  EXPECT_EQ(token.use_count(), 2);
  handle.remove();
  EXPECT_EQ(token.use_count(), 1);
}

TEST(GradHooks, AHandleMayOutliveItsTensor) {
  RemovableHandle handle;
  {
    const Tensor w = leaf({1});
    handle = w.register_post_accumulate_grad_hook([](const Tensor&) {});
  }
  EXPECT_NO_THROW(handle.remove());
}

TEST(GradHooks, MayReplaceTheGradient) {
  const Tensor w = leaf({1, 2});
  w.register_post_accumulate_grad_hook(
      [](const Tensor& parameter) { parameter.set_grad(zeros_like(parameter)); });
  w.sum().backward();
  EXPECT_EQ(w.grad().to_vector<double>(), (Values{0, 0}));
}

TEST(GradHooks, AreNotCalledByGradNorWithoutAGradient) {
  const Tensor w = leaf({1});
  const Tensor other = leaf({1});
  int calls = 0;
  w.register_post_accumulate_grad_hook([&](const Tensor&) { ++calls; });
  (void)autograd::grad({(w * w).sum()}, {w});
  other.sum().backward();
  EXPECT_EQ(calls, 0);
}

TEST(GradHooks, AreNotCalledForALeafThatWasFrozenAfterForward) {
  const Tensor w = leaf({1});
  int calls = 0;
  w.register_post_accumulate_grad_hook([&](const Tensor&) { ++calls; });
  const Tensor loss = w.sum();
  w.requires_grad_(false);
  loss.backward();
  EXPECT_EQ(calls, 0);
}

// It has what came before.
TEST(GradHooks, AHookThatFreezesItsLeafIsFollowedByTheOthers) {
  const Tensor w = leaf({1});
  w.register_post_accumulate_grad_hook(
      [](const Tensor& parameter) { parameter.requires_grad_(false); });
  int calls = 0;
  w.register_post_accumulate_grad_hook([&](const Tensor&) { ++calls; });
  w.sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(w.grad().to_vector<double>(), (Values{1}));
}

TEST(GradHooks, WhatTheyThrowComesOutOfBackward) {
  const Tensor w = leaf({1});
  w.register_post_accumulate_grad_hook(
      [](const Tensor&) { throw std::out_of_range("from the hook"); });
  EXPECT_TRUE(throws<std::out_of_range>([&] { w.sum().backward(); }, "from the hook"));
}

TEST(GradHooks, AreRefusedWhereTheyWouldNeverBeCalled) {
  const auto nothing = [](const Tensor&) {};
  const Tensor w = leaf({1});
  const Tensor plain = zeros({1});
  const Tensor result = w * w;
  EXPECT_TRUE(throws<AutogradError>([&] { plain.register_post_accumulate_grad_hook(nothing); },
                                    "doesn't require gradient"));
  EXPECT_TRUE(throws<AutogradError>([&] { result.register_post_accumulate_grad_hook(nothing); },
                                    "non-leaf"));
  EXPECT_TRUE(throws<ValueError>([&] { w.register_post_accumulate_grad_hook({}); }, "empty"));
  EXPECT_TRUE(throws<ValueError>([&] { Tensor().register_post_accumulate_grad_hook(nothing); },
                                 "undefined"));
}

TEST(GradHooks, RunOnTheStreamOfTheGradient) {
  const Device device = first_devices(1)[0];
  const Tensor w = leaf({1}, device);
  const Stream side = pool_stream(device);
  side.wait_stream(current_stream(device));
  w.record_stream(side);
  std::vector<Stream> seen;
  w.register_post_accumulate_grad_hook(
      [&](const Tensor& parameter) { seen.push_back(current_stream(parameter.device())); });
  Tensor loss;
  {
    const StreamGuard guard(side);
    loss = w.sum();
  }
  loss.backward();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0], side);
}

TEST(GradHooks, OfOneDevicesLeavesAreNotCalledAtTheSameTime) {
  constexpr std::size_t kDevices = 2;
  constexpr int kLeaves = 8;
  std::array<std::atomic<int>, kDevices> inside{};
  std::atomic<int> calls{0};
  std::vector<Tensor> sums;
  for (std::size_t i = 0; i < kDevices; ++i) {
    Tensor sum;
    for (int n = 0; n < kLeaves; ++n) {
      const Tensor w = leaf({1}, first_devices(kDevices)[i]);
      w.register_post_accumulate_grad_hook([&calls, &here = inside[i]](const Tensor&) {
        EXPECT_EQ(here++, 0);
        for (int look = 0; look < 100; ++look) std::this_thread::yield();
        --here;
        ++calls;
      });
      sum = sum.defined() ? sum + w : w * 1;
    }
    sums.push_back(sum);
  }
  constexpr int kPasses = 20;
  for (int pass = 0; pass < kPasses; ++pass) autograd::backward(sums, {}, true);
  EXPECT_EQ(calls, kPasses * kLeaves * static_cast<int>(kDevices));
}

TEST(GradHooks, FollowAParameterThatIsMoved) {
  const Tensor w = leaf({1});
  int calls = 0;
  w.register_post_accumulate_grad_hook([&](const Tensor&) { ++calls; });
  w.set_data(from_values<double>({5}, {1}, first_devices(1)[0]));
  w.sum().backward();
  EXPECT_EQ(calls, 1);
}

TEST(RegisterHook, SeesTheGradientOfATensorThatIsNoLeaf) {
  const Tensor w = leaf({1, 2});
  const Tensor y = w * 3;
  std::vector<Values> seen;
  const Tensor loss = (y * y).sum() + y.sum();  // before the hook is there, and two ways to y
  y.register_hook([&](const Tensor& gradient) { seen.push_back(gradient.to_vector<double>()); });
  loss.backward();
  EXPECT_EQ(seen, (std::vector<Values>{{7, 13}}));
  EXPECT_EQ(w.grad().to_vector<double>(), (Values{21, 39}));
  EXPECT_FALSE(y.grad().defined());
}

TEST(RegisterHook, WhatItReturnsIsUsedInsteadAndTheNextHookSeesThat) {
  const Tensor w = leaf({1, 2});
  const Tensor y = w * 3;
  y.register_hook([](const Tensor& gradient) { return gradient * 2; });
  Values seen;
  y.register_hook([&](const Tensor& gradient) {
    seen = gradient.to_vector<double>();
    return Tensor();  // as if it returned nothing
  });
  y.register_hook([](const Tensor& gradient) { return gradient + 1; });
  y.sum().backward();
  EXPECT_EQ(seen, (Values{2, 2}));
  EXPECT_EQ(w.grad().to_vector<double>(), (Values{9, 9}));
}

TEST(RegisterHook, OfALeafComesBeforeItsGradChanges) {
  const Tensor w = leaf({1, 2});
  std::string order;
  w.register_post_accumulate_grad_hook([&](const Tensor& parameter) {
    order += 'p';
    EXPECT_EQ(parameter.grad().to_vector<double>(), (Values{4, 8}));
  });
  w.register_hook([&](const Tensor& gradient) {
    order += 'h';
    EXPECT_FALSE(w.grad().defined());
    return gradient * 2;
  });
  (w * w).sum().backward();
  EXPECT_EQ(order, "hp");
}

TEST(RegisterHook, LivesWithTheGraphAndNotWithTheTensor) {
  const Tensor w = leaf({1});
  int calls = 0;
  const auto token = std::make_shared<int>();
  Tensor loss;
  {
    const Tensor y = w * 2;
    y.register_hook([&calls, token](const Tensor&) { ++calls; });
    loss = y.sum();
  }
  EXPECT_EQ(token.use_count(), 2);
  loss.backward();
  EXPECT_EQ(calls, 1);
  loss = Tensor();
  EXPECT_EQ(token.use_count(), 1);
}

TEST(RegisterHook, CanBeRemovedAlsoWhileItIsCalled) {
  for (const bool is_leaf : {true, false}) {
    const Tensor w = leaf({1});
    const Tensor y = is_leaf ? w : w * 2;
    int calls = 0;
    RemovableHandle handle;
    handle = y.register_hook([&](const Tensor&) {
      ++calls;
      handle.remove();
    });
    const RemovableHandle other = y.register_hook([&](const Tensor&) { calls += 10; });
    const Tensor loss = y.sum();
    loss.backward({}, true);
    EXPECT_EQ(calls, 11);
    loss.backward({}, true);
    EXPECT_EQ(calls, 21);
    other.remove();
    other.remove();
    loss.backward();
    EXPECT_EQ(calls, 21);
  }
}

TEST(RegisterHook, IsCalledForEachOutputOfAnOperation) {
  const Tensor w = leaf({1, 2});
  const std::vector<Tensor> parts = split(w * 2, {1, 1});
  parts[1].register_hook([](const Tensor& gradient) { return gradient * 10; });
  (parts[0] + parts[1]).sum().backward();
  EXPECT_EQ(w.grad().to_vector<double>(), (Values{2, 20}));
}

TEST(RegisterHook, GradSeesWhatHooksLeave) {
  const Tensor w = leaf({3});
  const Tensor y = w * 2;
  int calls = 0;
  const auto twice = [&](const Tensor& gradient) {
    ++calls;
    return gradient * 2;
  };
  w.register_hook(twice);
  y.register_hook(twice);
  const std::vector<Tensor> grads = autograd::grad({y.sum()}, {w, y, w});
  EXPECT_EQ(grads[0].item(), 8);
  EXPECT_EQ(grads[1].item(), 2);
  EXPECT_EQ(grads[2].item(), 8);
  EXPECT_EQ(calls, 2);
}

TEST(RegisterHook, IsRecordedWhereTheGradientIs) {
  const Tensor w = leaf({3});
  const Tensor y = w * w;
  const RemovableHandle handle =
      y.register_hook([](const Tensor& gradient) { return gradient * gradient; });
  const Tensor first = autograd::grad({y * y}, {w}, {}, true, true)[0];  // (2w²)² · 2w = 8w⁵
  EXPECT_EQ(first.item(), 8 * 243);
  handle.remove();
  EXPECT_EQ(autograd::grad({first}, {w})[0].item(), 40 * 81);
}

TEST(RegisterHook, IsNotCalledWithoutAGradient) {
  const Tensor w = leaf({1});
  const std::vector<Tensor> parts = split(w.reshape({1, 1}).contiguous() * 2, {1});
  int calls = 0;
  const Tensor unused = w * 5;
  unused.register_hook([&](const Tensor&) { ++calls; });
  parts[0].sum().backward();
  EXPECT_EQ(calls, 0);
}

TEST(RegisterHook, RefusesWhatDoesNotFit) {
  const Tensor w = leaf({1, 2});
  const Tensor y = w * 2;
  EXPECT_TRUE(throws<AutogradError>([] { zeros({1}).register_hook([](const Tensor&) {}); },
                                    "doesn't require gradient"));
  EXPECT_TRUE(throws<ValueError>([&] { y.register_hook(std::function<void(const Tensor&)>()); },
                                 "register_hook", "empty"));
  EXPECT_TRUE(throws<ValueError>([&] { w.register_hook(std::function<Tensor(const Tensor&)>()); },
                                 "register_hook", "empty"));
  EXPECT_TRUE(
      throws<ValueError>([] { Tensor().register_hook([](const Tensor&) {}); }, "undefined"));
  for (const Tensor& wrong :
       {zeros({3}, Dtype::f64), zeros({2}), zeros({2}, {.dtype = Dtype::f64, .device = "cpu:1"})}) {
    const Tensor z = w * 2;
    z.register_hook([wrong](const Tensor&) { return wrong; });
    EXPECT_TRUE(throws<Error>([&] { z.sum().backward(); }, "a hook returned a gradient o"));
  }
  y.register_hook([](const Tensor&) { throw std::out_of_range("from the hook"); });
  EXPECT_TRUE(throws<std::out_of_range>([&] { y.sum().backward(); }, "from the hook"));
}

TEST(RetainGrad, KeepsTheGradientOfATensorThatIsNoLeaf) {
  const Tensor w = leaf({1, 2});
  const Tensor y = w * 3;
  y.retain_grad();
  y.retain_grad();
  y.register_hook(
      [](const Tensor& gradient) { return gradient * 2; });  // comes before all the same
  const Tensor loss = (y * y).sum();
  loss.backward({}, true);
  EXPECT_EQ(y.grad().to_vector<double>(), (Values{12, 24}));
  EXPECT_EQ(w.grad().to_vector<double>(), (Values{36, 72}));
  const Tensor kept = y.grad();
  loss.backward();
  EXPECT_EQ(y.grad().to_vector<double>(), (Values{24, 48}));
  EXPECT_EQ(kept.to_vector<double>(), (Values{12, 24}));
}

TEST(RetainGrad, TheGradientFromBeforeIsNotDestroyedUnderTheTensorsLock) {
  const Tensor y = leaf({1, 2}) * 3;
  y.retain_grad();
  Values lent = {1, 2};
  Values seen;
  const auto ask = [&](void*) { seen = y.grad().to_vector<double>(); };
  y.set_grad(from_blob(lent.data(), {2}, {.deleter = ask}));
  y.sum().backward();
  EXPECT_EQ(seen, (Values{2, 3}));
}

TEST(RetainGrad, PassesOfSeveralThreadsAddUp) {
  constexpr int kPasses = 500;
  const Tensor y = leaf({1, 2}) * 3;
  y.retain_grad();
  const auto run = [&y] {
    for (int pass = 0; pass < kPasses; ++pass) (y * 2).sum().backward({}, true);
  };
  std::thread other(run);
  run();
  other.join();
  EXPECT_EQ(y.grad().to_vector<double>(), (Values{4 * kPasses, 4 * kPasses}));
}

TEST(RetainGrad, IsNothingToGradWhichChangesNoGrad) {
  const Tensor w = leaf({1, 2});
  const Tensor y = w * 3;
  y.retain_grad();
  (void)autograd::grad({y.sum()}, {w});
  EXPECT_FALSE(y.grad().defined());
}

// The gradient that is kept and that of the leaf may be one tensor on the way.
TEST(RetainGrad, SharesNoMemoryWithALeafsGrad) {
  const Tensor w = leaf({1, 2});
  const Tensor y = w + 1;
  y.retain_grad();
  y.sum().backward();
  w.grad().fill_(7);
  EXPECT_EQ(y.grad().to_vector<double>(), (Values{1, 1}));
}

TEST(RetainGrad, OfALeafDoesNothingAndOfAConstantIsAnError) {
  const Tensor w = leaf({1});
  w.retain_grad();
  w.sum().backward();
  EXPECT_EQ(w.grad().to_vector<double>(), (Values{1}));
  EXPECT_TRUE(throws<AutogradError>([] { zeros({1}).retain_grad(); }, "retain_grad"));
}

TEST(RetainGrad, KeepsNeitherTheTensorNorTheGraph) {
  const Tensor w = leaf({1});
  Tensor loss;
  {
    const Tensor y = w * 2;
    y.retain_grad();
    loss = y.sum();
  }
  EXPECT_NO_THROW(loss.backward());
  EXPECT_EQ(w.grad().to_vector<double>(), (Values{2}));
}

TEST(QueueCallback, RunsOnceAfterTheLastNodeOnTheThreadOfBackward) {
  const Tensor a = leaf({1}, first_devices(2)[0]);
  const Tensor b = leaf({1}, first_devices(2)[1]);
  std::thread::id ran;
  int calls = 0;
  bool complete = false;
  for (const Tensor& parameter : {a, b}) {
    parameter.register_post_accumulate_grad_hook([&](const Tensor& seen) {
      if (!seen.is_same(a)) return;
      autograd::queue_callback([&] {
        ++calls;
        ran = std::this_thread::get_id();
        complete = a.grad().defined() && b.grad().defined();
      });
    });
  }
  autograd::backward({a.sum(), b.sum()});  // two lanes
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(ran, std::this_thread::get_id());
  EXPECT_TRUE(complete);
}

TEST(QueueCallback, APassWithinAnotherLeavesItToThatOne) {
  const Tensor outer = leaf({1});
  const Tensor inner = leaf({1});
  std::string order;
  inner.register_post_accumulate_grad_hook([&](const Tensor&) {
    order += 'i';
    autograd::queue_callback([&] { order += 'c'; });
  });
  outer.register_post_accumulate_grad_hook([&](const Tensor&) { order += 'o'; });
  const Within nested{[&] {
    const GradModeGuard records(true);
    inner.sum().backward();
    order += 'e';
  }};
  apply(nested, outer).sum().backward();
  EXPECT_EQ(order, "ieoc");
}

TEST(QueueCallback, AllAreCalledAndTheFirstExceptionComesOut) {
  const Tensor w = leaf({1});
  std::string order;
  w.register_post_accumulate_grad_hook([&](const Tensor&) {
    autograd::queue_callback([&] {
      order += '1';
      autograd::queue_callback([&] { order += '3'; });
      throw std::out_of_range("the first");
    });
    autograd::queue_callback([&] {
      order += '2';
      throw std::runtime_error("the second");
    });
  });
  EXPECT_TRUE(throws<std::out_of_range>([&] { w.sum().backward(); }, "the first"));
  EXPECT_EQ(order, "123");
  EXPECT_EQ(w.grad().to_vector<double>(), (Values{1}));
}

TEST(QueueCallback, IsDroppedByAPassThatFails) {
  const Tensor w = leaf({1});
  bool called = false;
  w.register_post_accumulate_grad_hook([&](const Tensor&) {
    autograd::queue_callback([&] { called = true; });
    throw std::out_of_range("the hook");
  });
  EXPECT_TRUE(throws<std::out_of_range>([&] { w.sum().backward(); }, "the hook"));
  EXPECT_FALSE(called);
}

TEST(QueueCallback, OutsideAPassIsAnError) {
  EXPECT_TRUE(throws<AutogradError>([] { autograd::queue_callback([] {}); },
                                    "can only be installed during backward pass"));
}

TEST(BackwardPass, KnowsWhichLeavesItReachesAndIsNumberedAnew) {
  const Tensor a = leaf({1});
  const Tensor b = leaf({1});
  const Tensor kept = (b * b).sum();  // b has an accumulator, but in another graph
  std::vector<bool> reached;
  std::vector<std::uint64_t> numbers;
  a.register_post_accumulate_grad_hook([&](const Tensor&) {
    const detail::BackwardPass& pass = *detail::current_backward_pass;
    reached = {pass.reaches(a), pass.reaches(b)};
    numbers.push_back(pass.number());
  });
  a.sum().backward();
  EXPECT_EQ(reached, (std::vector<bool>{true, false}));
  (a + b).sum().backward();
  EXPECT_EQ(reached, (std::vector<bool>{true, true}));
  EXPECT_NE(numbers[0], numbers[1]);
  EXPECT_EQ(detail::current_backward_pass, nullptr);
}

TEST(RetainGrad, KeepsACopy) {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2;
  const Tensor z = y + 1;
  y.retain_grad();
  z.retain_grad();
  const Tensor gradient = from_values(Values{3, 4}, {2});
  z.backward(gradient);
  y.grad().mul_(100);
  EXPECT_EQ(z.grad().to_vector<double>(), (Values{3, 4}));
  z.grad().mul_(7);
  EXPECT_EQ(gradient.to_vector<double>(), (Values{3, 4}));
}

}  // namespace grad_hooks_test
}  // namespace lockstep
