// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/backend/host/host_stream.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/optim/adam.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <latch>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "optim/parameters.hpp"
#include "support/expect_error.hpp"

namespace lockstep {
namespace optimizer_test {

using namespace testing;

// Hands its argument through, and looks at it again on the way back.
struct Keep {
  static constexpr const char* name = "keep";
  Saved x = {};
  Tensor forward(const Tensor& input) {
    x = input;
    return input;
  }
  Tensor backward(const Backward& saved, const Tensor& grad) {
    (void)saved(x);
    return grad;
  }
};

// Makes a host stream as asynchronous as a GPU's, and holds it until `open`.
class HeldStream {
 public:
  explicit HeldStream(const Stream& stream)
      : stream_(static_cast<detail::HostStream&>(stream.state())) {
    stream_.set_mode(detail::HostStream::Mode::queued);
    stream_.submit([this] { gate_.wait(); });
  }
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;
  ~HeldStream() {
    open();
    stream_.set_mode(detail::HostStream::Mode::immediate);
  }
  void open() {
    if (!gate_.try_wait()) gate_.count_down();
  }

 private:
  detail::HostStream& stream_;
  std::latch gate_{1};
};

struct Layer {
  Parameter weight = make_parameter({1, 2});
  Parameter bias = make_parameter({3});
  Parameter tied = weight;
  Tensor forward(const Tensor& x) const { return x; }
};

TEST(Optimizer, TakesParametersOfAModuleOrPlainTensors) {
  const Layer layer;
  const optim::SGD of_module{parameters(layer), {.lr = 0.1}};
  EXPECT_EQ(of_module.parameters().size(), 2U);

  const Tensor tensor = make_vector({1}).requires_grad_();
  const optim::SGD of_tensors({tensor, layer.bias}, {.lr = 0.1});
  ASSERT_EQ(of_tensors.parameters().size(), 2U);
  EXPECT_TRUE(of_tensors.parameters()[0].is_same(tensor));
  EXPECT_TRUE(of_tensors.parameters()[1].is_same(layer.bias));
}

TEST(Optimizer, StepsOnceForAParameterThatIsListedTwice) {
  const Layer layer;
  optim::SGD sgd{std::vector{layer.weight, layer.bias, layer.tied}, {.lr = 1}};
  EXPECT_EQ(sgd.parameters().size(), 2U);
  give_gradient(layer.weight, {1, 1});
  sgd.step();
  EXPECT_EQ(values_of(layer.weight), (Values{0, 1}));
}

TEST(Optimizer, RefusesWhatCannotBeOptimised) {
  const Parameter good = make_parameter({1});
  EXPECT_EQ(message_of<ValueError>([] { optim::SGD{std::vector<Parameter>{}}; }),
            "SGD: the list of parameters is empty");
  EXPECT_EQ(message_of<ValueError>([&] {
              optim::SGD{std::vector{good, Parameter()}};
            }),
            "SGD: parameter 1 is undefined");
  const Tensor result = apply(Keep{}, good);
  EXPECT_NE(message_of<AutogradError>([&] {
              optim::Adam{std::vector{result}};
            }).find("Adam: parameter 0 of shape [1] is the result of a recorded operation"),
            std::string::npos);
}

TEST(Optimizer, LeavesAParameterWithoutGradientAsItIs) {
  const Layer layer;
  optim::Adam adam{parameters(layer)};
  give_gradient(layer.bias, {1});
  const std::uint64_t version = layer.weight.version();
  adam.step();
  EXPECT_EQ(values_of(layer.weight), (Values{1, 2}));
  EXPECT_EQ(layer.weight.version(), version);
  EXPECT_NE(values_of(layer.bias), Values{3});
}

TEST(Optimizer, StepsCountAsChanges) {
  const Parameter parameter = make_parameter({1});
  optim::SGD sgd{std::vector{parameter}};
  give_gradient(parameter, {1});
  const std::uint64_t before = parameter.version();
  sgd.step();
  EXPECT_GT(parameter.version(), before);
  EXPECT_TRUE(parameter.is_leaf());
  EXPECT_TRUE(parameter.requires_grad());

  const Tensor result = apply(Keep{}, parameter);
  sgd.step();
  EXPECT_THROW(result.backward(make_vector({1})), AutogradError)
      << "the graph needs the value before the step";
}

TEST(Optimizer, ZeroGradForgetsGradients) {
  const Parameter parameter = make_parameter({1});
  optim::SGD sgd{std::vector{parameter}};
  sgd.zero_grad();
  give_gradient(parameter, {5});
  sgd.zero_grad();
  EXPECT_FALSE(parameter.grad().defined());
}

TEST(Optimizer, ZeroGradCanZeroInPlace) {
  const Parameter parameter = make_parameter({1, 2});
  optim::SGD sgd{std::vector{parameter}};
  sgd.zero_grad(false);
  EXPECT_FALSE(parameter.grad().defined());
  give_gradient(parameter, {5, 6});
  const Tensor grad = parameter.grad();
  sgd.zero_grad(false);
  EXPECT_TRUE(parameter.grad().is_same(grad));
  EXPECT_EQ(values_of(grad), (Values{0, 0}));
}

TEST(Optimizer, ZeroGradZerosAGradientWithStridesInPlace) {
  const Parameter parameter{zeros({2, 2})};
  optim::SGD sgd{std::vector{parameter}};
  const Tensor grad = transpose(ones({2, 2}), 0, 1);
  parameter.set_grad(grad);
  sgd.zero_grad(false);
  EXPECT_TRUE(parameter.grad().is_same(grad));
  EXPECT_EQ(values_of(grad), (Values{0, 0, 0, 0}));
}

TEST(Optimizer, ZeroGradDoesNotWriteIntoARecordedGradient) {
  const Parameter parameter = make_parameter({1});
  optim::SGD sgd{std::vector{parameter}};
  const Tensor recorded = apply(Keep{}, make_parameter({5}));
  parameter.set_grad(recorded);
  sgd.zero_grad(false);
  EXPECT_FALSE(parameter.grad().requires_grad());
  EXPECT_EQ(values_of(parameter.grad()), Values{0});
  EXPECT_EQ(values_of(recorded), Values{5});
}

TEST(Optimizer, LearningRateCanBeSet) {
  const Parameter parameter = make_parameter({0});
  optim::SGD sgd{std::vector{parameter}, {.lr = 1}};
  give_gradient(parameter, {1});
  sgd.step();
  sgd.set_lr(0.5);
  EXPECT_EQ(sgd.lr(), 0.5);
  sgd.step();
  EXPECT_EQ(values_of(parameter), Values{-1.5});
  EXPECT_THROW(sgd.set_lr(-1), ValueError);
  EXPECT_THROW(sgd.set_lr(std::numeric_limits<double>::infinity()), ValueError);
  EXPECT_EQ(sgd.lr(), 0.5);
}

TEST(Optimizer, IsMovedAndNotCopied) {
  static_assert(!std::is_copy_constructible_v<optim::SGD>);
  static_assert(!std::is_copy_assignable_v<optim::Adam>);
  const Parameter parameter = make_parameter({0});
  optim::SGD sgd{std::vector{parameter}, {.lr = 1, .momentum = 1}};
  give_gradient(parameter, {1});
  sgd.step();
  optim::SGD moved = std::move(sgd);
  moved.step();
  EXPECT_EQ(values_of(parameter), Values{-3}) << "with the momentum of the first step";
  const auto refuses = [](const auto& use) {
    return throws<ValueError>(use, "SGD: it has been moved from");
  };
  EXPECT_TRUE(refuses([&] { sgd.step(); }));
  EXPECT_TRUE(refuses([&] { sgd.zero_grad(); }));
  EXPECT_TRUE(refuses([&] { (void)sgd.state_dict(); }));
  EXPECT_TRUE(refuses([&] { sgd.load_state_dict({}); }));
  EXPECT_TRUE(refuses([&] { (void)sgd.lr(); }));
  EXPECT_TRUE(refuses([&] { sgd.set_lr(2); }));
  EXPECT_TRUE(refuses([&] { sgd.add_param_group({.params = {parameter}}); }));
}

TEST(Optimizer, StaysValidWhenTheModuleIsMoved) {
  Layer still;
  Layer moving;
  optim::Adam of_still{parameters(still), {.lr = 0.1}};
  optim::Adam of_moving{parameters(moving), {.lr = 0.1}};
  for (const char* device : {"cpu", "cpu:1", "cpu:2", "cpu:2", "cpu"}) {
    to(moving, device);
    for (const Layer* layer : {&still, &moving}) {
      give_gradient(layer->weight, {0.5, -0.25});
      give_gradient(layer->bias, {2});
    }
    of_still.step();
    of_moving.step();
    EXPECT_EQ(moving.weight.device(), Device(device));
    EXPECT_EQ(values_of(moving.weight), values_of(still.weight)) << device;
    EXPECT_EQ(values_of(moving.bias), values_of(still.bias)) << device;
  }
}

TEST(Optimizer, StateFollowsToAnotherDtype) {
  const Parameter parameter = make_parameter({0}, Dtype::f32);
  optim::SGD sgd{std::vector{parameter}, {.lr = 1, .momentum = 0.5}};
  give_gradient(parameter, {1});
  sgd.step();
  parameter.set_data(make_vector({-1}, Dtype::f64));
  give_gradient(parameter, {1});
  sgd.step();
  EXPECT_EQ(values_of(parameter), Values{-2.5});
}

TEST(Optimizer, TakesStateOfAnotherLayout) {
  const Parameter parameter = make_parameter({0, 0, 0, 0});
  parameter.set_data(parameter.detach().reshape({2, 2}));
  optim::SGD sgd{std::vector{parameter}, {.lr = 1, .momentum = 1}};
  parameter.set_grad(zeros_like(parameter));
  sgd.step();
  const auto step_with = [&](const Tensor& velocity) {
    for (const NamedTensor& entry : sgd.state_dict()) {
      if (entry.name == "state.0.momentum_buffer") entry.tensor.set_data(velocity);
    }
    parameter.set_data(zeros_like(parameter));
    sgd.step();
    return parameter.reshape({4});
  };
  const Tensor counting = arange(4, parameter.options()).reshape({2, 2});
  EXPECT_EQ(values_of(step_with(counting.t())), (Values{0, -2, -1, -3}));
  EXPECT_EQ(values_of(step_with(counting[1].expand({2, 2}))), (Values{-2, -3, -2, -3}));
}

TEST(Optimizer, NamesAParameterWhoseShapeHasChangedAndChangesNothing) {
  const Parameter other = make_parameter({0});
  const Parameter parameter = make_parameter({0, 0});
  const auto changes_nothing = [&](auto optimizer, const std::string& name) {
    parameter.set_data(make_vector({0, 0}));
    give_gradient(parameter, {1, 1});
    give_gradient(other, {1});
    optimizer.step();
    const Values before = values_of(other);
    parameter.set_data(make_vector({1, 2, 3}));
    give_gradient(parameter, {1, 1, 1});
    EXPECT_EQ(message_of<ShapeError>([&] { optimizer.step(); }),
              name + ": parameter 1 had shape [2] when its state was made, and has [3] now");
    EXPECT_EQ(values_of(other), before);
  };
  const std::vector both{other, parameter};
  changes_nothing(optim::SGD(both, {.momentum = 0.5}), "SGD");
  changes_nothing(optim::Adam(both), "Adam");
}

TEST(Optimizer, ChangesNothingIfAGradientDoesNotFit) {
  const Parameter first = make_parameter({0});
  const Parameter second = make_parameter({0, 0});
  optim::SGD sgd{std::vector{first, second}, {.lr = 1}};
  give_gradient(first, {1});
  give_gradient(second, {1, 1});
  second.set_data(make_vector({1, 2, 3}));
  EXPECT_EQ(message_of<ShapeError>([&] { sgd.step(); }),
            "SGD: parameter 1 is of shape [3], but its gradient of shape [2]");
  second.set_data(make_vector({1, 2}, Dtype::f32));
  EXPECT_EQ(message_of<DtypeError>([&] { sgd.step(); }),
            "SGD: parameter 1 is of f32, but its gradient of f64");
  second.set_data(make_vector({1, 2}, Dtype::f64, "cpu:1"));
  EXPECT_EQ(message_of<DeviceError>([&] { sgd.step(); }),
            "SGD: parameter 1 is on cpu:1, but its gradient is on cpu");
  EXPECT_EQ(values_of(first), Values{0});
}

TEST(Optimizer, RefusesADtypeThatIsOnlyForStorage) {
  const Parameter parameter = make_parameter({0}, Dtype::bf16);
  optim::SGD sgd{std::vector{parameter}};
  give_gradient(parameter, {1});
  EXPECT_EQ(message_of<DtypeError>([&] { sgd.step(); }),
            "SGD: parameter 0 is of bf16: expected f32 or f64");
}

TEST(Optimizer, StepsDoNotWaitForTheDevice) {
  const Device device("cpu:1");
  const Parameter parameter = make_parameter({0, 0}, Dtype::f64, device);
  const Tensor first = make_vector({1, 2}, Dtype::f64, device);
  const Tensor second = make_vector({3, 4}, Dtype::f64, device);
  optim::SGD sgd{std::vector{parameter}, {.lr = 1, .momentum = 0.5}};
  {
    HeldStream held(default_stream(device));
    for (const Tensor& gradient : {first, second}) {
      parameter.set_grad(gradient);
      sgd.step();
      sgd.zero_grad();
    }
    EXPECT_FALSE(default_stream(device).query());
  }
  EXPECT_EQ(values_of(parameter), (Values{-4.5, -7}));
}

TEST(Optimizer, KeepsItsStateUntilAnotherStreamIsDone) {
  const Device device("cpu:1");
  const Parameter parameter = make_parameter({0}, Dtype::f64, device);
  give_gradient(parameter, {1});
  std::optional<optim::SGD> sgd(std::in_place, std::vector{parameter},
                                optim::SGDOptions{.lr = 1, .momentum = 1});
  sgd->step();
  const Stream other = pool_stream(device);
  {
    const HeldStream held(other);
    {
      const StreamGuard guard(other);
      sgd->step();
    }
    empty_cache(device);
    sgd.reset();
    const std::uint64_t fresh = memory_stats(device).fresh_allocations;
    const Tensor next = empty({1}, parameter.options());
    EXPECT_EQ(memory_stats(device).fresh_allocations, fresh + 1)
        << "the state's memory, which `other` still uses, was handed out";
  }
  EXPECT_EQ(values_of(parameter), Values{-3});
}

TEST(Optimizer, WritesIntoAParameterWithStrides) {
  const Tensor base = from_values(Values{1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor transposed = detail::make_view(base, {3, 2}, {1, 3}, 0).requires_grad_();
  optim::SGD sgd({transposed}, {.lr = 1, .momentum = 0.5});
  transposed.set_grad(from_values(Values{10, 20, 30, 40, 50, 60}, {3, 2}));
  const std::uint64_t version = base.version();
  sgd.step();
  EXPECT_EQ(values_of(base), (Values{-9, -28, -47, -16, -35, -54}));
  EXPECT_GT(base.version(), version);
}

TEST(Optimizer, RefusesAParameterWhoseElementsAreOneInMemory) {
  const Parameter one(zeros({1}, {.device = "cpu:0"}).expand({3}));
  optim::SGD sgd{std::vector{one}, {.lr = 1}};
  one.set_grad(arange(3, Dtype::f32).to("cpu:0"));
  EXPECT_TRUE(throws<ValueError>([&] { sgd.step(); }, "SGD", "parameter 0", "[3]",
                                 "the same element in memory"));
  EXPECT_EQ(one.to_vector<float>(), (std::vector<float>{0, 0, 0}));
}

TEST(Optimizer, TakesAGradientWithStrides) {
  const Parameter parameter(from_values(Values{0, 0, 0, 0}, {2, 2}));
  const Tensor gradient = from_values(Values{1, 2, 3, 4}, {2, 2});
  parameter.set_grad(detail::make_view(gradient, {2, 2}, {1, 2}, 0));
  optim::SGD sgd{std::vector{parameter}, {.lr = 1}};
  sgd.step();
  EXPECT_EQ(values_of(parameter), (Values{-1, -3, -2, -4}));
}

}  // namespace optimizer_test
}  // namespace lockstep
