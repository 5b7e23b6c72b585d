// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/parameter.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <type_traits>

namespace lockstep {
namespace parameter_test {

TEST(Parameter, RequiresGradAndSharesTheTensorsMemory) {
  const Tensor data = tensor({1.0F, 2.0F});
  const Parameter parameter(data);
  EXPECT_TRUE(parameter.requires_grad());
  EXPECT_TRUE(parameter.is_leaf());
  EXPECT_FALSE(data.requires_grad());
  EXPECT_FALSE(parameter.is_same(data));
  EXPECT_EQ(parameter.const_data_ptr<float>(), data.const_data_ptr<float>());
}

TEST(Parameter, CanBeFrozen) {
  const Parameter parameter(tensor({1.0F}), false);
  EXPECT_FALSE(parameter.requires_grad());
}

TEST(Parameter, IsAbsentByDefault) {
  EXPECT_FALSE(Parameter().defined());
  EXPECT_FALSE(Parameter(Tensor()).defined());
  EXPECT_FALSE(Buffer().defined());
}

TEST(Parameter, CopiesAreTheSameParameter) {
  const Parameter parameter(tensor({1.0F}));
  const Parameter copy = parameter;
  EXPECT_TRUE(copy.is_same(parameter));
  const Tensor as_tensor = parameter;
  EXPECT_TRUE(as_tensor.is_same(parameter));
}

TEST(Parameter, IntegersCannotRequireGradients) {
  const Tensor integers = arange(3);
  EXPECT_THROW(Parameter{integers}, DtypeError);
  EXPECT_FALSE(Parameter(integers, false).requires_grad());
}

TEST(Parameter, IsNotMadeFromATensorByAccident) {
  static_assert(!std::is_convertible_v<Tensor, Parameter>);
  static_assert(!std::is_convertible_v<Tensor, Buffer>);
  static_assert(!std::is_assignable_v<Parameter&, Tensor>);
  static_assert(std::is_convertible_v<Parameter, Tensor>);
}

TEST(Buffer, IsTheTensorItIsMadeFrom) {
  const Tensor data = tensor({1.0F});
  const Buffer buffer(data);
  EXPECT_TRUE(buffer.is_same(data));
  EXPECT_FALSE(buffer.requires_grad());
}

}  // namespace parameter_test
}  // namespace lockstep
