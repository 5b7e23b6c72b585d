// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/nn/activation.hpp>
#include <lockstep/nn/conv.hpp>
#include <lockstep/nn/lazy_linear.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/ops/loss.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/comm/detail/transfer.hpp>
#include <lockstep/parallel/criterion.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/random.hpp>

#include "parallel/layers.hpp"
#include "support/devices.hpp"
#include "support/expect_error.hpp"
#include "support/warnings.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace ls = lockstep;
using ls::testing::CaughtWarnings;
using ls::testing::f64;
using ls::testing::first_devices;
using ls::testing::L0;
using ls::testing::throws;
using ls::testing::x5;
using ls::testing::y5;

namespace data_parallel_test {

using Values = std::vector<double>;

std::vector<std::vector<ls::Device>> device_lists() {
  return {first_devices(1), first_devices(2),   first_devices(3),           first_devices(4),
          first_devices(8), {"cpu:0", "cpu:0"}, {"cpu:0", "cpu:0", "cpu:0"}};
}

TEST(DataParallel, D01OutputsAndGradientsForAnyDevices) {
  for (const auto& devices : device_lists()) {
    ls::DataParallel model{L0{}, devices};
    const ls::Tensor y = model(x5());
    EXPECT_EQ(y.to_vector<double>(), y5()) << devices.size();
    EXPECT_EQ(y.device(), devices[0]);
    y.sum().backward();
    EXPECT_EQ(model.module().weight.grad().to_vector<double>(), (Values{3, 3, 3, 3}));
    EXPECT_EQ(model.module().bias.grad().to_vector<double>(), (Values{5, 5}));
  }
}

TEST(DataParallel, D01TheFunctionDoesTheSame) {
  for (const auto& devices : device_lists()) {
    L0 module;
    ls::to(module, devices[0]);
    const ls::Tensor y = ls::data_parallel(module, x5(), devices);
    EXPECT_EQ(y.to_vector<double>(), y5());
    y.sum().backward();
    EXPECT_EQ(module.weight.grad().to_vector<double>(), (Values{3, 3, 3, 3}));
  }
}

struct NotesDevice {
  ls::Parameter weight{f64({1}, {1})};
  ls::Tensor forward(const ls::Tensor& x) const {
    return ls::full({x.size(0)}, x.device().index, {.device = x.device()});
  }
};

TEST(DataParallel, TheFunctionRunsAReplicaOnEachDevice) {
  NotesDevice module;
  ls::to(module, "cpu:2");
  EXPECT_EQ(ls::data_parallel(module, x5(), {"cpu:2", "cpu:0", "cpu:1"}).to_vector<float>(),
            (std::vector<float>{2, 2, 0, 0, 1}));
  EXPECT_EQ(ls::data_parallel(module, x5(), {"cpu:2"}).to_vector<float>(),
            std::vector<float>(5, 2));
  EXPECT_TRUE(throws<ls::ValueError>([&] { ls::data_parallel(module, x5(), {}); }, "device"));
}

struct CountsCalls {
  ls::Parameter weight{f64({1}, {1})};
  int calls = 0;
  ls::Tensor forward(const ls::Tensor& x) {
    ++calls;
    return x.to("cpu:2");
  }
};

TEST(DataParallel, OneDeviceAloneRunsTheModuleItself) {
  CountsCalls module;
  ls::to(module, "cpu:1");
  EXPECT_EQ(ls::data_parallel(module, f64({1}, {1}), {"cpu:1", "cpu:0"}).device(),
            ls::Device("cpu:1"));
  EXPECT_EQ(module.calls, 1);
  ls::DataParallel model{module, {"cpu:1"}};
  EXPECT_EQ(model(x5()).device(), ls::Device("cpu:1"));
  EXPECT_EQ(model.module().calls, 2);
}

TEST(DataParallel, AParameterThatWasFrozenAfterForwardGetsNoGradient) {
  for (const auto& devices : device_lists()) {
    ls::DataParallel model{L0{}, devices};
    const ls::Tensor y = model(x5());
    model.module().weight.requires_grad_(false);
    y.sum().backward();
    EXPECT_FALSE(model.module().weight.grad().defined()) << devices.size();
    EXPECT_EQ(model.module().bias.grad().to_vector<double>(), (Values{5, 5}));
  }
}

struct Affine41 {
  ls::Parameter weight{f64({1, 2, 3, 4}, {1, 4})};
  ls::Parameter bias{f64({0.5}, {1})};
  ls::Tensor forward(const ls::Tensor& x) const { return ls::linear(x, weight, bias); }
};

struct TwoTowers {
  Affine41 left, right;
  std::pair<ls::Tensor, ls::Tensor> forward(const ls::Tensor& x) const {
    return {left.forward(x), right.forward(x)};
  }
};

// What scatter, replicate and gather have recorded serves both.
TEST(DataParallel, EachOfTwoLossesMayHaveABackwardOfItsOwn) {
  ls::DataParallel model{TwoTowers{}, first_devices(2)};
  const ls::Tensor x = f64({1, 2, 3, 4, 5, 6, 7, 8}, {2, 4}).requires_grad_();
  const auto outputs = model(x);
  outputs.first.sum().backward();
  outputs.second.sum().backward();
  EXPECT_EQ(model.module().left.weight.grad().to_vector<double>(), (Values{6, 8, 10, 12}));
  EXPECT_EQ(model.module().right.weight.grad().to_vector<double>(), (Values{6, 8, 10, 12}));
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{2, 4, 6, 8, 2, 4, 6, 8}));
}

