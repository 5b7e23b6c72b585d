// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/data_parallel.hpp>

#include "parallel/property_support.hpp"
#include "support/devices.hpp"
#include "support/sanitizers.hpp"
#include "support/varied.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace ls = lockstep;
using ls::testing::all_close;
using ls::testing::first_devices;

namespace property_data_parallel_test {

using ls::testing::property::Random;

struct Layer {
  ls::Parameter weight;
  ls::Parameter bias;
};

struct Input {
  ls::Tensor x;
  std::tuple<ls::Tensor, double> shift;  // with its factor
};

struct Output {
  ls::Tensor y;
  std::map<std::string, std::vector<ls::Tensor>> hidden;
  std::optional<ls::Tensor> doubled;
};

// A perceptron, smooth so that rounding cannot change a branch.
struct Mlp {
  std::vector<Layer> layers;

  ls::Tensor forward(const ls::Tensor& x) const {
    ls::Tensor y = x;
    for (const Layer& layer : layers) y = ls::tanh(ls::linear(y, layer.weight, layer.bias));
    return y;
  }
  Output forward(const Input& input) const {
    const auto& [shift, factor] = input.shift;
    Output output;
    output.y = input.x + shift * factor;
    for (const Layer& layer : layers) {
      output.y = ls::tanh(ls::linear(output.y, layer.weight, layer.bias));
      output.hidden["activations"].push_back(output.y);
    }
    if (factor > 0) output.doubled = output.y * 2.0;
    return output;
  }
};

struct Case {
  explicit Case(Random& random)
      : devices(first_devices(random.between<std::size_t>(1, 8))), split(random.split()) {
    std::int64_t width = random.between<std::int64_t>(1, 6);
    const auto rows = random.between<std::int64_t>(1, 20);
    const ls::Shape shape{rows, width};
    input = {random.reals(shape).requires_grad_(),
             {random.reals(shape).requires_grad_(), random.real()}};
    for (int n = random.between(1, 3); n > 0; --n) {
      const auto next = random.between<std::int64_t>(1, 6);
      sizes.push_back({next, width});
      width = next;
    }
    for (const ls::Shape& size : sizes) {
      weights.push_back(random.reals(size));
      biases.push_back(random.reals({size[0]}));
    }
    loss_weights = random.reals({rows, width});
    output_device = first_devices(8)[random.between<std::size_t>(0, 7)];
  }

  // With parameters of its own each time.
  Mlp module() const {
    Mlp mlp;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      mlp.layers.push_back({ls::Parameter(weights[i].clone()), ls::Parameter(biases[i].clone())});
    }
    return mlp;
  }
  ls::DataParallelOptions options() const {
    return {.output_device = output_device, .split = split};
  }

  // The input's tensors as leaves of their own.
  Input fresh_input() const {
    const auto fresh = [](const ls::Tensor& x) { return x.detach().clone().requires_grad_(); };
    return {fresh(input.x), {fresh(std::get<0>(input.shift)), std::get<1>(input.shift)}};
  }

  ls::Tensor loss(const ls::Tensor& y) const { return ls::sum(y * loss_weights.to(y.device())); }
  ls::Tensor loss(const Output& output) const {
    ls::Tensor total = loss(output.y);
    for (const ls::Tensor& hidden : output.hidden.at("activations")) total = total + hidden.sum();
    return output.doubled ? total + ls::sum(*output.doubled) : total;
  }

  std::vector<ls::Device> devices;
  ls::Split split;
  Input input;
  std::vector<ls::Shape> sizes;
  std::vector<ls::Tensor> weights;
  std::vector<ls::Tensor> biases;
  ls::Tensor loss_weights;
  ls::Device output_device;
};

void expect_close(const ls::Tensor& a, const ls::Tensor& b) {
  ASSERT_EQ(a.defined(), b.defined());
  if (!a.defined()) return;
  EXPECT_TRUE(all_close(a, b, 1e-12, 1e-12));
}

void expect_same_gradients(const Mlp& a, const Mlp& b) {
  const auto of_a = ls::named_parameters(a);
  const auto of_b = ls::named_parameters(b);
  ASSERT_EQ(of_a.size(), of_b.size());
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    SCOPED_TRACE(of_a[i].name);
    ASSERT_TRUE(of_b[i].tensor.grad().defined());
    EXPECT_EQ(of_a[i].tensor.grad().device(), of_a[i].tensor.device());
    expect_close(of_a[i].tensor.grad(), of_b[i].tensor.grad());
  }
}

// Each case runs three steps of training, so that replicas are reused and get changed parameters;
// their gradients add up.
template <class GetInput, class Compare>
void check_against_one_device(const GetInput& get_input, const Compare& compare) {
  const std::size_t cases =
      std::min<std::size_t>(200, ls::testing::property::cases(ls::testing::kSanitizer ? 100 : 200));
  for (std::size_t i = 0; i < cases && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(ls::testing::property::name_of_case(i));
    Random random(i);
    const Case setup(random);
    Mlp expected = setup.module();
    ls::DataParallel model{setup.module(), setup.devices, setup.options()};
    ls::optim::SGD expected_sgd{ls::parameters(expected), {.lr = 0.01}};
    ls::optim::SGD sgd{model.parameters(), {.lr = 0.01}};
    for (int step = 0; step < 3; ++step) {
      const auto here = get_input(setup.fresh_input());
      const auto there = get_input(setup.fresh_input());
      const auto expected_output = expected.forward(here);
      const auto output = model(there);
      compare(output, expected_output, setup);
      setup.loss(expected_output).backward();
      setup.loss(output).backward();
      expect_same_gradients(model.module(), expected);
      if constexpr (requires { here.shift; }) {
        expect_close(there.x.grad(), here.x.grad());
        expect_close(std::get<0>(there.shift).grad(), std::get<0>(here.shift).grad());
      } else {
        expect_close(there.grad(), here.grad());
      }
      expected_sgd.step();
      sgd.step();
    }
  }
}

TEST(PropertyDataParallel, ManyDevicesAreLikeOne) {
  check_against_one_device(
      [](const Input& input) { return input.x; },
      [](const ls::Tensor& output, const ls::Tensor& expected, const Case& setup) {
        EXPECT_EQ(output.device(), setup.output_device);
        expect_close(output, expected);
      });
}

TEST(PropertyDataParallel, ManyDevicesAreLikeOneWithNestedInputsAndOutputs) {
  check_against_one_device([](const Input& input) { return input; },
                           [](const Output& output, const Output& expected, const Case& setup) {
                             EXPECT_EQ(output.y.device(), setup.output_device);
                             expect_close(output.y, expected.y);
                             const auto& hidden = output.hidden.at("activations");
                             ASSERT_EQ(hidden.size(), expected.hidden.at("activations").size());
                             for (std::size_t i = 0; i < hidden.size(); ++i) {
                               EXPECT_EQ(hidden[i].device(), setup.output_device);
                               expect_close(hidden[i], expected.hidden.at("activations")[i]);
                             }
                             ASSERT_EQ(output.doubled.has_value(), expected.doubled.has_value());
                             if (output.doubled) expect_close(*output.doubled, *expected.doubled);
                           });
}

}  // namespace property_data_parallel_test
