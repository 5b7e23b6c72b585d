// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>

#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_hooks.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/inference_mode.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/cat.hpp>
#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/split.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/scoped_value.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/from_blob.hpp>
#include <lockstep/tensor/random.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <typeinfo>
#include <utility>
#include <vector>

#include "support/expect_error.hpp"
#include "support/gate.hpp"
#include "support/sanitizers.hpp"

namespace lockstep {
namespace engine_test {

using testing::message_of;
using testing::throws;

constexpr TensorOptions kLeaf{.dtype = Dtype::f64, .device = {}, .requires_grad = true};

Tensor leaf(double value, Device device = {}) {
  return full({}, value, {.dtype = Dtype::f64, .device = device, .requires_grad = true});
}

// A backward that ends only once it runs on all devices at the same time.
struct Meet {
  static constexpr const char* name = "meet";
  std::latch* latch;
  std::atomic<std::thread::id>* thread;
  Tensor forward(const Tensor& x) const { return x * 1; }
  Tensor backward(const Backward&, const Tensor& grad) const {
    latch->arrive_and_wait();
    thread->store(std::this_thread::get_id());
    return grad;
  }
};

struct WhichThread {
  static constexpr const char* name = "which_thread";
  std::thread::id* thread;
  Tensor forward(const Tensor& x) const { return x * 1; }
  Tensor backward(const Backward&, const Tensor& grad) const {
    *thread = std::this_thread::get_id();
    return grad;
  }
};

struct Throws {
  static constexpr const char* name = "throws";
  Tensor forward(const Tensor& x) const { return x * 1; }
  Tensor backward(const Backward&, const Tensor&) const {
    throw std::runtime_error("from backward");
  }
};

// Checkpointing: forward again, with a graph of its own, within backward.
struct Recompute {
  static constexpr const char* name = "recompute";
  Saved x = {};
  Tensor forward(const Tensor& input) {
    x = input;
    return (input * input).to(Device("cpu:1")).to(Device("cpu:0"));
  }
  Tensor backward(const Backward& saved, const Tensor& grad) const {
    const Tensor again = saved(x).detach().requires_grad_();
    const GradModeGuard guard(true);
    const Tensor y = (again * again).to(Device("cpu:1")).to(Device("cpu:0"));
    y.backward(grad);
    return again.grad();
  }
};

struct WhichStream {
  static constexpr const char* name = "which_stream";
  std::vector<Stream>* streams;
  Tensor forward(const Tensor& x) const { return x * 1; }
  Tensor backward(const Backward&, const Tensor& grad) const {
    streams->push_back(current_stream("cpu:0"));
    return grad;
  }
};

TEST(Engine, LeavesAccumulate) {
  const Tensor x = leaf(3);
  (x * x).backward();
  EXPECT_EQ(x.grad().item(), 6);
  (x * 2).backward();
  EXPECT_EQ(x.grad().item(), 8);
  x.set_grad({});
  (x * 2).backward();
  EXPECT_EQ(x.grad().item(), 2);
}

TEST(Engine, ATensorIsNotItsOwnGradient) {
  const Tensor x = ones({2}, {.requires_grad = true});
  EXPECT_TRUE(throws<ValueError>([&] { x.set_grad(x); }, "cannot be its own gradient"));
  EXPECT_FALSE(x.grad().defined());
  x.set_grad(x.detach());
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{1, 1}));
}

TEST(Engine, AGradientThatSetDataHasLeftBehindIsNotAddedTo) {
  const auto after = [](const Tensor& data, bool create_graph = false) {
    const Tensor x = ones({2}, {.requires_grad = true});
    (x * 2).backward(ones({2}));
    x.set_data(data);
    try {
      (x * 2).backward(ones(data.sizes(), data.options()), false, create_graph);
    } catch (...) {
      EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{2, 2}));
      throw;
    }
    return x.grad().to_vector<float>();
  };
  EXPECT_EQ(after(zeros({2})), (std::vector<float>{4, 4}));
  for (const bool create_graph : {false, true}) {
    EXPECT_TRUE(throws<AutogradError>([&] { after(zeros({1}), create_graph); }, "two gradients",
                                      "shape [2] and f32 against [1] and f32"));
    EXPECT_TRUE(throws<AutogradError>([&] { after(zeros({2}, Dtype::f64), create_graph); },
                                      "shape [2] and f32 against [2] and f64"));
    EXPECT_TRUE(throws<DeviceError>([&] { after(zeros({2}, {.device = "cpu:1"}), create_graph); },
                                    "are on cpu and cpu:1"));
  }
}

// With assertions nothing beside the sizes and strides is read.
TEST(Engine, ALeafOfAsManyDimensionsAsThereCanBeAccumulates) {
  const Tensor x = ones({1, 1, 1, 2, 1, 1, 1, 1}, kLeaf);
  static_assert(Shape::kMaxDims == 8);
  for (int time = 0; time < 2; ++time) (x * 3).sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{6, 6}));
}

