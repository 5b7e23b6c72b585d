// SPDX-License-Identifier: Apache-2.0
//
// Layers that leave their gradients in the buckets of a DistributedDataParallel.
#include <lockstep/parallel/distributed.hpp>

#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_hooks.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/nn/activation.hpp>
#include <lockstep/nn/conv.hpp>
#include <lockstep/nn/embedding.hpp>
#include <lockstep/nn/layer_norm.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/ops/loss.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/random.hpp>

#include "support/devices.hpp"
#include "support/gate.hpp"
#include "support/within.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

namespace lockstep {
namespace distributed_gradient_slots_test {

using distributed::ProcessGroup;
using testing::first_devices;
using testing::Within;
using Values = std::vector<std::vector<double>>;

struct Layers {
  nn::Conv2d conv{1, 2, 3, {.padding = 1, .dtype = Dtype::f64}};
  nn::Linear fc1{2 * 4 * 4, 5, {.dtype = Dtype::f64}};
  nn::Linear fc2{5, 3, {.dtype = Dtype::f64}};

  Tensor forward(const Tensor& x) const { return fc2(relu(fc1(relu(conv(x)).flatten(1)))); }
  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("conv", self.conv);
    visit("fc1", self.fc1);
    visit("fc2", self.fc2);
  }
};

constexpr std::int64_t kBatch = 8;

Tensor images() {
  manual_seed(3);
  return randn({kBatch, 1, 4, 4}).to(Dtype::f64);
}

template <class Net>
Net copy_of(const Net& net) {
  Net copy;
  const NoGradGuard guard;
  const std::vector<Parameter> from = parameters(net);
  const std::vector<Parameter> into = parameters(copy);
  for (std::size_t i = 0; i < from.size(); ++i) into[i].copy_(from[i]);
  return copy;
}

template <class Net>
Values gradients_of(const Net& net) {
  Values values;
  for (const Parameter& parameter : parameters(net)) {
    values.push_back(parameter.grad().to_vector<double>());
  }
  return values;
}

void expect_near(const Values& found, const Values& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].size(), expected[i].size());
    for (std::size_t j = 0; j < found[i].size(); ++j) {
      EXPECT_NEAR(found[i][j], expected[i][j], 1e-12) << "gradient " << i << ", element " << j;
    }
  }
}

// Gradients of `net` from the whole batch.
template <class Net>
Values gradients_alone(const Net& net, const Tensor& x) {
  net.forward(x).mean().backward();
  const Values values = gradients_of(net);
  for (const Parameter& parameter : parameters(net)) parameter.set_grad({});
  return values;
}

// This rank's share of the batch, on its device.
Tensor share_of(const Tensor& x, const ProcessGroup& group) {
  const std::int64_t rows = x.size(0) / group.size();
  return x.narrow(0, group.rank() * rows, rows).to(group.device());
}

template <class Model>
std::uint64_t copies_of(const Model& model, const std::function<void()>& step) {
  const std::uint64_t before = model.logging_data().num_gradient_copies;
  step();
  return model.logging_data().num_gradient_copies - before;
}

// Trains on two ranks: in each of so many steps two gradients are copied, and all are those of the
// model alone.
template <class Net>
void expect_two_copies(const Net& net, const Tensor& x, int steps) {
  const Values expected = gradients_alone(net, x);
  distributed::run(first_devices(2), [&](const ProcessGroup& group) {
    DistributedDataParallel model{copy_of(net), group};
    const Tensor own = share_of(x, group);
    for (int step = 0; step < steps; ++step) {
      const std::uint64_t copies = copies_of(model, [&] {
        model.zero_grad();
        model(own).mean().backward();
      });
      EXPECT_EQ(copies, 2u) << "in step " << step;
      expect_near(gradients_of(model.module()), expected);
    }
  });
}

// The last layer's two come before the pass is known; the first step makes the buckets as well.
TEST(DistributedGradientSlots, GradientsAreComputedWhereTheyAreReduced) {
  const Tensor x = images();
  manual_seed(1);
  const Layers net;
  expect_two_copies(net, x, 4);
}

struct Words {
  nn::Embedding words{7, 4, {.dtype = Dtype::f64}};
  nn::LayerNorm norm{4, {.dtype = Dtype::f64}};
  nn::Linear fc{4, 3, {.dtype = Dtype::f64}};

