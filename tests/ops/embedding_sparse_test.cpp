// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/grad_hooks.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/embedding.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/sparse_sum.hpp>

#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

namespace lockstep {
namespace embedding_sparse_test {

using testing::throws;
using Values = std::vector<double>;
using Numbers = std::vector<std::int64_t>;

const Device kDevice = "cpu:0";

Tensor at(const Numbers& indices) {
  return from_values(indices, {static_cast<std::int64_t>(indices.size())}, kDevice);
}
Tensor table() {
  return from_values(Values{0, 1, 10, 11, 20, 21, 30, 31}, {4, 2}, kDevice).requires_grad_();
}
Tensor sparse_rows(const Numbers& indices, const Tensor& weight,
                   std::optional<std::int64_t> padding = {}) {
  return embedding(at(indices), weight, padding, true);
}
Values dense(const Tensor& grad) { return grad.to_dense().to_vector<double>(); }

TEST(EmbeddingSparse, D05TheGradientListsTheRows) {
  for (const bool sparse : {false, true}) {
    const Tensor weight = table();
    embedding(at({3, 0, 3}), weight, {}, sparse).sum().backward();
    const Tensor grad = weight.grad();
    EXPECT_EQ(grad.is_sparse(), sparse);
    EXPECT_EQ(grad.sizes(), (Shape{4, 2}));
    EXPECT_EQ(dense(grad), (Values{1, 1, 0, 0, 0, 0, 2, 2}));
    if (!sparse) continue;
    EXPECT_FALSE(grad.is_coalesced());
    EXPECT_EQ(detail::rows_listed(grad), 3);
    EXPECT_EQ(grad.coalesce().indices().to_vector<std::int64_t>(), (Numbers{0, 3}));
    EXPECT_EQ(grad.coalesce().values().to_vector<double>(), (Values{1, 1, 2, 2}));
  }
}

TEST(EmbeddingSparse, IndicesOfAnyShapeAndStrides) {
  const Tensor weight = table();
  const Tensor indices = from_values<std::int64_t>({0, 1, 3, 3, 1, 0}, {2, 3}, kDevice).t();
  const Tensor factor =
      from_values(Values{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {3, 2, 2}, kDevice);
  const Tensor other = table();
  (embedding(indices, weight, {}, true) * factor).sum().backward();
  (embedding(indices, other) * factor).sum().backward();
  EXPECT_EQ(dense(weight.grad()), dense(other.grad()));
  const Tensor empty_one = table();
  sparse_rows({}, empty_one).sum().backward();
  EXPECT_EQ(detail::rows_listed(empty_one.grad()), 0);
}

TEST(EmbeddingSparse, TheRowOfThePaddingIsNotListed) {
  for (const std::int64_t padding : {3, -1}) {
    const Tensor weight = table();
    (sparse_rows({3, 0, 3, 2}, weight, padding) * 2).sum().backward();
    EXPECT_EQ(detail::rows_listed(weight.grad()), 2u);
    EXPECT_EQ(dense(weight.grad()), (Values{2, 2, 0, 0, 2, 2, 0, 0}));
  }
}

TEST(EmbeddingSparse, TheIndicesMayChangeAfterBackward) {
  const Tensor weight = table();
  const Tensor indices = at({3, 0});
  embedding(indices, weight, {}, true).sum().backward();
  indices.zero_();
  EXPECT_EQ(dense(weight.grad()), (Values{1, 1, 0, 0, 0, 0, 1, 1}));
}

TEST(EmbeddingSparse, GradientsAddUpAcrossPassesAndWithinOne) {
  const Tensor weight = table();
  sparse_rows({3}, weight).sum().backward();
  const Tensor first = weight.grad();
  sparse_rows({1, 3}, weight).sum().backward();
  EXPECT_TRUE(weight.grad().is_sparse());
  EXPECT_EQ(dense(weight.grad()), (Values{0, 0, 1, 1, 0, 0, 2, 2}));
  EXPECT_EQ(dense(first), (Values{0, 0, 0, 0, 0, 0, 1, 1}));  // its holder's stays what it was
  const Tensor once = table();
  (sparse_rows({3}, once).sum() + sparse_rows({1, 3}, once).sum() * 2).backward();
  EXPECT_TRUE(once.grad().is_sparse());
  EXPECT_EQ(dense(once.grad()), (Values{0, 0, 2, 2, 0, 0, 3, 3}));
}

TEST(EmbeddingSparse, ManyPassesListNoMoreRowsThanThereAre) {
  const Tensor weight = table();
  for (int i = 0; i < 10; ++i) sparse_rows({3, 1}, weight).sum().backward();
  EXPECT_LE(detail::rows_listed(weight.grad()), 4u);
  EXPECT_EQ(dense(weight.grad()), (Values{0, 0, 10, 10, 0, 0, 10, 10}));
}

TEST(EmbeddingSparse, WithDenseGradientsTheSumIsDense) {
  const Values expected{1, 1, 2, 2, 1, 1, 2, 2};
  const Tensor together = table();
  (sparse_rows({3, 1}, together).sum() + together.sum()).backward();
  EXPECT_EQ(together.grad().to_vector<double>(), expected);
  const Tensor sparse_first = table();
  sparse_rows({3, 1}, sparse_first).sum().backward();
  sparse_first.sum().backward();
  EXPECT_EQ(sparse_first.grad().to_vector<double>(), expected);
  const Tensor dense_first = table();
  dense_first.sum().backward();
  const Tensor in_place = dense_first.grad();
  sparse_rows({3, 1}, dense_first).sum().backward();
  EXPECT_TRUE(dense_first.grad().is_same(in_place));
  EXPECT_EQ(in_place.to_vector<double>(), expected);
}

TEST(EmbeddingSparse, ALeafsGradientIsItsOwn) {
  // The gradient that backward starts from stays what it is, whatever is done to the leaf's.
  const Tensor weight = table();
  const Tensor start = ones({2, 2}, {.dtype = Dtype::f64, .device = kDevice});
  sparse_rows({3, 0}, weight).backward(start);
  weight.grad().coalesce().values().mul_(5);
  detail::sparse_of(weight.grad(), "test").values.mul_(5);
  EXPECT_EQ(start.to_vector<double>(), Values(4, 1.0));
  EXPECT_EQ(dense(weight.grad()), (Values{5, 5, 0, 0, 0, 0, 5, 5}));
}

TEST(EmbeddingSparse, TheGraphMayBeKept) {
  const Tensor weight = table();
  const Tensor y = sparse_rows({3, 0}, weight).sum();
  y.backward({}, true);
  y.backward();
  EXPECT_EQ(dense(weight.grad()), (Values{2, 2, 0, 0, 0, 0, 2, 2}));
  EXPECT_THROW(y.backward(), AutogradError);
}

TEST(EmbeddingSparse, GradHooksAndNewGradientsSeeIt) {
  const Tensor weight = table();
  bool sparse = false;
  const RemovableHandle hook = weight.register_post_accumulate_grad_hook([&](const Tensor& leaf) {
    sparse = leaf.grad().is_sparse();
    leaf.set_grad(leaf.grad().coalesce());
  });
  const std::vector<Tensor> grads = autograd::grad({sparse_rows({2}, weight).sum()}, {weight});
  EXPECT_TRUE(grads[0].is_sparse());
  EXPECT_FALSE(weight.grad().defined());
  sparse_rows({2, 2}, weight).sum().backward();
  EXPECT_TRUE(sparse);
  EXPECT_TRUE(weight.grad().is_coalesced());
}

TEST(EmbeddingSparse, HasNoDerivative) {
  const Tensor weight = table();
  EXPECT_TRUE(
      throws<AutogradError>([&] { sparse_rows({3}, weight).sum().backward({}, false, true); },
                            "embedding: a sparse gradient has no derivative: use sparse = false"));
  EXPECT_TRUE(throws<ValueError>(
      [&] { (void)autograd::grad({(sparse_rows({3}, weight) * 2).sum()}, {weight})[0].sum(); },
      "sum: expected a dense tensor"));
}

TEST(EmbeddingSparse, RefusesHalfPrecision) {
  const Tensor weight =
      ones({4, 2}, {.dtype = Dtype::bf16, .device = kDevice, .requires_grad = true});
  EXPECT_TRUE(throws<DtypeError>([&] { (void)sparse_rows({3}, weight); },
                                 "embedding: sparse gradients are there for weights of f32 and "
                                 "f64, not of bf16"));
}

TEST(EmbeddingSparse, BackwardOnAnotherStreamThanTheCallers) {
  const Tensor weight = table();
  Tensor y;
  {
    const Stream side = pool_stream(kDevice);
    side.wait_stream(current_stream(kDevice));
    const StreamGuard guard(side);
    y = sparse_rows({3, 0, 3}, weight).sum();
  }
  y.backward();
  EXPECT_EQ(dense(weight.grad()), (Values{1, 1, 0, 0, 0, 0, 2, 2}));
}

TEST(EmbeddingSparse, SeveralPassesAtTheSameTime) {
  const Tensor weight = table();
  std::vector<std::vector<Tensor>> losses(4);
  for (std::int64_t i = 0; i < 4; ++i) {
    for (int step = 0; step < 8; ++step) {
      losses[static_cast<std::size_t>(i)].push_back(sparse_rows({i, 3}, weight).sum());
    }
  }
  std::vector<std::thread> threads;  // joined below
  for (const std::vector<Tensor>& own : losses) {
    threads.emplace_back([&own] {
      for (const Tensor& loss : own) loss.backward();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(dense(weight.grad()), (Values{8, 8, 8, 8, 8, 8, 40, 40}));
}

}  // namespace embedding_sparse_test
}  // namespace lockstep