TEST(Engine, ALeafIsItsOwnRoot) {
  const Tensor x = leaf(3);
  x.backward();
  x.backward(full({}, 4, {.dtype = Dtype::f64}));
  EXPECT_EQ(x.grad().item(), 5);
}

TEST(Engine, TheGradientOfALeafIsItsOwn) {
  const Tensor x = ones({2}, kLeaf);
  const Tensor given = ones({2}, {.dtype = Dtype::f64});
  (x + 0).backward(given);
  given.fill_(7);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{1, 1}));
  const Tensor a = ones({2}, kLeaf);
  const Tensor b = ones({2}, kLeaf);
  sum(a + b).backward();
  a.grad().fill_(9);
  EXPECT_EQ(b.grad().to_vector<double>(), (std::vector<double>{1, 1}));
}

TEST(Engine, AGradientThatAHookHasRecordedOrMadeInInferenceModeIsCopied) {
  const Tensor w = leaf(3);
  const Tensor x = leaf(2);
  RemovableHandle hook = x.register_hook([&](const Tensor& gradient) {
    const GradModeGuard recording(true);
    return gradient * w;
  });
  (x + 0).backward();
  EXPECT_EQ(x.grad().item(), 3);
  EXPECT_FALSE(x.grad().requires_grad());
  hook.remove();
  x.set_grad({});
  hook = x.register_hook([](const Tensor& gradient) {
    const InferenceModeGuard inference;
    return gradient * 5;
  });
  (x + 0).backward();
  EXPECT_EQ(x.grad().item(), 5);
  EXPECT_FALSE(x.grad().is_inference());
}

TEST(Engine, ALeafThatWasFrozenAfterForwardKeepsItsGradient) {
  const Tensor frozen = leaf(2);
  const Tensor trained = leaf(3);
  const Tensor product = frozen * trained;
  frozen.requires_grad_(false);
  product.backward({}, true);
  EXPECT_FALSE(frozen.grad().defined());
  EXPECT_EQ(trained.grad().item(), 2);
  frozen.requires_grad_();
  product.backward({}, true);
  EXPECT_EQ(frozen.grad().item(), 3);
  frozen.requires_grad_(false);
  product.backward();
  EXPECT_EQ(frozen.grad().item(), 3);
  EXPECT_EQ(trained.grad().item(), 6);
}

TEST(Engine, SharedSubexpressionsAddUp) {
  const Tensor x = leaf(2);
  const Tensor square = x * x;
  const Tensor y = square * square + square + x;  // x⁴ + x² + x
  y.backward();
  EXPECT_EQ(x.grad().item(), 4 * 8 + 2 * 2 + 1);
}

struct Gives {
  static constexpr const char* name = "gives";
  Tensor (*gradient)(const Tensor&);
  Tensor forward(const Tensor& x) const { return x * 1; }
  Tensor backward(const Backward&, const Tensor& grad) const { return gradient(grad); }
};

TEST(Engine, OneOfManyUsesMayGiveNoGradientOrOneOfAnotherDtype) {
  const auto none = [](const Tensor&) { return Tensor(); };
  const auto in_f64 = [](const Tensor& grad) { return grad.to(Dtype::f64); };
  for (int place = 0; place < 4; ++place) {
    const Tensor x = full({2}, 3, {.requires_grad = true});
    const auto with = [&](Tensor (*gradient)(const Tensor&)) {
      const Tensor square = x * x;
      Tensor total = zeros({2});
      for (int use = 0; use < 4; ++use) {
        total = total + (use == place ? apply(Gives{gradient}, square) : square * 1);
      }
      return autograd::grad({sum(total)}, {x})[0].to_vector<float>();
    };
    EXPECT_EQ(with(none), (std::vector<float>{18, 18})) << place;
    EXPECT_EQ(with(in_f64), (std::vector<float>{24, 24})) << place;
  }
}

// The recorded sum has the leaf as its operand.
TEST(Engine, ALeafMayBeItsOwnGradient) {
  const Tensor x = full({2}, 3).requires_grad_();
  x.backward(x, true, true);
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{3, 3}));
  x.backward(x, true, true);
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{6, 6}));
  EXPECT_TRUE(x.grad().requires_grad());
  x.set_grad({});  // whose graph leads to x
}

TEST(Engine, ASecondBackwardNeedsTheGraphRetained) {
  const Tensor x = leaf(3);
  const Tensor y = x * x;
  y.backward({}, true);
  y.backward();
  EXPECT_EQ(x.grad().item(), 12);
  EXPECT_EQ(message_of<AutogradError>([&] { y.backward(); }),
            "backward a second time through mul: what it saved was freed; pass retain_graph = true"
            " the first time (in the backward of mul on cpu)");
}

