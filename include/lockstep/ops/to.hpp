// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/element.hpp>
#include <lockstep/tensor/scalar.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <vector>

// The members of Tensor that move data to another device or dtype, or to the program.
namespace lockstep {

namespace detail {

// The value of a tensor of one element.
Scalar number_of(const Tensor& x);

}  // namespace detail

template <class T>
T Tensor::item() const {
  return detail::element_of<T>("item", detail::number_of(*this));
}

template <Element T>
std::vector<T> Tensor::to_vector() const {
  const Tensor host = detail::contiguous_on_host(*this);
  const T* const first = host.const_data_ptr<T>();
  return std::vector<T>(first, first + numel());
}

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/to.ipp>
#endif
