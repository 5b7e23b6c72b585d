// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/tensor/tensor.hpp>

namespace lockstep::detail {

// A sparse variable: `values` are rows of a tensor of this shape, `indices` say which. A row that
// is listed several times has the sum. The storage and the version are those of the values.
struct SparseImpl : TensorImpl {
  Tensor indices;          // [1, rows listed], i64
  Tensor values;           // [rows listed, shape[1], …]
  bool coalesced = false;  // each row is listed once, and the indices ascend
};

// What a sparse tensor consists of. For any other a ValueError that names `member`.
const SparseImpl& sparse_of(const Tensor& tensor, const char* member);

}  // namespace lockstep::detail