TEST(DataParallel, D04X05AGradientPenalty) {
  ls::DataParallel model{Affine41{}, first_devices(2)};
  const ls::Tensor x = ls::ones({2, 4}, {.dtype = ls::Dtype::f64});
  x.requires_grad_();
  const ls::Tensor out = model(x);
  const ls::Tensor g = ls::autograd::grad({out}, {x}, {ls::ones_like(out)}, /*retain_graph=*/true,
                                          /*create_graph=*/true)[0];
  g.mean().backward();
  EXPECT_EQ(model.module().weight.grad().to_vector<double>(), (Values{0.25, 0.25, 0.25, 0.25}));
  const ls::Tensor bias_grad = model.module().bias.grad();
  EXPECT_TRUE(!bias_grad.defined() || bias_grad.to_vector<double>() == Values{0});
}

struct FourArguments {
  ls::Tensor forward(const ls::Tensor& v1, const ls::Tensor& v2, double s,
                     const ls::Tensor& v3) const {
    return (v1 * v2 + v3) * s;
  }
  ls::Tensor forward(const ls::Tensor& v1, const ls::Tensor& v2, double s) const {
    return v1 * v2 * s;
  }
};

TEST(DataParallel, D06SeveralArgumentsInAnyDeviceOrder) {
  const auto random = [] {
    const ls::Tensor t = ls::randn({5, 5}, {.dtype = ls::Dtype::f64});
    t.requires_grad_();
    return t;
  };
  const ls::Tensor a = random();
  const ls::Tensor b = random();
  const ls::Tensor c = random();
  const std::vector<std::vector<ls::Device>> lists = {
      {"cpu:0", "cpu:1"}, {"cpu:1", "cpu:0"}, {"cpu:0"}};
  for (const auto& devices : lists) {
    ls::DataParallel model{FourArguments{}, devices, ls::Device("cpu")};
    const auto got = ls::autograd::grad({model(a, b, 2.0, c).sum()}, {a, b});
    const auto want = ls::autograd::grad({FourArguments{}.forward(a, b, 2.0, c).sum()}, {a, b});
    EXPECT_EQ(got[0].to_vector<double>(), want[0].to_vector<double>());
    EXPECT_EQ(got[1].to_vector<double>(), want[1].to_vector<double>());
    EXPECT_EQ(model(a, b, 2.0).to_vector<double>(),
              FourArguments{}.forward(a, b, 2.0).to_vector<double>());
  }
}

