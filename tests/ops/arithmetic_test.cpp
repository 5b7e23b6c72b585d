// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/arithmetic.hpp>

#include <lockstep/ops/shape.hpp>
#include <lockstep/tensor/random.hpp>

#include "support/expect_error.hpp"
#include "support/gradcheck.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace lockstep {
namespace arithmetic_test {

using testing::gradcheck;
using testing::gradgradcheck;
using testing::message_of;

constexpr TensorOptions kLeaf{.dtype = Dtype::f64, .device = {}, .requires_grad = true};

TEST(Arithmetic, ComputesElementByElement) {
  const Tensor a = tensor({1.0F, 2.0F, 3.0F});
  const Tensor b = tensor({4.0F, 5.0F, 8.0F});
  EXPECT_EQ((a + b).to_vector<float>(), (std::vector<float>{5, 7, 11}));
  EXPECT_EQ((a - b).to_vector<float>(), (std::vector<float>{-3, -3, -5}));
  EXPECT_EQ((a * b).to_vector<float>(), (std::vector<float>{4, 10, 24}));
  EXPECT_EQ((b / a).to_vector<float>(), (std::vector<float>{4, 2.5, 8.0F / 3}));
  EXPECT_EQ(add(a, b, 2).to_vector<float>(), (std::vector<float>{9, 12, 19}));
  EXPECT_EQ((-a).to_vector<float>(), (std::vector<float>{-1, -2, -3}));
}

TEST(Arithmetic, TakesNumbersOnEitherSide) {
  const Tensor a = tensor<double>({1, 2, 4});
  EXPECT_EQ((a + 1).to_vector<double>(), (std::vector<double>{2, 3, 5}));
  EXPECT_EQ((1 + a).to_vector<double>(), (std::vector<double>{2, 3, 5}));
  EXPECT_EQ((a - 1).to_vector<double>(), (std::vector<double>{0, 1, 3}));
  EXPECT_EQ((1 - a).to_vector<double>(), (std::vector<double>{0, -1, -3}));
  EXPECT_EQ((a * 3).to_vector<double>(), (std::vector<double>{3, 6, 12}));
  EXPECT_EQ((3 * a).to_vector<double>(), (std::vector<double>{3, 6, 12}));
  EXPECT_EQ((a / 3).to_vector<double>(), (std::vector<double>{1.0 / 3, 2.0 / 3, 4.0 / 3}));
  EXPECT_EQ((3 / a).to_vector<double>(), (std::vector<double>{3, 1.5, 0.75}));
}

TEST(Arithmetic, StretchesOperandsToACommonShape) {
  const Tensor matrix = arange(6).reshape({2, 3});
  const Tensor row = tensor<std::int64_t>({10, 20, 30});
  const Tensor column = tensor<std::int64_t>({100, 200}).reshape({2, 1});
  const auto values = [](const Tensor& x) { return x.to_vector<std::int64_t>(); };
  EXPECT_EQ(values(matrix + row), (std::vector<std::int64_t>{10, 21, 32, 13, 24, 35}));
  EXPECT_EQ(values(row - matrix), (std::vector<std::int64_t>{10, 19, 28, 7, 16, 25}));
  EXPECT_EQ(values(matrix + column), (std::vector<std::int64_t>{100, 101, 102, 203, 204, 205}));
  EXPECT_EQ(values(column - row), (std::vector<std::int64_t>{90, 80, 70, 190, 180, 170}));
  EXPECT_EQ((column * row).sizes(), (Shape{2, 3}));
  EXPECT_EQ(values(matrix * scalar_tensor<std::int64_t>(2)),
            (std::vector<std::int64_t>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ((zeros({0, 3}) + zeros({1, 3})).sizes(), (Shape{0, 3}));
}

TEST(Arithmetic, ReadsOperandsOfAnyStrides) {
  const Tensor a = arange(6).reshape({2, 3});
  const Tensor b = arange(6).reshape({3, 2});
  EXPECT_EQ((a.t() + b).to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 4, 3, 7, 6, 10}));
  EXPECT_EQ((a.t() + a.t()).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{0, 6, 2, 8, 4, 10}));
  const Tensor inner = a.narrow(1, 1, 2);
  EXPECT_EQ((inner * inner).to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 4, 16, 25}));
  EXPECT_EQ((-inner).to_vector<std::int64_t>(), (std::vector<std::int64_t>{-1, -2, -4, -5}));
}

