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
  bool sparse = false;                           // weight.grad() lists only the rows used
  Dtype dtype = Dtype::f32;
  Device device = {};
};

// Looks up a vector for each index in [0, num_embeddings): indices of shape [*] give [*,
// embedding_dim].
//
// The row padding_idx, if there is one, is initially zero and gets no gradient. A copy shares its
// weight with the original: it is a handle.
//
// **Torch counterpart.** torch.nn.Embedding, with its initialisation: normal with mean 0 and
// deviation 1, drawn from the default generator.
// **Backward.** As lockstep::embedding. With `sparse` the weight's gradient is sparse
// (tensor/sparse.hpp), and expect_sparse_gradient marks the weight; mark a Parameter that replaces
// it as well.
// **Threads and exceptions.** A ValueError for an invalid size or padding_idx, a DtypeError for a
// dtype other than f32 and f64; forward throws what lockstep::embedding throws.
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
