// SPDX-License-Identifier: Apache-2.0
#include <lockstep/error.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/cat.hpp>
#include <lockstep/ops/compare.hpp>
#include <lockstep/ops/dropout.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/layer_norm.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/ops/loss.hpp>
#include <lockstep/ops/matmul.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/pooling.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/softmax.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

// An undefined tensor, which a moved-from module is full of, is named by the operation that comes
// to it.
namespace lockstep {
namespace undefined_test {

using testing::throws;

struct Case {
  std::string operation;
  std::string argument;
  std::function<void(const Tensor& none, const Tensor& x)> call;
};

TEST(Undefined, TheOperationAndTheArgumentAreNamed) {
  const std::vector<Case> cases = {
      {"add", "the second operand", [](auto& none, auto& x) { (void)(x + none); }},
      {"mul", "the first operand", [](auto& none, auto& x) { (void)(none * x); }},
      {"matmul", "the second", [](auto& none, auto& x) { (void)matmul(x, none); }},
      {"linear", "the weight", [](auto& none, auto& x) { (void)linear(x, none, none); }},
      {"cross_entropy", "the target", [](auto& none, auto& x) { (void)cross_entropy(x, none); }},
      {"mse_loss", "the input", [](auto& none, auto& x) { (void)mse_loss(none, x); }},
      {"cat", "tensor number 1",
       [](auto& none, auto& x) {
         (void)cat({x, none});
       }},
      {"stack", "tensor number 0",
       [](auto& none, auto& x) {
         (void)stack({none, x});
       }},
      {"sum", "the tensor", [](auto& none, auto&) { (void)none.sum(); }},
      {"mean", "the tensor", [](auto& none, auto&) { (void)none.mean(); }},
      {"reshape", "the tensor", [](auto& none, auto&) { (void)none.reshape({1}); }},
      {"flatten", "the tensor", [](auto& none, auto&) { (void)none.flatten(); }},
      {"argmax", "the tensor", [](auto& none, auto&) { (void)argmax(none, 0); }},
      {"softmax", "the input", [](auto& none, auto&) { (void)softmax(none, 0); }},
      {"layer_norm", "the tensor", [](auto& none, auto&) { (void)layer_norm(none, {3}); }},
      {"dropout", "the input", [](auto& none, auto&) { (void)dropout(none, 0.5); }},
      {"max_pool2d", "the input",
       [](auto& none, auto&) {
         (void)max_pool2d(none, {2, 2});
       }},
      {"to", "the tensor", [](auto& none, auto&) { (void)none.to("cpu:1"); }},
      {"add_", "the tensor", [](auto& none, auto& x) { none.add_(x); }},
      {"add_", "the other tensor", [](auto& none, auto& x) { x.add_(none); }},
      {"lt", "the second operand", [](auto& none, auto& x) { (void)lt(x, none); }},
      {"gt", "the tensor", [](auto& none, auto&) { (void)gt(none, 0); }},
      {"clamp", "the tensor", [](auto& none, auto&) { (void)clamp(none, 0); }},
      {"relu", "the tensor", [](auto& none, auto&) { (void)relu(none); }},
      {"clone", "the tensor", [](auto& none, auto&) { (void)none.clone(); }},
  };
  for (const Case& each : cases) {
    EXPECT_TRUE(throws<ValueError>(
        [&] {
          each.call(Tensor(), ones({2, 3}));
        },
        each.operation + ": ", each.argument, "undefined"))
        << each.operation;
  }
}

TEST(Undefined, AMovedFromModuleSaysSo) {
  nn::Linear module{3, 4};
  const nn::Linear taken = std::move(module);
  EXPECT_TRUE(throws<ValueError>(
      [&] {
        (void)module(ones({2, 3}));
      },
      "linear: ", "the weight", "moved from"));
  EXPECT_EQ(taken(ones({2, 3})).size(1), 4);
}

TEST(Undefined, WithoutAnOperationTheTensorAloneIsSpokenOf) {
  EXPECT_TRUE(throws<OperandError>([] { (void)Tensor().sizes(); }, "undefined", "moved from"));
}

}  // namespace undefined_test
}  // namespace lockstep