  Tensor forward(const Tensor& text) const { return fc(norm(mean(words(text), {1}))); }
  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("words", self.words);
    visit("norm", self.norm);
    visit("fc", self.fc);
  }
};

// A table of words is most of a model of words; its gradient is not copied.
TEST(DistributedGradientSlots, ThoseOfATableOfWordsAndOfLayerNormAreComputedThere) {
  std::vector<std::int64_t> numbers(kBatch * 5);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<std::int64_t>(i * i % 6);
  const Tensor text = from_values(numbers, {kBatch, 5});
  manual_seed(1);
  const Words net;
  expect_two_copies(net, text, 3);
}

struct Shifted {
  nn::LayerNorm norm{4, {.dtype = Dtype::f64}};
  nn::Linear fc{4, 3, {.dtype = Dtype::f64}};

  Shifted() { norm.weight = {}; }
  Tensor forward(const Tensor& x) const { return fc(norm(x)); }
  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("norm", self.norm);
    visit("fc", self.fc);
  }
};

// What a layer does without shares no memory with a bucket.
TEST(DistributedGradientSlots, ALayerNormMayHaveABiasAlone) {
  const Tensor x = images().reshape({-1, 4});
  manual_seed(1);
  const Shifted net;
  expect_two_copies(net, x, 3);
}

TEST(DistributedGradientSlots, NotWhereTheyAreAddedToOthers) {
  const Tensor x = images();
  manual_seed(1);
  const Layers net;
  const Values expected = gradients_alone(net, x);
  Values fourfold = expected;
  for (std::vector<double>& values : fourfold) {
    for (double& value : values) value *= 4;
  }
  distributed::run(first_devices(2), [&](const ProcessGroup& group) {
    DistributedDataParallel model{copy_of(net), group};
    const Tensor own = share_of(x, group);
    const auto step = [&] { model(own).mean().backward(); };
    step();
    expect_near(gradients_of(model.module()), expected);
    {
      const auto guard = model.no_sync();
      step();
      step();
    }
    EXPECT_EQ(copies_of(model, step), 6u);  // into the buckets that were made anew
    expect_near(gradients_of(model.module()), fourfold);
    EXPECT_EQ(copies_of(model, step), 0u);
  });
}

// As old code for clipping does: the ranks go on together.
TEST(DistributedGradientSlots, AreInTheBucketEvenIfSetDataHasLedThemOutOfIt) {
  const Tensor x = images();
  manual_seed(1);
  const Layers net;
  const Values expected = gradients_alone(net, x);
  distributed::run(first_devices(2), [&](const ProcessGroup& group) {
    DistributedDataParallel model{copy_of(net), group};
    const Tensor own = share_of(x, group);
    model(own).mean().backward();
    model(own).mean().backward();  // into the buckets that were made anew
    for (const bool set_to_none : {true, false}) {
      for (const Parameter& parameter : parameters(model.module())) {
        Tensor gradient = parameter.grad();
        gradient.set_data(gradient.detach() * 0);
        if (set_to_none) parameter.set_grad({});
      }
      model(own).mean().backward();
      expect_near(gradients_of(model.module()), expected);
    }
  });
}

// Its first gradient takes the slot, the sum is elsewhere.
TEST(DistributedGradientSlots, AWeightThatIsUsedSeveralTimesGetsTheSum) {
  struct Tied {
    nn::Linear fc1{4, 4, {.dtype = Dtype::f64}};
    nn::Linear fc2{4, 2, {.dtype = Dtype::f64}};
    int uses = 2;
    Tensor forward(const Tensor& x) const {
      Tensor y = fc1(x);
      for (int use = 1; use < uses; ++use) y = fc1(relu(y));
      return fc2(y);
    }
  };
  const Tensor x = images().reshape({kBatch * 4, 4});
  for (const int uses : {2, 5}) {
    manual_seed(1);
    Tied net;
    net.uses = uses;
    const Values expected = gradients_alone(net, x);
    distributed::run(first_devices(2), [&](const ProcessGroup& group) {
      DistributedDataParallel model{copy_of(net), group};
      model.module().uses = uses;
      const Tensor own = share_of(x, group);
      for (int step = 0; step < 3; ++step) {
        const std::uint64_t copies = copies_of(model, [&] {
          model.zero_grad();
          model(own).mean().backward();
        });
        EXPECT_EQ(copies, 4u) << uses << " uses, in step " << step;
        expect_near(gradients_of(model.module()), expected);
      }
    });
  }
}