TEST(Engine, ASecondBackwardGoesThroughWhatHasSavedNothing) {
  const Tensor x = full({4}, 3).requires_grad_();
  const std::vector<Tensor> parts = split(cat({x.reshape({2, 2}), ones({1, 2})}), {2, 1});
  const Tensor y = sum(parts[0] - parts[0].transpose(0, 1) + 2);
  const Tensor z = sum(-parts[0] * 2);
  z.backward();
  y.backward();
  z.backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{-4, -4, -4, -4}));
}

TEST(Engine, BackwardFreesWhatWasSaved) {
  const Tensor x = ones({2}, kLeaf);
  std::weak_ptr<detail::TensorImpl> saved;
  const Tensor y = [&] {
    const Tensor factor = ones({2}, {.dtype = Dtype::f64});
    saved = factor.impl();
    return sum(x * factor);
  }();
  EXPECT_FALSE(saved.expired());
  y.backward();
  EXPECT_TRUE(saved.expired());
}

TEST(Engine, AGraphIsFreedWithItsResult) {
  std::weak_ptr<Node> node;
  {
    const Tensor x = leaf(3);
    const Tensor y = exp(x);  // saves its own result
    node = y.grad_fn();
    EXPECT_FALSE(node.expired());
  }
  EXPECT_TRUE(node.expired());
}

TEST(Engine, GradientsOfGradients) {
  const Tensor x = leaf(2);
  const Tensor y = x * x * x;
  const Tensor first = autograd::grad({y}, {x}, {}, {}, true)[0];
  EXPECT_EQ(first.item(), 12);
  const Tensor second = autograd::grad({first}, {x}, {}, {}, true)[0];
  EXPECT_EQ(second.item(), 12);
  second.backward();
  EXPECT_EQ(x.grad().item(), 6);
}

TEST(Engine, BackwardWithCreateGraphRecordsTheAccumulation) {
  const Tensor x = leaf(2);
  (x * x * x).backward({}, false, true);
  (x * x).backward({}, false, true);
  const Tensor total = x.grad();  // 3x² + 2x
  EXPECT_EQ(total.item(), 16);
  EXPECT_EQ(autograd::grad({total}, {x})[0].item(), 14);
  x.set_grad({});
}

TEST(Engine, TheGradientFromBeforeIsNotDestroyedUnderTheLeafsLock) {
  const Tensor x = ones({2}, kLeaf);
  std::vector<double> lent = {1, 2};
  int asked = 0;
  const auto ask = [&](void*) { asked += x.grad().defined() ? 1 : 0; };
  x.set_grad(from_blob(lent.data(), {2}, {.dtype = kLeaf.dtype, .deleter = ask}));
  x.backward(ones({2}, {.dtype = kLeaf.dtype}), true, /*create_graph=*/true);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 3}));
  EXPECT_EQ(asked, 1);
  x.set_grad({});
}

TEST(Engine, AGradientThatCannotBeCopiedLeavesNoneBehind) {
  const Tensor x = ones({2}, {.dtype = Dtype::f64, .device = "cpu:0", .requires_grad = true});
  const Tensor given = ones({2}, x.options());
  const RemovableHandle fails = x.register_hook([](const Tensor&) {
    const Stream copies = copy_stream("cpu:0");
    testing::host_stream(copies).submit([] { throw std::runtime_error("an earlier copy"); });
    current_stream("cpu:0").wait_stream(copies);
  });
  EXPECT_TRUE(throws<std::runtime_error>([&] { x.backward(given); }, "an earlier copy"));
  EXPECT_FALSE(x.grad().defined());
  fails.remove();
  x.backward(given);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{1, 1}));
}

TEST(Engine, GradientsWithAGraphShareNoMemory) {
  const Tensor a = leaf(2);
  const Tensor b = leaf(3);
  ((a + b) * 3 * a.detach()).backward({}, false, true);
  EXPECT_EQ(a.grad().item(), 6);
  EXPECT_FALSE(a.grad().is_same(b.grad()));
  {
    const NoGradGuard guard;
    a.grad().mul_(2);
  }
  EXPECT_EQ(b.grad().item(), 6);
  a.set_grad({});
  b.set_grad({});
}

TEST(Engine, GradOfInnerTensorsTouchesNoLeaf) {
  const Tensor x = leaf(3);
  const Tensor square = x * x;
  const Tensor y = square * 5;
  const std::vector<Tensor> grads = autograd::grad({y}, {square, x});
  EXPECT_EQ(grads[0].item(), 5);
  EXPECT_EQ(grads[1].item(), 30);
  EXPECT_FALSE(x.grad().defined());
}