// Every pattern of kept and stretched dimensions against the sum written out.
TEST(Arithmetic, StretchesAnyPatternOfDimensions) {
  const std::int64_t sizes[] = {2, 3, 4};
  for (unsigned pattern = 0; pattern < 64; ++pattern) {
    Shape shape_a;
    Shape shape_b;
    for (unsigned d = 0; d < 3; ++d) {
      shape_a.push_back((pattern >> d & 1U) != 0 ? 1 : sizes[d]);
      shape_b.push_back((pattern >> (d + 3) & 1U) != 0 ? 1 : sizes[d]);
    }
    const std::vector<std::int64_t> a = arange(numel(shape_a)).to_vector<std::int64_t>();
    const std::vector<std::int64_t> b = arange(numel(shape_b)).to_vector<std::int64_t>();
    const Tensor sum = from_values(a, shape_a) + from_values(b, shape_b) * 100;
    std::vector<std::int64_t> expected;
    const auto at = [](const Shape& shape, std::int64_t i, std::int64_t j, std::int64_t k) {
      const std::int64_t plane = shape[0] == 1 ? 0 : i;
      const std::int64_t row = shape[1] == 1 ? 0 : j;
      return static_cast<std::size_t>((plane * shape[1] + row) * shape[2] +
                                      (shape[2] == 1 ? 0 : k));
    };
    for (std::int64_t i = 0; i < sum.size(0); ++i) {
      for (std::int64_t j = 0; j < sum.size(1); ++j) {
        for (std::int64_t k = 0; k < sum.size(2); ++k) {
          expected.push_back(a[at(shape_a, i, j, k)] + 100 * b[at(shape_b, i, j, k)]);
        }
      }
    }
    EXPECT_EQ(sum.to_vector<std::int64_t>(), expected) << shape_a << " and " << shape_b;
  }
}

TEST(Arithmetic, IntegersWrapAround) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ((tensor({kMost}) + 1).item<std::int64_t>(), kLeast);
  EXPECT_EQ((-tensor({kLeast})).item<std::int64_t>(), kLeast);
  EXPECT_EQ((tensor({kMost}) - kLeast).item<std::int64_t>(), -1);
  const Tensor small = tensor<std::int32_t>({65536});
  EXPECT_EQ((small * small).item<std::int32_t>(), 0);
}

TEST(Arithmetic, GradientsAgreeWithFiniteDifferences) {
  const std::vector<std::vector<Shape>> cases = {{{2, 3}, {2, 3}},    {{2, 3}, {3}},
                                                 {{2, 1}, {1, 3}},    {{}, {2, 2}},
                                                 {{2, 3, 2}, {3, 1}}, {{1, 1}, {4}}};
  for (const std::vector<Shape>& shapes : cases) {
    SCOPED_TRACE(::testing::Message() << shapes[0] << " and " << shapes[1]);
    const std::vector<Tensor> x = {rand(shapes[0], kLeaf, 1, 2), rand(shapes[1], kLeaf, 1, 2)};
    const auto sum = [](const Tensor& a, const Tensor& b) { return add(a, b, 0.7); };
    const auto difference = [](const Tensor& a, const Tensor& b) { return a - b; };
    const auto product = [](const Tensor& a, const Tensor& b) { return a * b; };
    const auto quotient = [](const Tensor& a, const Tensor& b) { return a / b; };
    EXPECT_TRUE(gradcheck(sum, x));
    EXPECT_TRUE(gradcheck(difference, x));
    EXPECT_TRUE(gradcheck(product, x));
    EXPECT_TRUE(gradcheck(quotient, x));
    EXPECT_TRUE(gradgradcheck(sum, x));
    EXPECT_TRUE(gradgradcheck(difference, x));
    EXPECT_TRUE(gradgradcheck(product, x));
    EXPECT_TRUE(gradgradcheck(quotient, x));
  }
}

