// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>

namespace lockstep::detail {

template <class T>
struct FillKernel {
  View<T> out;
  T value;
  LOCKSTEP_HD void operator()(std::size_t i) const { out[i] = value; }
};

// Sets every element of a contiguous tensor to `value`, on its device's current stream.
void fill(const Tensor& tensor, double value);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/impl/fill.ipp>
#endif
