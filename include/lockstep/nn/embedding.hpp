// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/ops/embedding.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <optional>

namespace lockstep::nn {

struct EmbeddingOptions {
  std::optional<std::int64_t> padding_idx = {};  // counted from the end if negative
  bool sparse = false;                           // whether weight.grad() lists only the rows used
  Dtype dtype = Dtype::f32;
  Device device = {};
};

// A vector for each index in [0, num_embeddings): indices of shape [*] give [*, embedding_dim].
//
// The row padding_idx, if there is one, is zeros at first and gets no gradient. A copy shares its
// weight with the original: it is a handle.
//
// **Torch counterpart.** torch.nn.Embedding, with its first values: normal with mean 0 and
// deviation 1, drawn from the default generator.
// **Backward.** That of lockstep::embedding. With `sparse`, the weight's gradient is sparse
// (tensor/sparse.hpp) and the weight is marked so by expect_sparse_gradient: whoever puts another
// Parameter in its place marks that one.
// **Threads and exceptions.** A ValueError for a size or a padding_idx that makes no sense, a
// DtypeError for a dtype other than f32 and f64; forward's are those of lockstep::embedding.
// **Example.** nn::Embedding words{10000, 64, {.padding_idx = 0}};
struct Embedding {
  Parameter weight;  // [num_embeddings, embedding_dim]
  std::optional<std::int64_t> padding_idx;
  bool sparse = false;

  Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim,
            const EmbeddingOptions& options = {});

  Tensor forward(const Tensor& indices) const {
    return embedding(indices, weight, padding_idx, sparse);
  }
  Tensor operator()(const Tensor& indices) const { return forward(indices); }

  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("weight", self.weight);
  }
};

}  // namespace lockstep::nn

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/nn/impl/embedding.ipp>
#endif
