// SPDX-License-Identifier: Apache-2.0
#include <lockstep/tensor/print.hpp>

#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep {
namespace print_test {

TEST(Print, NumbersInBrackets) {
  EXPECT_EQ(detail::str(Tensor()), "tensor(undefined)");
  EXPECT_EQ(detail::str(scalar_tensor(3.0F)), "tensor(3.)");
  EXPECT_EQ(detail::str(arange(4).reshape({2, 2})), "tensor([[0, 1],\n        [2, 3]])");
  EXPECT_EQ(detail::str(arange(8).reshape({2, 2, 2})),
            "tensor([[[0, 1],\n         [2, 3]],\n\n        [[4, 5],\n         [6, 7]]])");
  EXPECT_EQ(detail::str(arange(4).reshape({2, 2}).t()), "tensor([[0, 2],\n        [1, 3]])");
  EXPECT_EQ(detail::str(tensor({true, false})), "tensor([ true, false])");
}

TEST(Print, RealNumbersShareOneFormat) {
  EXPECT_EQ(detail::str(tensor({1.0F, -2.0F})), "tensor([ 1., -2.])");
  EXPECT_EQ(detail::str(tensor({0.5F, 100.0F})), "tensor([  0.5000, 100.0000])");
  EXPECT_EQ(detail::str(tensor({-1.5F, 100.0F})), "tensor([ -1.5000, 100.0000])");
  EXPECT_EQ(detail::str(tensor({1e10F, 1.0F})), "tensor([1.0000e+10, 1.0000e+00])");
  EXPECT_EQ(detail::str(tensor({1000.0F, -0.0012F})), "tensor([ 1.0000e+03, -1.2000e-03])");
  EXPECT_EQ(detail::str(tensor({1.0F, 2000.0F, 0.0F})),
            "tensor([1.0000e+00, 2.0000e+03, 0.0000e+00])");
  EXPECT_EQ(detail::str(tensor({1.0F, 1000.0F})), "tensor([   1., 1000.])");
  EXPECT_EQ(detail::str(tensor({0.0F, 1e8F})), "tensor([        0., 100000000.])");
  EXPECT_EQ(detail::str(tensor({1e-4})), "tensor([0.0001], dtype=f64)");
  EXPECT_EQ(detail::str(tensor({1e-5F})), "tensor([1.0000e-05])");
  EXPECT_EQ(detail::str(tensor({std::nanf(""), -HUGE_VALF, 1.0F})), "tensor([ nan, -inf,   1.])");
  EXPECT_EQ(detail::str(tensor({HUGE_VALF, 1.5F})), "tensor([   inf, 1.5000])");
}

TEST(Print, WhatIsNotTheDefaultIsSaid) {
  EXPECT_EQ(detail::str(ones({1}, {.dtype = Dtype::f64, .device = "cpu:1", .requires_grad = true})),
            "tensor([1.], dtype=f64, device=cpu:1, requires_grad=true)");
  EXPECT_EQ(detail::str(ones({1}, {.dtype = Dtype::bf16})), "tensor([1.], dtype=bf16)");
  EXPECT_EQ(detail::str(zeros({0})), "tensor([])");
  EXPECT_EQ(detail::str(zeros({0}, {.dtype = Dtype::i64})), "tensor([], dtype=i64)");
  EXPECT_EQ(detail::str(zeros({0, 3})), "tensor([], size=[0, 3])");
  EXPECT_EQ(detail::str(zeros({2, 0})), "tensor([], size=[2, 0])");
  EXPECT_EQ(detail::str(zeros({INT64_MAX, 0})), "tensor([], size=[9223372036854775807, 0])");
}

TEST(Print, LargeTensorsAreShortened) {
  EXPECT_EQ(detail::str(arange(1001)), "tensor([   0,    1,    2,  ...,  998,  999, 1000])");
  EXPECT_EQ(detail::str(arange(1000)).find("..."), std::string::npos);
  EXPECT_EQ(detail::str(zeros({500, 4})),
            "tensor([[0., 0., 0., 0.],\n        [0., 0., 0., 0.],\n        [0., 0., 0., 0.],\n"
            "        ...,\n        [0., 0., 0., 0.],\n        [0., 0., 0., 0.],\n"
            "        [0., 0., 0., 0.]])");
  const Tensor one = zeros({1}, {.dtype = Dtype::i64});  // read where it is, and not written out
  EXPECT_EQ(detail::str(expand(one, {std::int64_t{1} << 50})), "tensor([0, 0, 0,  ..., 0, 0, 0])");
}

// The number of elements decides, whatever the rank, and then each dimension for itself.
TEST(Print, TensorsOfAnyRankAreShortenedAboveAThousandElements) {
  const auto dots = [](const Shape& shape) {
    const std::string text = detail::str(zeros(shape));
    std::size_t count = 0;
    for (auto at = text.find("..."); at != std::string::npos; at = text.find("...", at + 3))
      ++count;
    return count;
  };
  EXPECT_EQ(dots({10, 100}), 0U);
  EXPECT_EQ(dots({10, 10, 10}), 0U);
  EXPECT_EQ(dots({11, 100}), 7U);     // of six rows, and one for the others
  EXPECT_EQ(dots({2, 7, 100}), 14U);  // twice that
  EXPECT_EQ(dots({7, 7, 7, 7}), 1U + 6 + 36 + 216);
  EXPECT_EQ(dots({6, 6, 6, 6}), 0U);  // 1296 elements in short dimensions
}

}  // namespace print_test
}  // namespace lockstep