TEST(Arithmetic, GradientsWithNumbersAgreeWithFiniteDifferences) {
  const std::vector<Tensor> x = {rand({2, 3}, kLeaf, 1, 2)};
  const auto all = [](const Tensor& a) {
    return std::vector<Tensor>{a + 2, 2 - a, a - 2, a * 3, a / 3, 3 / a, -a};
  };
  EXPECT_TRUE(gradcheck(all, x));
  EXPECT_TRUE(gradgradcheck(all, x));
}

TEST(Arithmetic, OneTensorOnBothSidesGetsBothGradients) {
  const Tensor x = tensor<double>({3}).requires_grad_();
  (x * x + x / x - x).backward();
  EXPECT_EQ(x.grad().item(), 5);
}

TEST(Arithmetic, AConstantFactorMayChangeAfterwards) {
  const Tensor x = tensor<double>({3}).requires_grad_();
  const Tensor factor = tensor<double>({2});
  const Tensor y = factor * 5 * x;
  factor.mark_changed();
  y.backward();
  EXPECT_EQ(x.grad().item(), 10);
}

TEST(Arithmetic, OperandsThatDoNotFitAreNamed) {
  EXPECT_EQ(message_of<ShapeError>([] {
              (void)(zeros({2, 3}) + zeros({2, 4}));
            }),
            "add: a tensor of shape [2, 3] and one of shape [2, 4] do not fit: sizes 3 and 4 differ"
            " at dimension 1 and neither is 1");
  EXPECT_EQ(message_of<DtypeError>([] { (void)(zeros({2}) * zeros({2}, {.dtype = Dtype::f64})); }),
            "mul: the first operand is of dtype f32, but the second operand of f64; "
            ".to(Dtype::f64) converts one to the other's");
  EXPECT_EQ(message_of<DtypeError>([] { (void)(zeros({2}) * zeros({2}, {.dtype = Dtype::u8})); }),
            "mul: the first operand is of dtype f32, but the second operand of u8; "
            ".to(Dtype::f32) converts one to the other's");
  const auto of_bytes = [](Dtype a, Dtype b) {
    return message_of<DtypeError>([&] { (void)(zeros({2}, a) + zeros({2}, b)); });
  };
  EXPECT_NE(of_bytes(Dtype::u8, Dtype::boolean).find(".to(Dtype::u8)"), std::string::npos);
  EXPECT_NE(of_bytes(Dtype::boolean, Dtype::u8).find(".to(Dtype::u8)"), std::string::npos);
  EXPECT_EQ(message_of<DeviceError>([] { (void)(zeros({2}) - zeros({2}, {.device = "cpu:1"})); }),
            "sub: the first operand is on cpu, but the second operand is on cpu:1; to() moves one "
            "to the other's (what a DataParallel returns is on its output_device(); plain Tensor "
            "members of a module, layers that its visit_members leaves out, and what a lambda or a "
            "std::function has captured, are neither moved nor replicated)");
  EXPECT_EQ(message_of<DtypeError>([] { (void)(arange(2) / arange(2)); }),
            "div: expected f32 or f64, got i64");
  EXPECT_EQ(message_of<DtypeError>([] { (void)(arange(2) + 0.5); }),
            "add: the number 0.5 does not fit a tensor of i64; convert the tensor first, with"
            " to(Dtype::f32)");
  EXPECT_EQ(message_of<DtypeError>([] { (void)(arange(2) - 0.5); }),
            "sub: the number 0.5 does not fit a tensor of i64; convert the tensor first, with"
            " to(Dtype::f32)");
  EXPECT_EQ(message_of<DtypeError>([] {
              (void)(zeros({1}, {.dtype = Dtype::boolean}) + zeros({1}, {.dtype = Dtype::boolean}));
            }),
            "add: expected f32, f64, i64 or i32, got bool");
  EXPECT_THROW((void)(zeros({1}) + Tensor()), ValueError);
  EXPECT_THROW((void)(arange(1) * std::nan("")), DtypeError);
  EXPECT_THROW((void)(arange(1) * 1e300), DtypeError);
}

TEST(Arithmetic, ResultsStayOnTheDevice) {
  const Tensor a = ones({3}, {.device = "cpu:2"});
  EXPECT_EQ((a + a * 2).device(), Device("cpu:2"));
  EXPECT_EQ((a + a * 2).to_vector<float>(), (std::vector<float>{3, 3, 3}));
}

}  // namespace arithmetic_test
}  // namespace lockstep
