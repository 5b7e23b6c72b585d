// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/ops/rnn.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <vector>

namespace lockstep::detail {

// One kind of cell, with what the recurrent layers need to know of it. Definitions of layers
// include this, and no declaration does: it compiles what a cell computes.
struct RecurrentCell {
  const char* name;
  std::vector<Tensor> (*over_sequence)(RecurrentArguments, bool reverse);  // y, h and, if any, c
};

template <class Cell>
inline constexpr RecurrentCell kRecurrentCell{Cell::name, recurrent<Cell>};

}  // namespace lockstep::detail