// Products of half precision are taken in f32 and rounded to memory of their own.
TEST(DistributedGradientSlots, NotOfAnotherDtypeThanWhatIsComputed) {
  struct Half {
    Parameter first{ones({4, 4}, {.dtype = Dtype::bf16})};
    Parameter second{ones({2, 4}, {.dtype = Dtype::bf16})};
    Tensor forward(const Tensor& x) const { return linear(linear(x, first), second); }
  };
  distributed::run(first_devices(2), [&](const ProcessGroup& group) {
    DistributedDataParallel model{Half{}, group};
    const Tensor x = full({1, 4}, group.rank() + 1, model.parameters()[0].options());
    for (int step = 0; step < 2; ++step) {
      const std::uint64_t copies = copies_of(model, [&] {
        model.zero_grad();
        model(x).sum().backward();
      });
      EXPECT_EQ(copies, 2u) << "in step " << step;
      const Tensor grad = model.parameters()[0].grad();
      EXPECT_EQ(grad.dtype(), Dtype::bf16);
      EXPECT_EQ(grad.to(Dtype::f32).to_vector<float>(), std::vector<float>(16, 3));
    }
  });
}

// What a hook changes afterwards is what the ranks get the mean of.
TEST(DistributedGradientSlots, AHookMayReplaceTheGradient) {
  const Tensor x = images();
  manual_seed(1);
  const Layers net;
  Values expected = gradients_alone(net, x);
  for (double& value : expected[2]) value = 7;  // fc1.weight
  distributed::run(first_devices(2), [&](const ProcessGroup& group) {
    Layers own_net = copy_of(net);
    own_net.fc1.weight.register_post_accumulate_grad_hook(
        [](const Tensor& weight) { weight.set_grad(full(weight.sizes(), 7, weight.options())); });
    DistributedDataParallel model{own_net, group};
    const Tensor own = share_of(x, group);
    for (int step = 0; step < 3; ++step) {
      const std::uint64_t copies = copies_of(model, [&] {
        model.zero_grad();
        model(own).mean().backward();
      });
      EXPECT_EQ(copies, 3u) << "in step " << step;
      expect_near(gradients_of(model.module()), expected);
    }
  });
}

// The buckets belong to the stream that has made them, and the layers' backward runs on another.
TEST(DistributedGradientSlots, AreKeptForTheStreamThatWritesThem) {
  distributed::run({"cpu:0"}, [&](const ProcessGroup& group) {
    DistributedDataParallel model{Layers{}, group, {.bucket_cap_mb = 0}};
    EXPECT_EQ(model.logging_data().num_gradient_copies, 0u);
    const Tensor x = images().to(group.device());
    for (int step = 0; step < 2; ++step) model(x).mean().backward();
    model.zero_grad();
    const Stream side = pool_stream(group.device());
    side.wait_stream(current_stream(group.device()));
    std::optional<Tensor> loss;
    {
      const StreamGuard guard(side);
      loss = model(x).mean();
    }
    loss->backward();
    const Tensor grad = model.module().conv.weight.grad();
    EXPECT_NE(grad.impl()->storage->owner(), side);
    EXPECT_TRUE(testing::is_recorded_on(side, grad));
  });
}

// Two factors, between whose backward `between` runs: the outer one gets its gradient first.
struct Factors {
  static inline std::function<void()> between;
  Parameter a{ones({2})};
  Parameter b{ones({2})};
  Tensor forward(const Tensor& x, bool a_is_outer) const {
    const Parameter& outer = a_is_outer ? a : b;
    return apply(Within{between}, (a_is_outer ? b : a) * x) * outer;
  }
};

// Whether the reducer would have this parameter's gradient written to its bucket now.
bool has_slot(const Tensor& parameter) {
  return parameter.impl()->hooks->after.back().gradient_slot().defined();
}