TEST(DataParallel, D07AModuleOnAnotherDevice) {
  L0 module;
  ls::to(module, "cpu:1");
  EXPECT_TRUE(throws<ls::ModuleError>([&] { ls::data_parallel(module, x5(), first_devices(2)); },
                                      "on device cpu:0", "found one of them on device: cpu:1",
                                      "weight"));
  const ls::Tensor row = x5().narrow(0, 0, 1);  // for which the module itself would run
  EXPECT_TRUE(throws<ls::ModuleError>([&] { ls::data_parallel(module, row, first_devices(2)); },
                                      "on device cpu:0", "found one of them on device: cpu:1",
                                      "weight"));
  EXPECT_TRUE(throws<ls::ModuleError>([&] { ls::DataParallel(module, first_devices(2)); },
                                      "found one of them on device: cpu:1"));
}

TEST(DataParallel, D07AModuleThatWasMovedAfterwards) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{2}}) {
    ls::DataParallel model{L0{}, first_devices(count)};
    model.module().bias.set_data(model.module().bias.detach().to(ls::Device("cpu:1")));
    EXPECT_TRUE(throws<ls::ModuleError>([&] { model(x5()); }, "on device cpu:0",
                                        "found one of them on device: cpu:1", "bias"));
  }
}

TEST(DataParallel, D08AModuleOnTwoDevices) {
  L0 module;
  module.weight.set_data(module.weight.detach().to(ls::Device("cpu:0")));
  EXPECT_TRUE(throws<ls::ModuleError>([&] { ls::DataParallel(module, first_devices(2)); },
                                      "on device cpu:0", "found one of them on device: cpu",
                                      "bias"));
}

TEST(DataParallel, OneDeviceGetsTheModuleFromWhereverItIs) {
  L0 module;
  ls::to(module, "cpu:1");
  module.bias.set_data(module.bias.detach().to(ls::Device("cpu:2")));
  ls::DataParallel model{module, first_devices(1)};
  EXPECT_EQ(module.bias.device(), ls::Device("cpu:0"));
  EXPECT_EQ(model(x5()).to_vector<double>(), y5());
}

TEST(DataParallel, D09TheFirstDeviceListedIsTheRoot) {
  L0 module;
  ls::to(module, "cpu:1");
  ls::DataParallel model{module, {"cpu:1", "cpu:0"}};
  EXPECT_EQ(model(x5()).device(), ls::Device("cpu:1"));
}

TEST(DataParallel, D10AnyOutputDevice) {
  for (const auto& devices : {first_devices(1), first_devices(2)}) {
    for (const ls::Device target : {ls::Device("cpu:1"), ls::Device("cpu"), ls::Device("cpu:5")}) {
      ls::DataParallel model{L0{}, devices, target};
      const ls::Tensor y = model(x5());
      EXPECT_EQ(y.device(), target);
      EXPECT_EQ(y.to_vector<double>(), y5());
      y.sum().backward();
      EXPECT_EQ(model.module().bias.grad().to_vector<double>(), (Values{5, 5}));
    }
  }
}

TEST(DataParallel, D11WithoutAGpuTheDefaultIsEveryHostDevice) {
  ls::DataParallel model{L0{}};
  EXPECT_EQ(model.device_ids(), ls::host_devices());
  EXPECT_EQ(model(x5()).to_vector<double>(), y5());
}

TEST(DataParallel, D12NamesHaveNoPrefix) {
  ls::DataParallel model{L0{}, first_devices(2)};
  EXPECT_EQ(model.named_parameters()[0].name, "weight");
  EXPECT_EQ(ls::named_parameters(model)[0].name, "weight");
}

struct Throws {
  ls::Tensor forward(const ls::Tensor& x) const {
    if (x.size(0) < 3) throw std::domain_error("too small");
    return x;
  }
};

TEST(DataParallel, D13OneDevicesExceptionIsThrownAsItIs) {
  ls::DataParallel one{Throws{}, first_devices(1)};
  try {
    one(x5().narrow(0, 0, 1));
    FAIL();
  } catch (const ls::ReplicaFailure&) {
    FAIL() << "wrapped";
  } catch (const std::domain_error& error) {
    EXPECT_STREQ(error.what(), "too small");
  }
  ls::DataParallel two{Throws{}, first_devices(2)};
  EXPECT_TRUE(
      throws<std::domain_error>([&] { two(x5()); }, "replica 1 on device cpu:1", "too small"));
  EXPECT_TRUE(throws<std::domain_error>([&] { two(x5().narrow(0, 0, 1)); },
                                        "replica 0 on device cpu:0", "too small"));
  EXPECT_EQ(two(f64(Values(12, 1.0), {6, 2})).size(0), 6);
}

