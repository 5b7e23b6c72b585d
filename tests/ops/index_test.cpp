// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/index.hpp>

#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/scatter_gather.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/gradcheck.hpp"
#include "support/varied.hpp"

namespace lockstep {
namespace index_test {

using testing::expect_error;
using testing::gradcheck;
using testing::gradgradcheck;
using testing::varied;
using testing::varied_leaf;

using Indices = std::vector<std::int64_t>;

Tensor at(const Indices& indices, const Shape& shape) {
  return from_values(indices, shape, Device("cpu:0"));
}

TEST(IndexSelect, TakesTheSlicesThatAreNamed) {
  const Tensor x = varied({2, 3, 4});
  const Tensor turned = permute(varied({4, 2, 3}), {1, 2, 0});
  for (const Tensor& from : {x, turned}) {
    for (std::int64_t dim = 0; dim < 3; ++dim) {
      const Indices indices = {1, 0, 1, from.size(dim) - 1};
      const Tensor taken = index_select(from, dim, at(indices, {4}));
      ASSERT_EQ(taken.size(dim), 4);
      for (std::int64_t k = 0; k < 4; ++k) {
        EXPECT_EQ(select(taken, dim, k).to_vector<double>(),
                  select(from, dim, indices[static_cast<std::size_t>(k)]).to_vector<double>());
      }
    }
  }
  EXPECT_EQ(index_select(x, -1, at({}, {0})).sizes(), (Shape{2, 3, 0}));
  const Tensor none = narrow(x, 0, 0, 0).clone().requires_grad_();
  sum(index_select(none, 0, at({}, {0}))).backward();
  EXPECT_EQ(none.grad().sizes(), none.sizes());
  EXPECT_EQ(index_select(x, 1, at({2}, {1}).to(Dtype::i32)).to_vector<double>(),
            select(x, 1, 2).to_vector<double>());
}

TEST(IndexSelect, TakesEveryDtype) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16, Dtype::i64, Dtype::i32,
                            Dtype::u8, Dtype::boolean}) {
    const Tensor x = tensor({0.0F, 1.0F}).to(dtype);
    const Tensor index = tensor<std::int64_t>({1, 1, 0});
    EXPECT_EQ(index_select(x, 0, index).dtype(), dtype);
    EXPECT_EQ(index_select(x, 0, index).to(Dtype::f32).to_vector<float>(),
              (std::vector<float>{1, 1, 0}));
    EXPECT_EQ(gather(x, 0, index).to(Dtype::f32).to_vector<float>(), (std::vector<float>{1, 1, 0}));
  }
}

TEST(Gather, TakesTheElementThatEachIndexNames) {
  const Tensor x = varied({3, 4, 2});
  for (std::int64_t dim = 0; dim < 3; ++dim) {
    // As large as x and smaller, and longer along the dimension.
    for (const Shape& smaller : {Shape{3, 4, 2}, Shape{2, 3, 1}}) {
      Shape shape = smaller;
      shape[static_cast<std::size_t>(dim)] = 5;
      Indices indices(static_cast<std::size_t>(numel(shape)));
      for (std::size_t i = 0; i < indices.size(); ++i) {
        indices[i] = static_cast<std::int64_t>(i * 7 % 11) % x.size(dim);
      }
      const std::vector<double> taken = gather(x, dim, at(indices, shape)).to_vector<double>();
      const std::vector<double> values = x.to_vector<double>();
      std::size_t place = 0;
      for (std::int64_t i = 0; i < shape[0]; ++i) {
        for (std::int64_t j = 0; j < shape[1]; ++j) {
          for (std::int64_t k = 0; k < shape[2]; ++k, ++place) {
            std::int64_t from[] = {i, j, k};
            from[dim] = indices[place];
            EXPECT_EQ(taken[place],
                      values[static_cast<std::size_t>((from[0] * 4 + from[1]) * 2 + from[2])]);
          }
        }
      }
    }
  }
  EXPECT_EQ(gather(x, 1, at({}, {3, 0, 2})).sizes(), (Shape{3, 0, 2}));
  const Tensor turned = at({0, 1, 2, 0, 1, 2}, {2, 3}).t();
  EXPECT_EQ(gather(varied({3, 4}), 1, turned).to_vector<double>(),
            gather(varied({3, 4}), 1, turned.contiguous()).to_vector<double>());
}