TEST(Engine, GradStopsAtWhatWasAskedFor) {
  const Tensor x = leaf(3);
  const Tensor square = x * x;
  EXPECT_EQ(autograd::grad({square * 5}, {square})[0].item(), 5);
  // The way from `square` on was not run, so it has not been freed.
  EXPECT_EQ(autograd::grad({square * 2}, {x})[0].item(), 12);
}

TEST(Engine, GradTakesEachOutputsGradient) {
  const Tensor x = leaf(3);
  const Tensor y = x * 2;
  const Tensor z = x * x;
  const Tensor ten = full({}, 10, {.dtype = Dtype::f64});
  EXPECT_EQ(autograd::grad({y, z}, {x}, {ten, Tensor()}, true)[0].item(), 26);
  EXPECT_EQ(autograd::grad({y, y}, {x}, {}, true)[0].item(), 4);
  EXPECT_EQ(autograd::grad({y}, {y})[0].item(), 1);
  EXPECT_EQ(autograd::grad({z}, {x, x})[1].item(), 6);
}

TEST(Engine, AnInputThatIsNotUsedIsAnErrorUnlessAllowed) {
  const Tensor x = leaf(3);
  const Tensor other = leaf(4);
  const Tensor y = x * 2;
  EXPECT_EQ(message_of<AutogradError>([&] {
              (void)autograd::grad({y}, {x, other}, {}, true);
            }),
            "grad: the outputs do not depend on input 1; pass allow_unused = true for an undefined"
            " gradient");
  const std::vector<Tensor> grads = autograd::grad({y}, {x, other}, {}, {}, false, true);
  EXPECT_EQ(grads[0].item(), 2);
  EXPECT_FALSE(grads[1].defined());
}

TEST(Engine, RootsThatCannotBeAreErrors) {
  const Tensor x = ones({2, 3}, kLeaf);
  EXPECT_EQ(message_of<AutogradError>([&] { (x * 2).backward(); }),
            "grad can be implicitly created only for scalar outputs; backward of a tensor of shape"
            " [2, 3] needs a gradient of that shape");
  EXPECT_EQ(message_of<ShapeError>([&] { (x * 2).backward(ones({3})); }),
            "backward: a gradient of shape [3] was given for a tensor of shape [2, 3]");
  EXPECT_THROW((x * 2).backward(ones({2, 3})), DtypeError);
  EXPECT_THROW((x * 2).backward(ones({2, 3}, {.dtype = Dtype::f64, .device = "cpu:0"})),
               DeviceError);
  EXPECT_EQ(message_of<AutogradError>([] { ones({1}).backward(); }),
            "backward: tensor 0 does not require grad and has no grad_fn: it was detached, or "
            "computed under a NoGradGuard or from nothing that requires grad");
  EXPECT_THROW(Tensor().backward(), AutogradError);
  EXPECT_THROW((void)autograd::grad({sum(x)}, {}), ValueError);
  EXPECT_THROW((void)autograd::grad({sum(x)}, {ones({1})}), AutogradError);
  EXPECT_THROW(autograd::backward({sum(x)}, {Tensor(), Tensor()}), ValueError);
}

TEST(Engine, BackwardOfNothingDoesNothing) {
  const Tensor x = leaf(3);
  autograd::backward(std::vector<Tensor>{});
  EXPECT_FALSE(autograd::grad({}, {x}, {}, {}, false, true)[0].defined());
  EXPECT_THROW((void)autograd::grad({}, {x}), AutogradError);
}

TEST(Engine, NoGradRecordsNothing) {
  const Tensor x = leaf(3);
  {
    const NoGradGuard guard;
    EXPECT_FALSE(is_grad_enabled());
    EXPECT_FALSE((x * x).requires_grad());
    const GradModeGuard inner(true);
    EXPECT_TRUE((x * x).requires_grad());
  }
  EXPECT_TRUE(is_grad_enabled());
  EXPECT_FALSE((x.detach() * 2).requires_grad());
  std::thread([&] { EXPECT_TRUE(is_grad_enabled()); }).join();
}

TEST(Engine, BackwardRestoresTheGradMode) {
  const Tensor x = leaf(3);
  (x * x).backward();
  EXPECT_TRUE(is_grad_enabled());
  const Tensor y = x * x;
  const NoGradGuard guard;
  y.backward();
  EXPECT_FALSE(is_grad_enabled());
  EXPECT_EQ(x.grad().item(), 12);
  EXPECT_FALSE(x.grad().requires_grad());
}

