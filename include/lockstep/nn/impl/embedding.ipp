// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/nn/embedding.hpp>
#include <lockstep/nn/init.hpp>
#include <lockstep/nn/layer.hpp>
#include <lockstep/ops/embedding.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep::nn {

LOCKSTEP_INLINE Embedding::Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim,
                                     const EmbeddingOptions& options) {
  detail::check_layer_size("Embedding", "num_embeddings", num_embeddings);
  detail::check_layer_size("Embedding", "embedding_dim", embedding_dim);
  const TensorOptions like = detail::parameter_options("Embedding", options.dtype, options.device);
  const std::int64_t padding =
      detail::wrap_padding("Embedding", options.padding_idx, num_embeddings);
  const Tensor values = empty({num_embeddings, embedding_dim}, like);
  init::normal_(values);
  if (options.padding_idx) {
    padding_idx = padding;
    values.narrow(0, padding, 1).zero_();
  }
  weight = Parameter(values);
  sparse = options.sparse;
  expect_sparse_gradient(weight, sparse);
}

}  // namespace lockstep::nn