struct Mean {
  ls::Tensor forward(const ls::Tensor& x) const { return x.mean(); }
};

TEST(DataParallel, D14ScalarOutputsBecomeAVectorWithAWarning) {
  CaughtWarnings warnings;
  ls::DataParallel model{Mean{}, first_devices(3)};
  const ls::Tensor x = f64({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {10});
  x.requires_grad_();
  const ls::Tensor y = model(x);
  EXPECT_EQ(y.to_vector<double>(), (Values{2.5, 6.5, 9.5}));
  EXPECT_EQ(warnings.count(), 1);
  EXPECT_TRUE(throws<ls::AutogradError>([&] { y.backward(); }, "tensor of shape [3]",
                                        ".scalar_outputs = ls::Reduction::mean"));
  y.mean().backward();
  const Values grad = x.grad().to_vector<double>();
  EXPECT_DOUBLE_EQ(grad[0], 1.0 / 12);
  EXPECT_DOUBLE_EQ(grad[9], 1.0 / 6);
}

TEST(DataParallel, D15OneRowOverTwoDevicesIsStillGathered) {
  CaughtWarnings warnings;
  ls::DataParallel two{Mean{}, first_devices(2)};
  EXPECT_EQ(two(f64({3}, {1})).sizes(), (ls::Shape{1}));
  ls::DataParallel one{Mean{}, first_devices(1)};
  EXPECT_EQ(one(f64({3}, {1})).sizes(), ls::Shape{});
}

TEST(DataParallel, D16NoRows) {
  ls::DataParallel model{L0{}, first_devices(2)};
  EXPECT_EQ(model(ls::empty({0, 2}, {.dtype = ls::Dtype::f64})).sizes(), (ls::Shape{0, 2}));
}

TEST(DataParallel, D17ArgumentsThatDisagreeAreAnError) {
  struct T {
    ls::Tensor forward(const ls::Tensor& a, const ls::Tensor& b) const { return a + b.sum(); }
  };
  ls::DataParallel model{T{}, first_devices(4)};
  EXPECT_TRUE(throws<ls::ValueError>(
      [&] {
        model(f64({0, 1, 2, 3}, {4}), f64({1, 1}, {2}));
      },
      "args[0] has 4", "args[1] has 2"));
}

TEST(DataParallel, D20WithoutGradTheOutputRequiresNone) {
  ls::DataParallel model{L0{}, first_devices(2)};
  const ls::NoGradGuard guard;
  EXPECT_FALSE(model(x5()).requires_grad());
}

TEST(DataParallel, D21NoDevices) {
  EXPECT_TRUE(throws<ls::ValueError>([] { ls::DataParallel(L0{}, std::vector<ls::Device>{}); },
                                     "at least one device"));
}

TEST(DataParallel, ADeviceThatDoesNotExistIsAnErrorThatSaysWhatThereIs) {
  const int count = ls::device_count(ls::DeviceType::cpu);
  const ls::Device none(ls::DeviceType::cpu, count);
  const std::string text =
      "device " + none.str() + " is out of range: there are " + std::to_string(count) + " ";
  EXPECT_TRUE(throws<ls::DeviceError>([&] { (ls::DataParallel{L0{}, {"cpu:0", none}}); }, text));
  EXPECT_TRUE(throws<ls::DeviceError>(
      [&] {
        (ls::DataParallel{L0{}, {"cpu:0", "cpu:1"}, {.output_device = none}});
      },
      text));
}

TEST(DataParallel, D25EachReplicaSeesItsDevice) {
  struct DeviceIndex {
    ls::Tensor forward(const ls::Tensor& x) const {
      return ls::full({1}, x.device().index, {.dtype = ls::Dtype::f64, .device = x.device()});
    }
  };
  ls::DataParallel model{DeviceIndex{}, first_devices(4)};
  EXPECT_EQ(model(ls::zeros({4}, {.dtype = ls::Dtype::f64})).to_vector<double>(),
            (Values{0, 1, 2, 3}));
}

TEST(DataParallel, D26ThreeStepsOfTrainingGiveTheSameParameters) {
  struct ConvNet {
    ls::nn::Conv2d conv{1, 2, 3};
    ls::nn::Linear fc{2 * 4 * 4, 3};
    ls::Tensor forward(const ls::Tensor& x) { return fc(ls::flatten(ls::relu(conv(x)), 1)); }
  };
  const ls::Tensor input = ls::ones({16, 1, 6, 6});
  const auto train = [&](auto& model) {
    ls::optim::SGD sgd{ls::parameters(model), {.lr = 0.1}};
    for (int step = 0; step < 3; ++step) {
      const ls::Tensor y = model.forward(input);
      sgd.zero_grad();
      (y * y).mean().backward();
      sgd.step();
    }
  };
  ls::manual_seed(7);
  ConvNet plain;
  ls::manual_seed(7);
  ls::DataParallel parallel{ConvNet{}, first_devices(2)};
  train(plain);
  train(parallel);
  const auto expected = ls::named_parameters(plain);
  const auto got = parallel.named_parameters();
  ASSERT_EQ(expected.size(), got.size());
  for (std::size_t p = 0; p < got.size(); ++p) {
    const auto want = expected[p].tensor.to_vector<float>();
    const auto have = got[p].tensor.to_vector<float>();
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(have[i], want[i], 1e-5F) << got[p].name << '[' << i << ']';
    }
  }
}