TEST(Engine, ATensorChangedSinceForwardIsAnError) {
  const Tensor x = leaf(3);
  const Tensor factor = full({}, 2, {.dtype = Dtype::f64});
  const Tensor y = x * factor;
  factor.fill_(5);
  EXPECT_EQ(message_of<AutogradError>([&] { y.backward(); }),
            "one of the variables needed for the gradient of mul has been modified by an inplace"
            " operation: a tensor of shape [] on cpu is at version " +
                std::to_string(factor.version()) + "; expected version " +
                std::to_string(factor.version() - 1) + " (in the backward of mul on cpu)");
  // The memory of the second may lie where the first one's was.
  for (int times = 1; times <= 2; ++times) {
    const Tensor z = x * x;
    for (int i = 0; i < times; ++i) x.set_data(leaf(4));
    EXPECT_TRUE(throws<AutogradError>([&] { z.backward(); }, "gradient of mul",
                                      "of shape [] on cpu has been changed by += or its like"))
        << times;
  }
}

// Of the memory that it has had, too.
TEST(Engine, ATensorOfAnotherLayoutSinceForwardIsAnError) {
  const auto matrix = [] { return from_values<double>({1, 2, 3, 4}, {2, 2}).requires_grad_(true); };
  const auto says_so = [](const Tensor& y) {
    return throws<AutogradError>([&] { y.sum().backward(); }, "another layout");
  };
  const Tensor turned = matrix();
  const Tensor of_turned = turned * turned;
  turned.set_data(turned.detach().t());
  EXPECT_TRUE(says_so(of_turned));
  const Tensor row = matrix();
  const Tensor of_row = row * row;
  row.set_data(row.detach().narrow(0, 1, 1));
  EXPECT_TRUE(says_so(of_row));
  const Tensor wide = matrix();
  const Tensor of_wide = wide * wide;
  wide.set_data(expand(wide.detach(), {3, 2, 2}));
  EXPECT_TRUE(says_so(of_wide));
  const Tensor same = matrix();
  const Tensor of_same = same * same;
  same.set_data(same.detach());
  of_same.sum().backward();
  EXPECT_EQ(same.grad().to_vector<double>(), (std::vector<double>{2, 4, 6, 8}));
}

TEST(Engine, DevicesRunBackwardInThreadsOfTheirOwn) {
  constexpr std::ptrdiff_t kDevices = 3;
  for (const Device& root : {Device(), Device("cpu:0")}) {
    std::latch latch(kDevices);
    std::array<std::atomic<std::thread::id>, kDevices> threads{};
    const Tensor x = leaf(1);
    Tensor total;
    for (std::size_t i = 0; i < kDevices; ++i) {
      const Tensor here = x.to(Device(DeviceType::cpu, static_cast<int>(i) + 1));
      const Tensor back = apply(Meet{&latch, &threads[i]}, here * 2).to(root);
      total = total.defined() ? total + back : back;
    }
    total.backward();
    EXPECT_EQ(x.grad().item(), 2.0 * kDevices);
    EXPECT_NE(threads[0].load(), threads[1].load());
    EXPECT_NE(threads[0].load(), threads[2].load());
    EXPECT_NE(threads[1].load(), threads[2].load());
  }
}

struct WhoseNumbers {
  static constexpr const char* name = "whose_numbers";
  std::latch* latch;
  std::atomic<detail::RandomNumbers*>* numbers;
  Tensor forward(const Tensor& x) const { return x * 1; }
  Tensor backward(const Backward&, const Tensor& grad) const {
    latch->arrive_and_wait();
    numbers->store(&detail::random_numbers());
    return grad;
  }
};

// A rank's (distributed::run), whichever thread runs an operation's backward or a hook.
TEST(Engine, EachThreadDrawsTheCallersRandomNumbers) {
  constexpr std::size_t kDevices = 3;
  std::latch latch(kDevices);
  std::array<std::atomic<detail::RandomNumbers*>, kDevices> drawn{};
  Tensor total = leaf(0);
  for (std::size_t i = 0; i < kDevices; ++i) {
    const Tensor x = leaf(1, Device(DeviceType::cpu, static_cast<int>(i)));
    total = total + apply(WhoseNumbers{&latch, &drawn[i]}, x).to(Device());
  }
  const auto own = detail::copy_random_numbers();
  {
    const detail::ScopedValue scope(detail::random_override(), own);
    total.backward();
  }
  for (const auto& numbers : drawn) EXPECT_EQ(numbers.load(), own.get());
}

// A thread that has run short passes wakes nobody for the next one; who is needed comes all the
// same.
TEST(Engine, DevicesThatMeetAfterShortPassesStillMeet) {
  constexpr std::ptrdiff_t kDevices = 3;
  const Tensor x = leaf(1);
  for (int run = 0; run < 20; ++run) {
    for (int pass = 0; pass < 20; ++pass) {
      (x.to(Device("cpu:0")) * 2).to(Device()).backward();
      ((x.to(Device("cpu:1")) * 2).to(Device()) + (x.to(Device("cpu:2")) * 2).to(Device()))
          .backward();
    }
    std::latch latch(kDevices);
    std::array<std::atomic<std::thread::id>, kDevices> threads{};
    Tensor total = leaf(0);
    for (std::size_t i = 0; i < kDevices; ++i) {
      const Tensor here = x.to(Device(DeviceType::cpu, static_cast<int>(i)));
      total = total + apply(Meet{&latch, &threads[i]}, here * 2).to(Device());
    }
    total.backward();
    EXPECT_NE(threads[0].load(), threads[1].load());
  }
}

