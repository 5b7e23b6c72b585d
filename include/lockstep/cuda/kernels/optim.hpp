// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/optim/kernels.hpp>

namespace lockstep::cuda {

// A kernel for one parameter, and for many.
template <class T>
struct OptimKernelsOf {
  template <class... F>
  struct AloneAndTogether {
    using type = Kernels<F..., lockstep::detail::TogetherKernel<F>...>;
  };
  using type = typename AloneAndTogether<lockstep::detail::SgdKernel<T>,
                                         lockstep::detail::SgdMomentumKernel<T>,
                                         lockstep::detail::AdamKernel<T>>::type;
};

using OptimKernels = Join<OptimKernelsOf<float>::type, OptimKernelsOf<double>::type>::type;

}  // namespace lockstep::cuda