TEST(DataParallel, R16ZeroGradInsideForwardWarnsAndHasNoEffect) {
  struct Zeroing {
    L0 layer;
    ls::Tensor forward(const ls::Tensor& x) const {
      ls::zero_grad(layer);
      return layer.forward(x);
    }
  };
  ls::DataParallel model{Zeroing{}, first_devices(2)};
  model.module().layer.bias.set_grad(f64({7, 7}, {2}, "cpu:0"));
  const CaughtWarnings warnings;
  model(x5()).sum().backward();
  EXPECT_EQ(warnings.count("zero_grad() from a module created with DataParallel has no effect"), 2);
  EXPECT_EQ(model.module().layer.bias.grad().to_vector<double>(), (Values{12, 12}));
}

TEST(DataParallel, R17AModuleThatIsNotInitializedIsRefused) {
  ls::nn::LazyLinear lazy{3};
  const std::string text =
      "Modules with uninitialized parameters can't be used with `DataParallel`";
  EXPECT_TRUE(throws<ls::ModuleError>([&] { ls::DataParallel(lazy, first_devices(2)); }, text,
                                      "dummy forward", "weight"));
  EXPECT_TRUE(throws<ls::ModuleError>([&] { ls::replicate(lazy, first_devices(2)); }, text));
  (void)lazy(ls::ones({1, 2}));
  ls::DataParallel model{lazy, first_devices(2)};
  EXPECT_EQ(model(ls::ones({4, 2})).sizes(), (ls::Shape{4, 3}));
}

struct ListsOneLayer {
  ls::nn::Linear listed{2, 2};
  ls::nn::Linear left_out{2, 2};
  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("listed", self.listed);
  }
  ls::Tensor forward(const ls::Tensor& x) { return left_out(listed(x)); }
};

struct Forgetful {
  ls::nn::Linear layer{2, 2};
  ls::Tensor scale;                                                // not a Parameter
  std::vector<std::function<ls::Tensor(const ls::Tensor&)>> more;  // which hide what they hold
  ls::Tensor forward(const ls::Tensor& x) {
    ls::Tensor y = layer(x);
    if (scale.defined()) y = y * scale;
    for (const auto& next : more) y = next(y);
    return y;
  }
};

TEST(DataParallel, AMemberThatIsNeitherMovedNorTrainedIsNamed) {
  Forgetful net;
  net.scale = ls::ones({2}, {.requires_grad = true});
  const auto wrap = [&] { ls::DataParallel{net, first_devices(2)}; };
  EXPECT_TRUE(throws<ls::ModuleError>(wrap, "the member \"scale\" is a plain Tensor"));
  EXPECT_TRUE(throws<ls::ModuleError>([&] { ls::replicate(net, first_devices(2)); }, "\"scale\""));
}