TEST(Engine, OneDeviceStaysInTheCallersThread) {
  std::thread::id thread;
  const Tensor x = leaf(1);
  apply(WhichThread{&thread}, x.to(Device("cpu:1"))).to(Device()).backward();
  EXPECT_EQ(thread, std::this_thread::get_id());
}

// Sums whose rounding depends on their order: the order must not depend on the threads'.
TEST(Engine, ManyDevicesGiveTheSameBitsEveryRun) {
  manual_seed(11);
  const Tensor x = randn({257}, {.requires_grad = true});
  std::vector<Tensor> weights;
  for (int i = 0; i < 8; ++i) {
    weights.push_back(randn({257}, {.device = Device(DeviceType::cpu, i)}));
  }
  std::vector<float> first;
  for (int run = 0; run < 50; ++run) {
    x.set_grad({});
    Tensor total;
    for (int i = 0; i < 24; ++i) {
      const Tensor& weight = weights[static_cast<std::size_t>(i % 8)];
      const Tensor part = sum(tanh(x.to(weight.device()) * weight * (i + 1))).to(Device("cpu:2"));
      total = total.defined() ? total + part : part;
    }
    total.backward();
    const std::vector<float> bits = x.grad().to_vector<float>();
    if (run == 0) first = bits;
    ASSERT_EQ(bits, first) << "run " << run;
  }
}

// The gradients that some operations have given, of which others may be left.
class GivenGradients {
 public:
  void add(const Tensor& gradient) {
    const std::lock_guard lock(mutex_);
    given_.emplace_back(gradient.impl());
    most_ = std::max(most_, count());
  }
  int living() {
    const std::lock_guard lock(mutex_);
    return count();
  }
  int most() const { return most_; }

 private:
  int count() {
    std::erase_if(given_, [](const auto& gradient) { return gradient.expired(); });
    return static_cast<int>(given_.size());
  }

  std::mutex mutex_;
  std::vector<std::weak_ptr<detail::TensorImpl>> given_;
  int most_ = 0;
};

struct GivesCounted {
  static constexpr const char* name = "gives_counted";
  GivenGradients* given;
  double factor;
  Tensor forward(const Tensor& x) const { return x * factor; }
  Tensor backward(const Backward&, const Tensor& grad) const {
    Tensor gradient = grad * factor;
    given->add(gradient);
    return gradient;
  }
};

// Used by each step of a sequence, or by each part of a sum or a list.
TEST(Engine, GradientsOfManyUsesAreNotKept) {
  constexpr int kUses = 40;
  enum Way { step_first, step_last, part, element, loss_at_each_step, twice_a_step, roots, kWays };
  const auto use = [](const Tensor& x, GivenGradients& given, int way) {
    Tensor total = ones({3}, {.dtype = Dtype::f64, .device = x.device()});
    std::vector<Tensor> list;
    for (int i = 0; i < kUses; ++i) {
      const Tensor used = apply(GivesCounted{&given, i + 1.0}, x);
      if (way == step_first) total = used + total * 1;
      if (way == step_last || way == loss_at_each_step) total = total * 1 + used;
      if (way == part) total = total + used;
      if (way == element || way == roots) list.push_back(used);
      if (way == twice_a_step) total = total * 0.5 + (total * 0.5 + used);
      // The step before waits for this as well as for the step after it.
      if (way == loss_at_each_step) list.push_back(total * (i + 1 == kUses ? 1 : 0));
    }
    if (way == roots) {
      for (Tensor& each : list) each = sum(each);
      return list;
    }
    return std::vector{sum(list.empty() ? total : stack(list))};
  };
  for (const int devices : {1, 2}) {
    for (int way = 0; way < kWays; ++way) {
      for (const bool is_leaf : {true, false}) {
        GivenGradients given;
        const Tensor x = full({3}, 1, kLeaf);
        std::vector<Tensor> losses;
        for (int device = 0; device < devices; ++device) {
          const Tensor here = devices > 1 ? x.to(Device(DeviceType::cpu, device)) : x;
          for (const Tensor& loss : use(is_leaf ? here : here * 1, given, way)) {
            losses.push_back(loss);
          }
        }
        autograd::backward(losses);
        EXPECT_LE(given.most(), 3 * devices) << devices << " devices, way " << way;
        EXPECT_EQ(given.living(), 0);
        const double each = kUses * (kUses + 1) / 2.0;
        EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(3, devices * each));
      }
    }
  }
}

