// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/launch/kernel.hpp>

#include <cstdint>

// How the lists of what the library runs on a GPU are put together.
namespace lockstep::cuda {

// Several lists as one.
template <class... Lists>
struct Join {
  using type = Kernels<>;
};
template <class... F>
struct Join<Kernels<F...>> {
  using type = Kernels<F...>;
};
template <class... F, class... G, class... Rest>
struct Join<Kernels<F...>, Kernels<G...>, Rest...> : Join<Kernels<F..., G...>, Rest...> {};

// One template for several element types. (Structs, as nvcc drops an alias template's pack.)
template <template <class> class F, class... T>
struct ForEach {
  using type = Kernels<F<T>...>;
};
template <template <class> class... F>
struct ForFloating : Join<typename ForEach<F, float, double>::type...> {};
template <template <class> class F>
struct ForNumeric : ForEach<F, float, double, std::int64_t, std::int32_t> {};

}  // namespace lockstep::cuda