TEST(DataParallel, ADeviceErrorSaysWhatStaysWhereItIs) {
  const ls::Tensor x = ls::zeros({4, 2});
  const auto refused = [&](const auto& net) {
    ls::DataParallel model{net, first_devices(2)};
    return throws<ls::DeviceError>([&] { model(x); }, "plain Tensor members of a module",
                                   "layers that its visit_members leaves out",
                                   "std::function has captured, are neither moved nor replicated");
  };
  EXPECT_TRUE(refused(ListsOneLayer()));
  Forgetful with_tensor;
  with_tensor.scale = ls::ones({2});
  EXPECT_TRUE(refused(with_tensor));
  Forgetful with_functions;
  with_functions.more.emplace_back(ls::nn::Linear{2, 2});
  EXPECT_TRUE(refused(with_functions));
}

TEST(DataParallel, OneThatHasBeenMovedFromSaysSo) {
  const ls::Tensor x = ls::ones({4, 2});
  using Model = ls::DataParallel<ls::nn::ReLU>;  // which would run without its devices as well
  for (Model model :
       {Model({}, first_devices(2)), Model({}, first_devices(1)), Model({}, std::nullopt)}) {
    const Model copy = model;
    Model moved = std::move(model);
    EXPECT_TRUE(throws<ls::ModuleError>([&] { model(x); }, "DataParallel", "moved from"));
    model = std::move(moved);
    EXPECT_TRUE(throws<ls::ModuleError>([&] { moved(x); }, "moved from"));
    for (const Model& each : {model, copy}) EXPECT_EQ(each(x).sizes(), x.sizes());
    Model& itself = model;
    model = std::move(itself);
    EXPECT_TRUE(throws<ls::ModuleError>([&] { model(x); }, "moved from"));
  }
  ls::DataParallelModel from{ls::nn::ReLU{}, first_devices(2)};
  const auto to = std::move(from);
  EXPECT_TRUE(throws<ls::ModuleError>([&] { from(x); }, "DataParallelModel", "moved from"));
  EXPECT_EQ(to(x).size(), 2U);
}

TEST(DataParallel, K03NoArgumentsAreOneCallOnTheFirstDevice) {
  struct Constant {
    ls::Tensor forward() const { return ls::ones({2, 3}); }
  };
  ls::DataParallel model{Constant{}, first_devices(2)};
  EXPECT_EQ(model().sizes(), (ls::Shape{2, 3}));
}

TEST(DataParallel, LabelsThatStayElsewhereAreAnErrorThatNamesTheOutputDevice) {
  ls::DataParallel model{L0{}, first_devices(2)};
  const ls::Tensor y = ls::zeros({5, 2}, {.dtype = ls::Dtype::f64, .device = "cpu:1"});
  EXPECT_TRUE(throws<ls::DeviceError>([&] { (void)ls::mse_loss(model(x5()), y); },
                                      "the input is on cpu:0, but the target is on cpu:1",
                                      "output_device()"));
  EXPECT_EQ(ls::mse_loss(model(x5()), y.to(model.output_device())).device(), ls::Device("cpu:0"));
}

TEST(DataParallel, APartIsOnItsDeviceAlsoIfThereIsOneDevice) {
  struct Pair {
    ls::Tensor a;
    ls::Tensor b;
  };
  struct Both {
    ls::Tensor forward(double, const Pair& x) const { return x.a + x.b; }
  };
  const ls::Tensor here = ls::ones({2}, {.device = "cpu:0"});
  ls::DataParallel one{Both{}, {"cpu:0"}};
  EXPECT_EQ(one(1.0, ls::Scattered<Pair>({{here, here}})).device(), ls::Device("cpu:0"));
  EXPECT_TRUE(throws<ls::DeviceError>(
      [&] {
        one(1.0, ls::Scattered<Pair>({{here, ls::ones({2})}}));
      },
      "args[1].b: part 0 is on cpu", "to be used on cpu:0"));
  ls::DataParallel two{Both{}, {"cpu:0", "cpu:1"}};
  const ls::Tensor there = here.to(ls::Device("cpu:1"));
  EXPECT_TRUE(throws<ls::DeviceError>(
      [&] {
        two(1.0, ls::Scattered<Pair>({{here, here}, {here, there}}));
      },
      "args[1].a: part 1 is on cpu:0", "to be used on cpu:1"));
  ls::DataParallel none{Both{}, std::nullopt};
  EXPECT_EQ(none(1.0, ls::Scattered<Pair>({{there, there}})).device(), ls::Device("cpu:1"));
}