TEST(Engine, AnExceptionInBackwardComesOutAndTheEngineGoesOn) {
  const Tensor x = leaf(1);
  EXPECT_EQ(message_of<std::runtime_error>([&] { apply(Throws{}, x).backward(); }),
            "from backward (in the backward of throws on cpu)");
  for (int run = 0; run < 20; ++run) {
    Tensor total = leaf(0);
    for (int i = 0; i < 4; ++i) {
      const Tensor here = x.to(Device(DeviceType::cpu, i)) * 2;
      total = total + (i == 2 ? apply(Throws{}, here) : here).to(Device());
    }
    EXPECT_EQ(message_of<std::runtime_error>([&] { total.backward(); }),
              "from backward (in the backward of throws on cpu:2)");
  }
  x.set_grad({});
  (x * 3).backward();
  EXPECT_EQ(x.grad().item(), 3);
}

// What a user may have, with more in it than a text.
struct OwnError : std::runtime_error {
  explicit OwnError(int number) : std::runtime_error("own"), code(number) {}
  int code;
};

struct Throwing {
  static constexpr const char* name = "throwing";
  std::function<void()> function;
  Tensor forward(const Tensor& x) const { return x * 1; }
  Tensor backward(const Backward&, const Tensor& grad) const {
    function();
    return grad;
  }
};

// The text of the E, and of nothing derived from it, that the backward of an operation on `device`
// throws by calling `function`.
template <class E>
std::string text_in_backward(const std::function<void()>& function, Device device = {}) {
  const Tensor y = apply(Throwing{function}, leaf(1, device));
  try {
    y.backward();
  } catch (const E& error) {
    EXPECT_EQ(typeid(error), typeid(E));
    return error.what();
  }
  return "no exception";
}

TEST(Engine, AnExceptionInBackwardNamesTheOperationAndItsDeviceAndKeepsItsType) {
  EXPECT_EQ(text_in_backward<ShapeError>([] { throw ShapeError("why"); }, "cpu:2"),
            "why (in the backward of throwing on cpu:2)");
  EXPECT_EQ(text_in_backward<Error>([] { throw Error("why"); }),
            "why (in the backward of throwing on cpu)");
  EXPECT_EQ(text_in_backward<OutOfMemoryError>([] { throw OutOfMemoryError("why"); }),
            "why (in the backward of throwing on cpu)");
  EXPECT_EQ(text_in_backward<std::invalid_argument>([] { throw std::invalid_argument("why"); }),
            "why (in the backward of throwing on cpu)");
  EXPECT_EQ(text_in_backward<AutogradError>([] { leaf(1, "cpu:1").detach().backward(); }),
            "backward: tensor 0 does not require grad and has no grad_fn: it was detached, or "
            "computed under a NoGradGuard or from nothing that requires grad (in the backward of "
            "throwing on cpu)");
}

TEST(Engine, AnExceptionOfAnyOtherTypeComesOutOfBackwardAsItIs) {
  EXPECT_EQ(text_in_backward<OwnError>([] { throw OwnError(3); }), "own");
  EXPECT_EQ(text_in_backward<std::bad_alloc>([] { throw std::bad_alloc(); }),
            std::bad_alloc().what());
  EXPECT_THROW(text_in_backward<std::exception>([] { throw 7; }), int);
}

TEST(Engine, AnExceptionInABackwardWithinAnotherNamesBoth) {
  const Tensor inner = apply(Throwing{[] { throw ValueError("why"); }}, leaf(1, "cpu:1"));
  EXPECT_EQ(text_in_backward<ValueError>([&] { inner.backward(); }),
            "why (in the backward of throwing on cpu:1) (in the backward of throwing on cpu)");
}

TEST(Engine, AnExceptionOfAHookNamesTheLeaf) {
  const Tensor w = leaf(1, "cpu:1");
  w.register_post_accumulate_grad_hook([](const Tensor&) { throw std::out_of_range("why"); });
  EXPECT_EQ(message_of<std::out_of_range>([&] { (w * 2).backward(); }),
            "why (in the backward of AccumulateGrad on cpu:1)");
}

// Of two that come at the same time.
TEST(Engine, TheFirstExceptionByDeviceOrderIsThrown) {
  for (const bool turned : {false, true}) {
    std::latch both(2);
    const auto fails = [&both](Device device) {
      const auto meet_and_throw = [&both] {
        both.arrive_and_wait();
        throw std::out_of_range("why");
      };
      return apply(Throwing{meet_and_throw}, leaf(1, device));
    };
    std::vector<Tensor> roots = {fails("cpu:1"), fails("cpu:2")};
    if (turned) std::swap(roots[0], roots[1]);
    EXPECT_EQ(message_of<std::out_of_range>([&] { autograd::backward(roots); }),
              "why (in the backward of throwing on cpu:1)");
  }
}

