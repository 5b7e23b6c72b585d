// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/ops/matmul.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/print.hpp>

#include <gtest/gtest.h>

#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "module/layers.hpp"
#include "support/expect_error.hpp"

namespace lockstep {
namespace uninitialized_test {

using testing::throws;
using Values = std::vector<float>;

// A scale whose number of channels is not known yet.
struct Lazy {
  Parameter weight = Parameter::uninitialized();
  Parameter bias = testing::parameter({3});

  Tensor forward(const Tensor& x) const { return x * weight; }
};

struct Net {
  testing::Scale first;
  Lazy second;

  Tensor forward(const Tensor& x) const { return second.forward(x); }
};

TEST(Uninitialized, HasADtypeADeviceAndANameButNoShape) {
  const Parameter parameter =
      Parameter::uninitialized({.dtype = Dtype::f64, .device = "cpu:1"}, false);
  EXPECT_TRUE(parameter.is_uninitialized());
  EXPECT_TRUE(parameter.defined());
  EXPECT_EQ(parameter.dtype(), Dtype::f64);
  EXPECT_EQ(parameter.device(), Device("cpu:1"));
  EXPECT_FALSE(parameter.requires_grad());
  EXPECT_TRUE(Parameter::uninitialized().requires_grad());
  EXPECT_FALSE(Parameter().is_uninitialized());
  EXPECT_FALSE(testing::parameter({1}).is_uninitialized());
  const auto named = named_parameters(Net{});
  ASSERT_EQ(named.size(), 4U);
  EXPECT_EQ(named[2].name, "second.weight");
  EXPECT_TRUE(named[2].tensor.is_uninitialized());
  EXPECT_TRUE(throws<DtypeError>([] { Parameter::uninitialized({.dtype = Dtype::i64}); },
                                 "floating-point"));
}

TEST(Uninitialized, WhateverNeedsItsElementsIsAnError) {
  const Parameter lazy = Parameter::uninitialized({.dtype = Dtype::f32, .device = "cpu:1"});
  const Tensor x = ones({2, 2}, {.device = "cpu:1"});
  const std::vector<std::function<void()>> uses = {
      [&] { (void)lazy.sizes(); },
      [&] { (void)lazy.strides(); },
      [&] { (void)lazy.dim(); },
      [&] { (void)lazy.numel(); },
      [&] { (void)lazy.size(0); },
      [&] { (void)lazy.is_contiguous(); },
      [&] { (void)lazy.const_data_ptr<float>(); },
      [&] { (void)lazy.mutable_data_ptr<float>(); },
      [&] { (void)lazy.to_vector<float>(); },
      [&] { (void)lazy.item(); },
      [&] { (void)lazy.detach(); },
      [&] { (void)lazy.clone(); },
      [&] { (void)lazy.contiguous(); },
      [&] { (void)lazy.to(Device("cpu:0")); },
      [&] { (void)lazy.to(Dtype::f64); },
      [&] { (void)lazy.reshape({1}); },
      [&] { (void)lazy.flatten(); },
      [&] { (void)lazy.t(); },
      [&] { (void)lazy.narrow(0, 0, 1); },
      [&] { (void)lazy.sum(); },
      [&] { (void)(lazy * 2); },
      [&] { (void)(x + lazy); },
      [&] { (void)matmul(x, lazy); },
      [&] { (void)linear(x, lazy); },
      [&] { (void)linear(x, x, lazy); },
      [&] { lazy.backward(); },
      [&] { lazy.set_grad(x); },
      [&] { (void)Parameter(Tensor(lazy)); },
      [&] { (void)zeros_like(lazy); },
      [&] { (std::ostringstream() << lazy).str(); },
      [&] {
        const NoGradGuard guard;
        lazy.fill_(1);
      },
      [&] {
        const NoGradGuard guard;
        lazy.add_(x);
      },
      [&] {
        const NoGradGuard guard;
        x.copy_(lazy);
      },
  };
  for (std::size_t i = 0; i < uses.size(); ++i) {
    EXPECT_TRUE(
        throws<ModuleError>(uses[i], "uninitialized parameter of f32 on cpu:1", "call forward"))
        << "use " << i;
  }
  EXPECT_TRUE(lazy.is_uninitialized());
}

TEST(Uninitialized, MaterializesInPlace) {
  const Parameter lazy = Parameter::uninitialized({.dtype = Dtype::f64, .device = "cpu:1"});
  const Tensor handle = lazy;
  lazy.set_grad({});
  lazy.materialize({2, 3});
  EXPECT_FALSE(lazy.is_uninitialized());
  EXPECT_TRUE(handle.is_same(lazy));
  EXPECT_EQ(handle.sizes(), (Shape{2, 3}));
  EXPECT_EQ(handle.dtype(), Dtype::f64);
  EXPECT_EQ(handle.device(), Device("cpu:1"));
  EXPECT_TRUE(lazy.requires_grad());
  EXPECT_TRUE(lazy.is_leaf());
  (handle * 3).sum().backward();
  EXPECT_EQ(lazy.grad().to_vector<double>(), (std::vector<double>{3, 3, 3, 3, 3, 3}));
  EXPECT_TRUE(throws<ModuleError>([&] { lazy.materialize({1}); }, "initialized already"));
  EXPECT_TRUE(throws<ModuleError>([&] { Parameter().materialize({1}); }, "absent"));
}

TEST(Uninitialized, R17TheCheckNamesTheParameter) {
  const Net net;
  EXPECT_TRUE(throws<ModuleError>(
      [&] { detail::check_parameters(net); },
      "Modules with uninitialized parameters can't be used with `DataParallel`. Run a dummy "
      "forward pass to correctly initialize the modules",
      "second.weight"));
  net.second.weight.materialize({2});
  EXPECT_NO_THROW(detail::check_parameters(net));
}

// Its name is empty.
TEST(Uninitialized, TheCheckKnowsAParameterThatIsTheModule) {
  struct Weight : Parameter {
    Weight() : Parameter(Parameter::uninitialized()) {}
    Tensor forward(const Tensor& x) const { return x * *this; }
  };
  const Weight weight;
  EXPECT_TRUE(throws<ModuleError>([&] { detail::check_parameters(weight); }, "uninitialized"));
  weight.materialize({1});
  EXPECT_NO_THROW(detail::check_parameters(weight));
}

TEST(Uninitialized, ACopyOfTheModuleIsMaterializedWithIt) {
  const Net net;
  const Net copy = net;
  net.second.weight.materialize({2});
  EXPECT_EQ(copy.second.weight.sizes(), (Shape{2}));
}

TEST(Uninitialized, ZeroGradLeavesItAlone) {
  const Net net;
  zero_grad(net);
  EXPECT_TRUE(net.second.weight.is_uninitialized());
}

TEST(Uninitialized, MovesWithItsModule) {
  const Net net;
  const Tensor handle = net.second.weight;
  to(net, "cpu:1");
  EXPECT_TRUE(net.second.weight.is_uninitialized());
  EXPECT_TRUE(net.second.weight.requires_grad());
  net.second.weight.materialize({2});
  EXPECT_EQ(handle.sizes(), (Shape{2}));
  EXPECT_EQ(handle.device(), Device("cpu:1"));
}

TEST(Uninitialized, LoadingGivesItAShape) {
  const Net source;
  source.second.weight.set_data(tensor({5.0F, 6.0F}));
  const Net net;
  const Tensor handle = net.second.weight;
  load_state_dict(net, state_dict(source));
  EXPECT_EQ(handle.to_vector<float>(), (Values{5, 6}));
  EXPECT_TRUE(handle.requires_grad());
  EXPECT_NE(handle.const_data_ptr<float>(), source.second.weight.const_data_ptr<float>());
}

TEST(Uninitialized, TheStateDictListsIt) {
  const Net net;
  const StateDict dict = state_dict(net);
  ASSERT_EQ(dict.size(), 4U);
  EXPECT_EQ(dict[2].name, "second.weight");
  EXPECT_TRUE(detail::is_uninitialized(dict[2].tensor));
  // It fits what is uninitialised itself, and nothing else.
  const Net other;
  const LoadResult result = load_state_dict(other, dict);
  EXPECT_TRUE(result.missing.empty() && result.unexpected.empty());
  EXPECT_TRUE(other.second.weight.is_uninitialized());
  other.second.weight.materialize({2});
  EXPECT_TRUE(throws<ModuleError>([&] { load_state_dict(other, dict); }, "second.weight",
                                  "the dict's tensor is uninitialized"));
}

struct Tied {
  Parameter a = Parameter::uninitialized();
  Parameter b = a;
};

TEST(Uninitialized, ATiedOneTakesOneShape) {
  const Tied tied;
  EXPECT_TRUE(throws<ModuleError>(
      [&] {
        load_state_dict(tied, {{"a", tensor({1.0F})}, {"b", tensor({1.0F, 2.0F})}});
      },
      "b (the module's shape is [1], the dict's [2])"));
  EXPECT_TRUE(tied.a.is_uninitialized());
  load_state_dict(tied, {{"a", tensor({1.0F})}, {"b", tensor({2.0F})}});
  EXPECT_EQ(tied.a.to_vector<float>(), (Values{2}));
  EXPECT_TRUE(tied.a.is_same(tied.b));
}

TEST(Uninitialized, NothingIsMaterializedByALoadThatFails) {
  const Net net;
  StateDict dict = state_dict(net);
  dict[2].tensor = tensor({5.0F, 6.0F});
  dict[3].tensor = tensor({1.0F, 2.0F});
  EXPECT_TRUE(throws<ModuleError>([&] { load_state_dict(net, dict); }, "second.bias"));
  EXPECT_TRUE(net.second.weight.is_uninitialized());
}

}  // namespace uninitialized_test
}  // namespace lockstep