TEST(DataParallel, AnElementOfAPartThatIsElsewhereIsNamedByItsPlace) {
  using Tuple = std::tuple<ls::Tensor, std::vector<ls::Tensor>>;
  struct First {
    ls::Tensor forward(const Tuple& x) const { return std::get<0>(x); }
  };
  const ls::Tensor here = ls::ones({2}, {.device = "cpu:0"});
  ls::DataParallel model{First{}, {"cpu:0"}};
  EXPECT_TRUE(throws<ls::DeviceError>(
      [&] {
        model(ls::Scattered<Tuple>({{here, {here, ls::ones({2})}}}));
      },
      "args[0][1][1]: part 0 is on cpu"));
}

TEST(DataParallel, ScatteredArgumentsAreTakenAsTheyAre) {
  ls::DataParallel model{L0{}, first_devices(2)};
  const auto chunks = ls::scatter(x5(), first_devices(2));
  const auto before = ls::comm::detail::copies_issued().load();
  EXPECT_EQ(model(chunks).to_vector<double>(), y5());
  // Two parameters to the second replica, two outputs gathered; no input.
  EXPECT_EQ(ls::comm::detail::copies_issued().load() - before, 4U);
  EXPECT_TRUE(throws<ls::ValueError>([&] { model(ls::Scattered<ls::Tensor>()); },
                                     "is scattered over 0 devices"));
}

TEST(DataParallel, OnlyWhatChangedIsCopiedAgain) {
  ls::DataParallel model{L0{}, first_devices(2)};
  const auto chunks = ls::scatter(x5(), first_devices(2));
  auto& copies = ls::comm::detail::copies_issued();
  const auto count = [&] {
    const auto before = copies.load();
    (void)model(chunks);
    return copies.load() - before - 2;  // the gather's two
  };
  EXPECT_EQ(count(), 2U);
  EXPECT_EQ(count(), 0U);
  {
    const ls::NoGradGuard guard;
    model.module().bias.add_(ls::ones({2}, {.dtype = ls::Dtype::f64, .device = "cpu:0"}));
  }
  EXPECT_EQ(count(), 1U);
  EXPECT_EQ(count(), 0U);
  EXPECT_EQ(model(chunks).to_vector<double>()[9], 5.5);
}

TEST(DataParallelModel, BackwardOfAnOutputWhoseReplicaWasOverwrittenIsAnError) {
  ls::DataParallelModel model{Affine41{}, first_devices(2)};
  const ls::Tensor x = ls::ones({2, 4}, {.dtype = ls::Dtype::f64});
  x.requires_grad_();
  const auto outputs = model(x);
  {
    const ls::NoGradGuard guard;
    model.module().weight.mul_(2);
  }
  (void)model(x);
  for (const ls::Tensor& output : outputs) {
    EXPECT_TRUE(throws<ls::AutogradError>([&] { output.sum().backward(); },
                                          "modified by an inplace operation"));
  }
}

TEST(DataParallel, AttributesAndModesAreSeenAtTheNextCall) {
  struct Scaled {
    double factor = 1;
    bool training = true;
    ls::Tensor forward(const ls::Tensor& x) const { return x * (training ? factor : -factor); }
  };
  ls::DataParallel model{Scaled{}, first_devices(2)};
  (void)model(x5());
  model.module().factor = 3;
  EXPECT_EQ(model(x5()).to_vector<double>()[0], 3);
  model.eval();
  EXPECT_EQ(model(x5()).to_vector<double>()[0], -3);
}

TEST(DataParallel, AModuleOnHostMemoryIsMovedInPlace) {
  L0 module;
  const ls::Parameter handle = module.weight;
  ls::DataParallel model{module, first_devices(2)};
  EXPECT_EQ(handle.device(), ls::Device("cpu:0"));
  EXPECT_TRUE(handle.is_same(model.module().weight));
}