TEST(Engine, GradientsAccumulatedBeforeAnExceptionStay) {
  const Tensor w = leaf(1, "cpu:1");
  std::atomic<bool> accumulated{false};
  w.register_post_accumulate_grad_hook([&](const Tensor&) {
    accumulated = true;
    accumulated.notify_one();
  });
  const auto wait_and_throw = [&] {
    accumulated.wait(false);
    throw std::out_of_range("why");
  };
  const Tensor fails = apply(Throwing{wait_and_throw}, leaf(1, "cpu:0"));
  EXPECT_TRUE(throws<std::out_of_range>([&] { autograd::backward({fails, w * 3}); }, "why"));
  EXPECT_EQ(w.grad().item(), 3);
  (w * 2).backward();
  EXPECT_EQ(w.grad().item(), 5);
}

TEST(Engine, DeepGraphsNeedNoDeepStack) {
  // One thread, which takes minutes under it.
  if (testing::kThreadSanitizer) GTEST_SKIP() << "needs a build without ThreadSanitizer";
  constexpr int kDepth = testing::kSanitizer ? 50'000 : 200'000;
  const Tensor x = leaf(1);
  {
    Tensor y = x;
    for (int i = 0; i < kDepth; ++i) y = y + 1;
    y.backward();
    EXPECT_EQ(x.grad().item(), 1);
  }
  Tensor unused = x;
  for (int i = 0; i < kDepth; ++i) unused = unused * 1;
}

TEST(Engine, BackwardInsideBackward) {
  const Tensor x = leaf(3, "cpu:0");
  const Tensor y = apply(Recompute{}, x * 1);
  (y + apply(Recompute{}, x.to(Device("cpu:2")).to(Device("cpu:0"))) * 2).backward();
  EXPECT_EQ(x.grad().item(), 18);
}

TEST(Engine, SeveralThreadsAccumulateIntoOneLeaf) {
  constexpr int kThreads = 4;
  constexpr int kRuns = 100;
  const Tensor x = leaf(1);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int run = 0; run < kRuns; ++run) (x * 2).backward();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(x.grad().item(), 2 * kThreads * kRuns);
}

TEST(Engine, BackwardRunsOnTheStreamOfForward) {
  std::vector<Stream> streams;
  const Tensor x = leaf(1, "cpu:0");
  const Stream side = pool_stream("cpu:0");
  Tensor y;
  side.wait_stream(default_stream("cpu:0"));
  {
    const StreamGuard guard(side);
    y = apply(WhichStream{&streams}, x);
  }
  default_stream("cpu:0").wait_stream(side);
  apply(WhichStream{&streams}, y).backward();
  ASSERT_EQ(streams.size(), 2U);
  EXPECT_EQ(streams[0], default_stream("cpu:0"));
  EXPECT_EQ(streams[1], side);
}

TEST(Engine, TheCallersStreamWaitsForWhatHasRunOnAnother) {
  const testing::QueuedCompute queued;
  const Stream mine = default_stream("cpu:0");
  const Stream side = copy_stream("cpu:0");
  Tensor x;
  Tensor y;
  {
    const StreamGuard guard(side);
    x = leaf(1, "cpu:0");
    y = x * 3;
  }
  mine.wait_stream(side);
  testing::Gate gate;
  gate.hold(side);
  y.backward();
  for (int i = 0; i < 1000 && !mine.query(); ++i) std::this_thread::yield();
  EXPECT_FALSE(mine.query());
  gate.open();
  EXPECT_EQ(x.grad().item(), 3);
}

// A gradient that somebody has set may lie in memory in any way.
TEST(Backward, AddsToAGradientOfAnyLayout) {
  const Tensor x = full({2, 3}, 1, kLeaf);
  const Tensor weights = from_values(std::vector<double>{1, 2, 3, 4, 5, 6}, {2, 3});
  const auto after = [&](const Tensor& before) {
    x.set_grad(before);
    (x * weights).sum().backward();
    return x.grad().to_vector<double>();
  };
  const std::vector<double> expected = {2, 3, 4, 5, 6, 7};
  EXPECT_EQ(after(ones({2, 3}, {.dtype = Dtype::f64})), expected);
  EXPECT_EQ(after(expand(ones({1, 1}, {.dtype = Dtype::f64}), {2, 3})), expected);
  const Tensor across = ones({3, 2}, {.dtype = Dtype::f64});
  EXPECT_EQ(after(transpose(across, 0, 1)), expected);
  EXPECT_EQ(across.to_vector<double>(), (std::vector<double>{2, 5, 3, 6, 4, 7}));
}

}  // namespace engine_test
}  // namespace lockstep