TEST(DistributedGradientSlots, AreOfTheReducedPassAloneAndForGradientsThatHaveNotCome) {
  distributed::run({"cpu:0"}, [](const ProcessGroup& group) {
    DistributedDataParallel model{Factors{}, group};
    const Factors& factors = model.module();
    int calls = 0;
    Factors::between = [&] {
      ++calls;
      EXPECT_FALSE(has_slot(factors.b)) << "its gradient has come";
      std::thread other([&] {
        const Tensor leaf = ones({1}).requires_grad_();
        apply(Within{[&] { EXPECT_FALSE(has_slot(factors.a)) << "another pass"; }}, leaf)
            .sum()
            .backward();
      });
      other.join();
      EXPECT_TRUE(has_slot(factors.a));
    };
    const Tensor x = ones({2}, {.device = group.device()});
    for (int step = 0; step < 2; ++step) model(x, false).sum().backward();
    EXPECT_EQ(calls, 2);
    Factors::between = {};
  });
}

// The bucket of the factor that was the inner one in the first pass waits for the other's.
TEST(DistributedGradientSlots, AfterAFailureAFullBucketHasNoGradients) {
  distributed::run({"cpu:0"}, [](const ProcessGroup& group) {
    DistributedDataParallel model{Factors{}, group, {.bucket_cap_mb = 0}};
    const Factors& factors = model.module();
    const Tensor x = ones({2}, {.device = group.device()});
    Factors::between = [] {};
    model(x, false).sum().backward();
    model.zero_grad();
    Factors::between = [&] {
      EXPECT_TRUE(factors.a.grad().defined());
      throw ValueError("between");
    };
    EXPECT_THROW(model(x, true).sum().backward(), ValueError);
    EXPECT_FALSE(factors.a.grad().defined());
    Factors::between = {};
  });
}

template <class Layer>
struct Headed {
  Layer layer;
  nn::Linear head;
  Tensor forward(const Tensor& x) const { return head(layer(x).flatten(1)); }
  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("layer", self.layer);
    visit("head", self.head);
  }
};

// The layer's gradient in a third step, whose input is the gradient of the second, or a copy of it.
template <class Layer>
Values third_gradient(Layer layer, nn::Linear head, bool copied) {
  Values found;
  distributed::run(first_devices(1), [&](const ProcessGroup& group) {
    DistributedDataParallel model{Headed<Layer>{layer, head}, group, {.bucket_cap_mb = 0}};
    const Parameter weight = model.parameters()[0];
    Tensor x = ones(weight.sizes(), {.dtype = Dtype::f64, .device = group.device()});
    for (int step = 0; step < 3; ++step) {
      if (step == 2) x = copied ? weight.grad().clone() : weight.grad();
      model.zero_grad();
      model(x).mean().backward();
    }
    found = gradients_of(model.module());
  });
  return found;
}

TEST(DistributedGradientSlots, NotWhereWhatTheyAreComputedFromLies) {
  const auto linear = [](bool copied) {
    manual_seed(1);
    const nn::LinearOptions options{.dtype = Dtype::f64};
    return third_gradient(nn::Linear(6, 6, options), nn::Linear(6, 2, options), copied);
  };
  EXPECT_EQ(linear(false), linear(true));
  const auto conv = [](bool copied) {
    manual_seed(1);
    return third_gradient(nn::Conv2d(3, 3, 3, {.padding = 1, .dtype = Dtype::f64}),
                          nn::Linear(27, 2, {.dtype = Dtype::f64}), copied);
  };
  EXPECT_EQ(conv(false), conv(true));
}

// A weight with a slot for its gradient, which passes may offer.
struct Offered {
  Device device = first_devices(1)[0];
  Tensor weight = ones({3, 2}, {.device = device}).requires_grad_();
  Tensor slot = zeros({3, 2}, {.device = device});
  int asked = 0;
  bool offers = true;

  Offered() {
    detail::add_leaf_hook(
        weight.impl(), [](const Tensor&) {},
        [this] {
          ++asked;
          return slot;
        });
  }
  Tensor loss() {
    const auto offer = [this] {
      if (offers) detail::current_backward_pass->offer_gradient_slots();
    };
    return apply(Within{offer}, linear(ones({4, 2}, {.device = device}), weight)).sum();
  }
  bool taken() const { return weight.grad().is_same(slot); }
};