TEST(Gather, IsNotTheOneThatJoinsDevices) {
  const std::vector<Tensor> parts = {varied({4, 2}).narrow(0, 0, 2),
                                     varied({4, 2}).narrow(0, 2, 2)};
  EXPECT_EQ(gather(parts, "cpu:0").to_vector<double>(), varied({4, 2}).to_vector<double>());
  EXPECT_EQ(gather(parts[0], 0, at({1}, {1, 1})).item(),
            select(varied({4, 2}), 0, 1).to_vector<double>()[0]);
}

TEST(Indices, GradientsOfAnElementAreAddedUp) {
  const Tensor x = zeros({3}, {.device = "cpu:0", .requires_grad = true});
  const Tensor grad = from_values<float>({1, 2, 3, 4}, {4}, Device("cpu:0"));
  index_select(x, 0, at({2, 0, 2, 2}, {4})).backward(grad);
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{2, 0, 8}));
  gather(x, 0, at({1, 1, 2, 1}, {4})).backward(grad);
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{2, 7, 11}));
  const Tensor half = zeros({3}, {.dtype = Dtype::bf16, .device = "cpu:0", .requires_grad = true});
  index_select(half, 0, at({1, 1}, {2})).sum().backward();
  gather(half, 0, at({1, 0}, {2})).sum().backward();
  EXPECT_EQ(half.grad().to(Dtype::f32).to_vector<float>(), (std::vector<float>{1, 3, 0}));
}

TEST(Indices, HaveFirstAndSecondDerivatives) {
  for (std::int64_t dim = 0; dim < 3; ++dim) {
    const Tensor few = at({1, 0, 1, 1, 0}, {5});
    const auto selected = [&](const Tensor& x) { return index_select(x * x, dim, few); };
    EXPECT_TRUE(gradcheck(selected, {varied_leaf({2, 3, 2})}));
    EXPECT_TRUE(gradgradcheck(selected, {varied_leaf({2, 3, 2})}));
    for (const Shape& shape : {Shape{2, 3, 2}, Shape{2, 2, 1}}) {
      Indices indices(static_cast<std::size_t>(numel(shape)));
      for (std::size_t i = 0; i < indices.size(); ++i) {
        indices[i] = static_cast<std::int64_t>(i * 5 % 3 % 2);
      }
      const Tensor index = at(indices, shape);
      const auto gathered = [&](const Tensor& x) { return gather(x * x, dim, index); };
      EXPECT_TRUE(gradcheck(gathered, {varied_leaf({2, 3, 2})}));
      EXPECT_TRUE(gradgradcheck(gathered, {varied_leaf({2, 3, 2})}));
    }
  }
}

TEST(Indices, OneOutsideIsNamedWithItsPlace) {
  const Tensor x = varied({2, 3});
  for (const std::int64_t wrong : {std::int64_t{3}, std::int64_t{-1}, std::int64_t{1} << 60}) {
    const std::string named = "index " + std::to_string(wrong);
    // On a GPU the error comes when the host waits for the values.
    expect_error<IndexError>(
        [&] {
          (void)index_select(x, 1, at({0, wrong}, {2})).sum().item();
        },
        {"index_select", named, "position 1", "3 elements", "0 to 2"});
    expect_error<IndexError>(
        [&] {
          (void)gather(x, 1, at({0, 2, 1, wrong}, {2, 2})).sum().item();
        },
        {"gather", named, "position 3", "3 elements"});
  }
}

TEST(Indices, RefuseOtherArguments) {
  const Tensor x = varied({2, 3});
  expect_error<DtypeError>([&] { index_select(x, 0, varied({1})); }, {"i64 or i32", "f64"});
  expect_error<ShapeError>([&] { index_select(x, 0, at({0}, {1, 1})); }, {"[n]", "[1, 1]"});
  expect_error<ShapeError>([&] { index_select(varied({}), 0, at({0}, {1})); }, {"no dimensions"});
  expect_error<IndexError>([&] { index_select(x, 2, at({0}, {1})); }, {"2"});
  expect_error<DeviceError>([&] { index_select(x, 0, at({0}, {1}).to("cpu:1")); }, {"cpu:1"});
  expect_error<DtypeError>([&] { gather(x, 0, x); }, {"i64 or i32", "f64"});
  expect_error<ShapeError>([&] { gather(x, 0, at({0}, {1})); }, {"gather", "[1]", "[2, 3]"});
  expect_error<ShapeError>([&] { gather(x, 0, at({0, 0, 0, 0}, {1, 4})); }, {"[1, 4]", "[2, 3]"});
  expect_error<ValueError>([&] { gather(x, 0, Tensor()); }, {"gather", "the index", "undefined"});
}

}  // namespace index_test
}  // namespace lockstep
