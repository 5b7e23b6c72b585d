// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/fill.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <type_traits>
#include <vector>

// The members of Tensor that move data to another device or dtype, or out to the program.
namespace lockstep {

template <class T>
T Tensor::item() const {
  check<ShapeError>(numel() == 1, "item: a tensor of shape ", sizes(), " with ", numel(),
                    " elements cannot be converted to one number");
  const Tensor host = detail::contiguous_on_host(*this);
  const void* const element = detail::read_on_host(host, dtype());
  return dispatch_all(dtype(), [element]<class Held>(Held) -> T {
    const Held held = *static_cast<const Held*>(element);
    if constexpr (std::is_same_v<T, Held>) {
      return held;
    } else if constexpr (detail::is_half<Held>) {
      return detail::element_of<T>("item", static_cast<float>(held));
    } else {
      return detail::element_of<T>("item", held);
    }
  });
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