TEST(GradientSlots, AreTakenByTheFirstGradient) {
  Offered test;
  test.loss().backward();
  EXPECT_EQ(test.asked, 1);
  EXPECT_TRUE(test.taken());
  EXPECT_EQ(test.slot.to_vector<float>(), std::vector<float>(6, 4));
  test.loss().backward();  // added to it, in place
  EXPECT_EQ(test.asked, 1);
  EXPECT_EQ(test.slot.to_vector<float>(), std::vector<float>(6, 8));
}

TEST(GradientSlots, AreNotAskedForWhereThePassOffersNone) {
  Offered test;
  test.offers = false;
  test.loss().backward();
  EXPECT_EQ(test.asked, 0);
  EXPECT_FALSE(test.taken());
}

TEST(GradientSlots, AreNotForGradientsWithDerivatives) {
  Offered test;
  test.loss().backward({}, true, true);
  EXPECT_EQ(test.asked, 0);
  EXPECT_FALSE(test.taken());
}

TEST(GradientSlots, AreNotForAnotherStreamThanTheLeafs) {
  Offered test;
  const Tensor other = test.loss();  // its leaf's stream is the current one
  const Stream side = pool_stream(test.device);
  side.wait_stream(current_stream(test.device));
  std::optional<Tensor> loss;
  {
    const StreamGuard guard(side);
    loss = test.loss();
  }
  loss->backward();
  current_stream(test.device).wait_stream(side);
  EXPECT_EQ(test.asked, 0);
  EXPECT_EQ(test.weight.grad().to_vector<float>(), std::vector<float>(6, 4));
}

TEST(GradientSlots, OfAnotherLayoutAreLeftAlone) {
  Offered test;
  test.slot = zeros({2, 3}, {.device = test.device}).t();
  test.loss().backward();
  EXPECT_EQ(test.asked, 1);
  EXPECT_FALSE(test.taken());
  EXPECT_EQ(test.slot.to_vector<float>(), std::vector<float>(6, 0));
  EXPECT_EQ(test.weight.grad().to_vector<float>(), std::vector<float>(6, 4));
}

TEST(GradientSlots, ALeafWithoutHooksHasNone) {
  Offered test;
  const Tensor plain = ones({3, 2}, {.device = test.device}).requires_grad_();
  (test.loss() + linear(ones({4, 2}, {.device = test.device}), plain).sum()).backward();
  EXPECT_TRUE(test.taken());
  EXPECT_EQ(plain.grad().to_vector<float>(), std::vector<float>(6, 4));
}

TEST(GradientSlots, AutogradGradLeavesThemAlone) {
  Offered test;
  const std::vector<Tensor> gradients = autograd::grad({test.loss()}, {test.weight});
  EXPECT_EQ(test.asked, 0);
  EXPECT_EQ(gradients[0].to_vector<float>(), std::vector<float>(6, 4));
  EXPECT_EQ(test.slot.to_vector<float>(), std::vector<float>(6, 0));
}

// The other pass takes what this one was given for its own; nothing may be lost.
TEST(GradientSlots, AnotherPassMayReachTheLeafMeanwhile) {
  const Tensor weight = ones({3, 2}).requires_grad_();
  const Tensor slot = zeros({3, 2});
  std::atomic<int> turn{0};  // relaxed: it orders the passes for no race detector
  detail::add_leaf_hook(
      weight.impl(), [](const Tensor&) {},
      [&] {
        turn.store(1, std::memory_order_relaxed);
        while (turn.load(std::memory_order_relaxed) != 2) std::this_thread::yield();
        return slot;
      });
  const auto offer = [] { detail::current_backward_pass->offer_gradient_slots(); };
  const Tensor loss = apply(Within{offer}, linear(ones({4, 2}), weight)).sum();
  const Tensor other_loss = (weight * 2.0).sum();
  std::thread other([&] {
    while (turn.load(std::memory_order_relaxed) != 1) std::this_thread::yield();
    other_loss.backward();
    turn.store(2, std::memory_order_relaxed);
  });
  loss.backward();
  other.join();
  EXPECT_EQ(weight.grad().to_vector<float>(), std::vector<float>(6, 6));
}

}  // namespace distributed_gradient_slots_test
}  // namespace lockstep
