// SPDX-License-Identifier: Apache-2.0
#include <lockstep/tensor/tensor.hpp>

#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "support/expect_error.hpp"

namespace lockstep {
namespace tensor_test {

using testing::throws;

// Its value, or whether it is defined? LibTorch's are none either.
static_assert(!std::is_constructible_v<bool, Tensor>);

// A program's own function of the name, which takes a Tensor among others.
bool check(bool holds, const std::string& /*what*/, const Tensor& /*of*/) { return holds; }

TEST(Tensor, AProgramsOwnCheckIsTheOneThatItCalls) { EXPECT_FALSE(check(false, "text", Tensor())); }

TEST(Tensor, UndefinedTensorsSaySo) {
  const Tensor none;
  EXPECT_FALSE(none.defined());
  EXPECT_TRUE(none.is_same(Tensor()));
  EXPECT_THROW((void)none.sizes(), ValueError);
  EXPECT_THROW((void)none.requires_grad(), ValueError);
  EXPECT_THROW((void)none.detach(), ValueError);
  EXPECT_THROW(none.set_data(ones({1})), ValueError);
  EXPECT_THROW(ones({1}).set_data(none), ValueError);
}

TEST(Tensor, HandlesNameOneVariable) {
  const Tensor a = ones({2, 3}, {.dtype = Dtype::f64, .device = "cpu:1"});
  const Tensor b = a;
  EXPECT_TRUE(a.is_same(b));
  EXPECT_FALSE(a.is_same(a.detach()));
  EXPECT_EQ(a.sizes(), (Shape{2, 3}));
  EXPECT_EQ(a.size(-1), 3);
  EXPECT_EQ(a.strides(), (Shape{3, 1}));
  EXPECT_EQ(a.dim(), 2);
  EXPECT_EQ(a.numel(), 6);
  EXPECT_EQ(a.dtype(), Dtype::f64);
  EXPECT_EQ(a.device(), Device("cpu:1"));
  EXPECT_THROW((void)a.size(2), IndexError);
  EXPECT_THROW((void)scalar_tensor(1.0F).size(0), IndexError);
}

TEST(Tensor, PointersAreOfTheTensorsDtype) {
  const Tensor a = arange(3);
  EXPECT_EQ(a.const_data_ptr<std::int64_t>()[2], 2);
  EXPECT_TRUE(throws<DtypeError>([&] { (void)a.to_vector<float>(); },
                                 "data pointer of f32 asked of a tensor of i64: name its own type",
                                 ".to(Dtype::f32)"));
  EXPECT_THROW((void)a.mutable_data_ptr<double>(), DtypeError);
  EXPECT_EQ(a.narrow(0, 1, 2).const_data_ptr<std::int64_t>()[0], 1);
}

TEST(Tensor, WritesAreCountedForAllViews) {
  const Tensor a = zeros({4});
  const Tensor view = a.narrow(0, 1, 2);
  const std::uint64_t before = a.version();
  (void)a.const_data_ptr<float>();
  EXPECT_EQ(a.version(), before);
  (void)view.mutable_data_ptr<float>();
  EXPECT_EQ(a.version(), before + 1);
  a.mark_changed();
  EXPECT_EQ(view.version(), before + 2);
  EXPECT_EQ(a.detach().version(), before + 2);
}

TEST(Tensor, SetDataReplacesTheMemoryOfEveryHandle) {
  const Tensor parameter = ones({2}, {.requires_grad = true});
  const Tensor handle = parameter;
  parameter.set_data(arange(3, {.dtype = Dtype::f64, .device = "cpu:1"}));
  EXPECT_EQ(handle.to_vector<double>(), (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(handle.device(), Device("cpu:1"));
  EXPECT_TRUE(handle.requires_grad());
  EXPECT_THROW((handle * 2).set_data(ones({3})), AutogradError);
}

TEST(Tensor, OnlyFloatsRequireGrad) {
  EXPECT_THROW(arange(3).requires_grad_(), DtypeError);
  EXPECT_THROW((void)zeros({1}, {.dtype = Dtype::boolean, .requires_grad = true}), DtypeError);
  EXPECT_TRUE(zeros({1}, {.dtype = Dtype::bf16}).requires_grad_().requires_grad());
  EXPECT_FALSE(zeros({1}).requires_grad_().requires_grad_(false).requires_grad());
  const Tensor computed = zeros({1}, {.requires_grad = true}) * 2;
  EXPECT_THROW(computed.requires_grad_(false), AutogradError);
  EXPECT_TRUE(computed.requires_grad_().requires_grad());
  const Tensor trained = zeros({3}, {.requires_grad = true});
  EXPECT_THROW(trained.set_data(arange(3)), DtypeError);
  EXPECT_EQ(trained.dtype(), Dtype::f32);
  EXPECT_NO_THROW(zeros({3}).set_data(arange(3)));
}

TEST(Tensor, AGradientFitsItsTensor) {
  const Tensor a = zeros({2}, {.requires_grad = true});
  EXPECT_FALSE(a.grad().defined());
  a.set_grad(ones({2}));
  EXPECT_EQ(a.grad().to_vector<float>(), (std::vector<float>{1, 1}));
  EXPECT_THROW(a.set_grad(ones({3})), ShapeError);
  EXPECT_THROW(a.set_grad(ones({2}, {.dtype = Dtype::f64})), DtypeError);
  EXPECT_THROW(a.set_grad(ones({2}, {.device = "cpu:0"})), DeviceError);
  a.set_grad({});
  EXPECT_THROW(Tensor().set_grad({}), ValueError);
  EXPECT_FALSE(a.grad().defined());
}

TEST(Tensor, ContiguityOfViews) {
  const Tensor a = zeros({3, 4});
  EXPECT_TRUE(a.is_contiguous());
  EXPECT_FALSE(a.t().is_contiguous());
  EXPECT_TRUE(a.narrow(0, 1, 2).is_contiguous());
  EXPECT_FALSE(a.narrow(1, 1, 2).is_contiguous());
  EXPECT_TRUE(a.narrow(0, 1, 1).narrow(1, 0, 2).is_contiguous());
  EXPECT_TRUE(a.t().narrow(0, 0, 0).is_contiguous());
  EXPECT_TRUE(zeros({1, 4}).t().is_contiguous());
}

TEST(Tensor, ADeviceThatDoesNotExistIsAnError) {
  EXPECT_THROW((void)zeros({1}, {.device = "cpu:99"}), DeviceError);
}

}  // namespace tensor_test
}  // namespace lockstep
