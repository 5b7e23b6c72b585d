// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/concepts.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/nn/embedding.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/tensor/random.hpp>
#include <lockstep/tensor/sparse.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "nn/support.hpp"

namespace lockstep {
namespace embedding_test {

using testing::message_of;
using testing::Names;
using testing::parameter_names;
using testing::Values;
using testing::values_of;

static_assert(Module<nn::Embedding> && ForwardableWith<const nn::Embedding, Tensor>);

TEST(Embedding, HasTorchsShapeNameAndFirstValues) {
  manual_seed(1);
  const nn::Embedding layer{400, 50};
  EXPECT_EQ(parameter_names(layer), Names{"weight"});
  EXPECT_EQ(layer.weight.sizes(), (Shape{400, 50}));
  double sum = 0;
  double squares = 0;
  for (const double value : values_of(layer.weight)) {
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / 20000, 0, 0.03);
  EXPECT_NEAR(squares / 20000, 1, 0.04);
}

TEST(Embedding, ThePaddingsRowIsZerosAndStaysSo) {
  for (const std::int64_t padding : {1, -2}) {
    const nn::Embedding layer{3, 2, {.padding_idx = padding}};
    EXPECT_EQ(layer.padding_idx, 1);
    const Tensor y = layer(tensor<std::int64_t>({1, 0, 1}));
    const Values values = values_of(y);
    EXPECT_EQ((Values{values[0], values[1], values[4], values[5]}), (Values{0, 0, 0, 0}));
    EXPECT_NE(values[2], 0);
    y.sum().backward();
    EXPECT_EQ(values_of(layer.weight.grad()), (Values{1, 1, 0, 0, 0, 0}));
  }
}

TEST(Embedding, ThePaddingMayBeTheFirstRow) {
  for (const std::int64_t padding : {0, -3}) {
    const nn::Embedding layer{3, 2, {.padding_idx = padding}};
    EXPECT_EQ(layer.padding_idx, 0);
    layer(tensor<std::int64_t>({0})).sum().backward();
    EXPECT_EQ(values_of(layer.weight.grad()), Values(6));
  }
}

TEST(Embedding, SparseGradientsListTheRowsUsedAndAreMarked) {
  const nn::Embedding layer{4, 2, {.padding_idx = 1, .sparse = true}};
  EXPECT_TRUE(expects_sparse_gradient(layer.weight));
  layer(tensor<std::int64_t>({3, 1, 0, 3})).sum().backward();
  const Tensor grad = layer.weight.grad();
  EXPECT_TRUE(grad.is_sparse());
  EXPECT_EQ(values_of(grad.to_dense()), (Values{1, 1, 0, 0, 0, 0, 2, 2}));
  EXPECT_EQ(values_of(grad.coalesce().indices()), (Values{0, 3}));

  const nn::Embedding dense{4, 2};
  EXPECT_FALSE(expects_sparse_gradient(dense.weight));
  dense(tensor<std::int64_t>({3})).sum().backward();
  EXPECT_FALSE(dense.weight.grad().is_sparse());
}

TEST(Embedding, ASparseGradientMovesWithItsLayer) {
  nn::Embedding layer{4, 2, {.sparse = true}};
  layer(tensor<std::int64_t>({3, 0, 3})).sum().backward();
  const Device other = "cpu:1";
  to(layer, other);
  const Tensor grad = layer.weight.grad();
  EXPECT_TRUE(grad.is_sparse());
  EXPECT_EQ(grad.device(), other);
  EXPECT_EQ(values_of(grad.to_dense()), (Values{1, 1, 0, 0, 0, 0, 2, 2}));
}

TEST(Embedding, RefusesBadArguments) {
  EXPECT_EQ(message_of<ValueError>([] {
              nn::Embedding{0, 2};
            }),
            "Embedding: expected num_embeddings to be at least 1, got 0");
  EXPECT_EQ(message_of<ValueError>([] {
              nn::Embedding{2, 2, {.padding_idx = 2}};
            }),
            "Embedding: expected a padding_idx within the 2 embeddings, got 2");
  EXPECT_THROW((nn::Embedding{2, 0}), ValueError);
  EXPECT_THROW((nn::Embedding{2, 2, {.dtype = Dtype::i32}}), DtypeError);
  const nn::Embedding layer{2, 2};
  EXPECT_THROW(layer(tensor<std::int64_t>({2})), IndexError);
}

}  // namespace embedding_test
}  // namespace lockstep