TEST(DataParallel, X04BuffersThatTheFirstReplicaChangesStayChanged) {
  struct Counter {
    ls::Buffer count{f64({0}, {1})};
    ls::Tensor forward(const ls::Tensor& x) {
      count.add_(ls::ones_like(count));
      return x * count;
    }
  };
  ls::DataParallel model{Counter{}, first_devices(2)};
  for (int call = 1; call <= 3; ++call) {
    const Values y = model(x5()).to_vector<double>();
    EXPECT_EQ(y[0], call) << "replica 0";
    EXPECT_EQ(y[9], 2 * call) << "replica 1 starts from replica 0's count";
  }
  EXPECT_EQ(model.module().count.item(), 3);
}

TEST(DataParallel, TheSameSeedAndDevicesGiveTheSameBits) {
  const auto run = [] {
    ls::manual_seed(7);
    ls::DataParallel model{Affine41{}, first_devices(4)};
    const ls::Tensor x = ls::randn({13, 4}, {.dtype = ls::Dtype::f64});
    (model(x) * model(x)).sum().backward();
    return model.module().weight.grad().to_vector<double>();
  };
  const Values first = run();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(run(), first);
}

TEST(DataParallel, ANewLayoutOfAParameterIsSeenByAllReplicas) {
  ls::DataParallel model{L0{}, first_devices(2)};
  (void)model(x5());
  ls::Parameter& weight = model.module().weight;
  weight.set_data(weight.detach().t());
  const Values y = model(f64({1, 2, 1, 2}, {2, 2})).to_vector<double>();
  EXPECT_EQ((Values{y[0], y[1]}), (Values{y[2], y[3]}));
}

TEST(DataParallel, AnyConstantGoesToEveryReplica) {
  struct Choose {
    ls::Tensor forward(const ls::Tensor& x, bool negate, const std::string& name) const {
      return negate && name == "n" ? x * -1.0 : x;
    }
  };
  ls::DataParallel model{Choose{}, first_devices(2)};
  EXPECT_EQ(model(x5(), true, std::string("n")).to_vector<double>()[0], -1);
}

TEST(DataParallel, ScatteredAndPlainArgumentsMeetAlongAnyDim) {
  struct Sum {
    ls::Tensor forward(const ls::Tensor& a, const ls::Tensor& b) const { return a + b; }
  };
  ls::DataParallel model{Sum{}, first_devices(2), {.dim = 1}};
  const ls::Tensor x = f64({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(model(ls::scatter(x, first_devices(2), 1), x).to_vector<double>(),
            (Values{2, 4, 6, 8, 10, 12}));
}

TEST(DataParallel, PartsOfNothingMayHaveMoreRowsThanANumberHolds) {
  struct Fours {
    ls::Tensor forward(const ls::Tensor&, const ls::Tensor&) const { return ls::full({}, 4); }
  };
  const ls::DataParallelOptions mean{.scalar_outputs = ls::Reduction::mean};
  ls::DataParallel model{Fours{}, first_devices(2), mean};
  const ls::Scattered<ls::Tensor> parts({ls::zeros({INT64_MAX, 0}, {.device = "cpu:0"}),
                                         ls::zeros({INT64_MAX, 0}, {.device = "cpu:1"})});
  EXPECT_EQ(model(parts, ls::Tensor()).item(), 4);
  EXPECT_TRUE(throws<ls::ValueError>([&] { model(parts, ls::ones({2})); }, "args[1] has 2 rows"));
}

TEST(DataParallel, AnUndefinedTensorStaysUndefinedEverywhere) {
  struct Optional {
    ls::Tensor forward(const ls::Tensor& x, const ls::Tensor& mask) const {
      return mask.defined() ? x * mask : x;
    }
  };
  ls::DataParallel model{Optional{}, first_devices(2)};
  const auto nothing = ls::scatter(ls::Tensor(), first_devices(2));
  EXPECT_EQ(model(x5(), ls::Tensor()).to_vector<double>(), x5().to_vector<double>());
  EXPECT_EQ(model(x5(), nothing).to_vector<double>(), x5().to_vector<double>());
}

}  // namespace data_parallel_test
