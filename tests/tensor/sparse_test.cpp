// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/variable.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/matmul.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/print.hpp>
#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/sparse_sum.hpp>

#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>
#include <vector>

namespace lockstep {
namespace sparse_test {

using testing::throws;
using Values = std::vector<double>;
using Numbers = std::vector<std::int64_t>;

const Device kDevice = "cpu:0";

Tensor rows(const Numbers& numbers) {
  return from_values(numbers, {1, static_cast<std::int64_t>(numbers.size())}, kDevice);
}
Tensor numbers(const Values& values, const Shape& shape) {
  return from_values(values, shape, kDevice);
}
// Rows 2, 0 and 2 of four.
Tensor sample() {
  return sparse_coo_tensor(rows({2, 0, 2}), numbers({1, 2, 3, 4, 5, 6}, {3, 2}), {4, 2});
}

TEST(Sparse, HasAShapeAndADenseForm) {
  const Tensor tensor = sample();
  EXPECT_TRUE(tensor.is_sparse());
  EXPECT_EQ(tensor.sizes(), (Shape{4, 2}));
  EXPECT_EQ(tensor.size(-1), 2);
  EXPECT_EQ(tensor.numel(), 8);
  EXPECT_EQ(tensor.dtype(), Dtype::f64);
  EXPECT_EQ(tensor.device(), kDevice);
  EXPECT_FALSE(tensor.requires_grad());
  EXPECT_EQ(tensor.to_dense().to_vector<double>(), (Values{3, 4, 0, 0, 6, 8, 0, 0}));
  EXPECT_TRUE(tensor.detach().is_same(tensor));

  const Tensor dense = ones({2}, {.device = kDevice});
  EXPECT_FALSE(dense.is_sparse());
  EXPECT_TRUE(dense.to_dense().is_same(dense));
}

TEST(Sparse, CoalescedListsEachRowOnceInOrder) {
  const Tensor tensor = sample();
  EXPECT_FALSE(tensor.is_coalesced());
  EXPECT_TRUE(throws<ValueError>([&] { (void)tensor.indices(); },
                                 "Cannot get indices on an uncoalesced tensor, please call "
                                 ".coalesce() first"));
  EXPECT_TRUE(throws<ValueError>([&] { (void)tensor.values(); }, "Cannot get values"));
  const Tensor coalesced = tensor.coalesce();
  EXPECT_TRUE(coalesced.is_coalesced());
  EXPECT_EQ(coalesced.indices().sizes(), (Shape{1, 2}));
  EXPECT_EQ(coalesced.indices().to_vector<std::int64_t>(), (Numbers{0, 2}));
  EXPECT_EQ(coalesced.values().to_vector<double>(), (Values{3, 4, 6, 8}));
  EXPECT_TRUE(coalesced.coalesce().is_same(coalesced));
  EXPECT_EQ(coalesced.to_dense().to_vector<double>(), tensor.to_dense().to_vector<double>());
}

TEST(Sparse, RowsMayHaveAnyShapeAndMayBeMissing) {
  const Tensor one = sparse_coo_tensor(rows({1, 1}), numbers({1, 2}, {2}), {3});
  EXPECT_EQ(one.to_dense().to_vector<double>(), (Values{0, 3, 0}));
  const Tensor cube = sparse_coo_tensor(rows({1}), numbers({1, 2, 3, 4}, {1, 2, 2}), {2, 2, 2});
  EXPECT_EQ(cube.to_dense().to_vector<double>(), (Values{0, 0, 0, 0, 1, 2, 3, 4}));
  EXPECT_TRUE(cube.is_coalesced());
  const Tensor none = sparse_coo_tensor(rows({}), numbers({}, {0, 2}), {3, 2});
  EXPECT_EQ(none.to_dense().to_vector<double>(), Values(6, 0.0));
  EXPECT_EQ(none.coalesce().indices().numel(), 0);
  const Tensor no_rows = sparse_coo_tensor(rows({}), numbers({}, {0, 2}), {0, 2});
  EXPECT_EQ(no_rows.to_dense().sizes(), (Shape{0, 2}));
}

TEST(Sparse, HasCopiesOfWhatItIsMadeOf) {
  const Tensor values = numbers({1, 2}, {1, 2});
  const Tensor tensor = sparse_coo_tensor(rows({1}), values, {2, 2});
  values.zero_();
  EXPECT_EQ(tensor.values().to_vector<double>(), (Values{1, 2}));
  const std::uint64_t before = tensor.version();
  tensor.values().mul_(2);
  EXPECT_GT(tensor.version(), before);
  EXPECT_EQ(tensor.to_dense().to_vector<double>(), (Values{0, 0, 2, 4}));
}

TEST(Sparse, ItsPartsMayChangeButNotBeReplaced) {
  const Tensor tensor = sample().coalesce();
  tensor.values().mul_(2);
  EXPECT_EQ(tensor.to_dense().to_vector<double>(), (Values{6, 8, 0, 0, 12, 16, 0, 0}));
  tensor.values().set_data(ones({1}));
  tensor.indices().set_data(rows({3}));
  EXPECT_EQ(tensor.to_dense().to_vector<double>(), (Values{6, 8, 0, 0, 12, 16, 0, 0}));
}

TEST(Sparse, AnIndexThatIsChangedToOneOutsideIsAnErrorOfTheDenseForm) {
  const Tensor tensor = sparse_coo_tensor(rows({1}), numbers({1, 2}, {1, 2}), {4, 2});
  tensor.indices().fill_(4);
  EXPECT_TRUE(throws<IndexError>(
      [&] { (void)tensor.to_dense(); },
      "sparse tensor: the index 4 at position 0 is outside the 4 rows (expected 0 to 3)"));
}

TEST(Sparse, SumsListTheRowsOfBothUntilThereAreTooMany) {
  const Tensor tensor = sample();
  const Tensor twice =
      detail::sum_sparse(tensor, sparse_coo_tensor(rows({3}), numbers({7, 8}, {1, 2}), {4, 2}));
  EXPECT_EQ(detail::rows_listed(twice), 4u);
  EXPECT_EQ(twice.to_dense().to_vector<double>(), (Values{3, 4, 0, 0, 6, 8, 7, 8}));
  const Tensor thrice = detail::sum_sparse(twice, tensor);
  EXPECT_EQ(thrice.indices().to_vector<std::int64_t>(), (Numbers{0, 2, 3}));
  EXPECT_EQ(thrice.to_dense().to_vector<double>(), (Values{6, 8, 0, 0, 12, 16, 7, 8}));
}

TEST(Sparse, RefusesPartsThatDoNotFit) {
  const Tensor values = numbers({1, 2}, {1, 2});
  const auto make = [](const Tensor& at, const Tensor& each, const Shape& size) {
    return [=] { (void)sparse_coo_tensor(at, each, size); };
  };
  EXPECT_TRUE(throws<IndexError>(make(rows({4}), values, {4, 2}),
                                 "sparse_coo_tensor: the index 4 is outside the 4 rows"));
  EXPECT_TRUE(throws<IndexError>(make(rows({-1}), values, {4, 2}), "the index -1 is outside"));
  EXPECT_TRUE(throws<ShapeError>(make(rows({1, 2}), values, {4, 2}),
                                 "values of shape [1, 2] are not the 2 rows of a tensor of shape "
                                 "[4, 2] that the indices list"));
  EXPECT_TRUE(throws<ShapeError>(make(rows({1}), values, {4, 3}), "[4, 3]"));
  EXPECT_TRUE(throws<ShapeError>(make(rows({1}), values, {}), "[]"));
  EXPECT_TRUE(throws<ShapeError>(make(rows({1}), values, {-4, 2}), "[-4, 2] has a negative size"));
  EXPECT_TRUE(
      throws<ShapeError>(make(rows({1}).reshape({1}), values, {4, 2}),
                         "expected indices of shape [1, n], one sparse dimension, got [1]"));
  EXPECT_TRUE(throws<DtypeError>(make(rows({1}).to(Dtype::i32), values, {4, 2}),
                                 "expected indices of i64, got i32"));
  EXPECT_TRUE(throws<DtypeError>(make(rows({1}), values.to(Dtype::f16), {4, 2}),
                                 "expected values of f32 or f64, got f16"));
  EXPECT_TRUE(throws<DeviceError>(make(rows({1}), values.to(Device("cpu:1")), {4, 2}),
                                  "but the values on cpu:1"));
  EXPECT_TRUE(throws<AutogradError>(make(rows({1}), values.detach().requires_grad_(), {4, 2}),
                                    "the values require grad"));
  EXPECT_TRUE(throws<ValueError>([&] { (void)values.coalesce(); },
                                 "coalesce: expected a sparse tensor, got a dense one of shape "
                                 "[1, 2]"));
  EXPECT_THROW((void)values.indices(), ValueError);
  EXPECT_THROW((void)values.values(), ValueError);
  EXPECT_THROW((void)values.is_coalesced(), ValueError);
}

TEST(Sparse, OperationsThatDoNotKnowItSaySoAndNameTheWayOut) {
  const Tensor tensor = sample();
  const Tensor dense = ones({4, 2}, {.dtype = Dtype::f64, .device = kDevice});
  const auto refused = [](const auto& operation, const char* name) {
    return throws<ValueError>(operation, name, "sparse one of shape [4, 2]", "to_dense()");
  };
  EXPECT_TRUE(refused([&] { (void)(tensor + dense); }, "add: expected a dense tensor"));
  EXPECT_TRUE(refused([&] { (void)(dense * tensor); }, "mul: expected a dense tensor"));
  EXPECT_TRUE(refused([&] { (void)(tensor / 2); }, "div: "));
  EXPECT_TRUE(refused([&] { (void)matmul(tensor.to_dense().t(), tensor); }, "matmul: "));
  EXPECT_TRUE(refused([&] { (void)tensor.sum(); }, "sum: "));
  EXPECT_TRUE(refused([&] { (void)tensor.clone(); }, "clone: "));
  EXPECT_TRUE(refused([&] { (void)tensor.to(Device("cpu:1")); }, "to"));
  EXPECT_TRUE(refused([&] { (void)tensor.to(Dtype::f32); }, "to"));
  EXPECT_TRUE(refused([&] { (void)tensor.reshape({8}); }, "reshape: "));
  EXPECT_TRUE(refused([&] { (void)tensor.t(); }, ": expected"));
  EXPECT_TRUE(refused([&] { (void)tensor.narrow(0, 0, 1); }, "narrow: "));
  EXPECT_TRUE(refused([&] { (void)tensor.contiguous(); }, "expected a dense tensor"));
  EXPECT_TRUE(refused([&] { tensor.zero_(); }, "zero_: "));
  EXPECT_TRUE(refused([&] { tensor.add_(dense); }, "add_: "));
  EXPECT_TRUE(refused([&] { dense.add_(tensor); }, "expected a dense tensor"));
  EXPECT_TRUE(refused([&] { dense.copy_(tensor); }, "expected a dense tensor"));
  EXPECT_TRUE(refused([&] { (void)tensor.to_vector<double>(); }, "expected a dense tensor"));
  EXPECT_TRUE(refused([&] { (void)tensor.strides(); }, "expected a dense tensor"));
  EXPECT_TRUE(refused([&] { (void)tensor.is_contiguous(); }, "expected a dense tensor"));
  EXPECT_TRUE(throws<ValueError>([&] { dense.set_data(tensor); }, "set_data: expected dense"));
  EXPECT_TRUE(throws<ValueError>([&] { tensor.set_data(dense); }, "set_data: expected dense"));
  EXPECT_TRUE(throws<AutogradError>([&] { tensor.requires_grad_(); },
                                    "a sparse tensor cannot require gradients"));
  // An operation that is recorded as well.
  const Tensor leaf = dense.detach().requires_grad_();
  EXPECT_TRUE(refused([&] { (void)(leaf * tensor); }, "mul: expected a dense tensor"));
  EXPECT_EQ(dense.to_vector<double>(), Values(8, 1.0));
}

TEST(Sparse, IsPrintedAsItsParts) {
  std::ostringstream out;
  out << sparse_coo_tensor(from_values<std::int64_t>({1}, {1, 1}), from_values<float>({2.5}, {1}),
                           {3});
  EXPECT_EQ(out.str(), "sparse(indices=tensor([[1]]), values=tensor([2.5000]), size=[3])");
}

TEST(Sparse, TheMarkBelongsToTheVariable) {
  const Tensor tensor = ones({2}, {.device = kDevice});
  EXPECT_FALSE(expects_sparse_gradient(tensor));
  EXPECT_FALSE(expects_sparse_gradient(Tensor()));
  expect_sparse_gradient(tensor);
  tensor.set_data(ones({3}, {.device = kDevice}));
  EXPECT_TRUE(expects_sparse_gradient(tensor));
  EXPECT_FALSE(expects_sparse_gradient(tensor.detach()));
  expect_sparse_gradient(tensor, false);
  EXPECT_FALSE(expects_sparse_gradient(tensor));
  EXPECT_TRUE(throws<ValueError>([] { expect_sparse_gradient(Tensor()); }, "undefined"));
  EXPECT_TRUE(throws<ShapeError>([] { expect_sparse_gradient(ones({})); }, "has no rows"));
}

}  // namespace sparse_test
}  // namespace lockstep
