// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/accumulate_grad.hpp>
#include <lockstep/backend/together_kernel.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/distributed/thread/combine_kernel.hpp>
#include <lockstep/ops/kernels/attention_kernels.hpp>
#include <lockstep/ops/kernels/dropout_kernel.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>
#include <lockstep/optim/kernels.hpp>
#include <lockstep/parallel/comm/reduce_add.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/fill.hpp>
#include <lockstep/tensor/half.hpp>

#include <cstdint>

// Functors that a GPU runs as a host does, of operations that need no more than to be listed.
namespace lockstep::cuda {

template <class T>
using MaskBiasKernel = detail::UnaryKernel<bool, T, detail::MaskBias<T>>;

template <template <class> class F>
struct ForAll
    : ForEach<F, float, double, Half, BFloat16, std::int64_t, std::int32_t, std::uint8_t, bool> {};

// A kernel for one parameter, and for many.
template <class... F>
struct AloneAndTogether {
  using type = Kernels<F..., detail::TogetherKernel<F>...>;
};
template <class T>
struct OptimKernels
    : AloneAndTogether<detail::SgdKernel<T>, detail::SgdMomentumKernel<T>, detail::AdamKernel<T>> {
};

using FunctorKernels =
    Join<ForAll<detail::FillKernel>::type, ForAll<distributed::detail::CombineKernel>::type,
         ForNumeric<detail::AddInPlaceKernel>::type, ForNumeric<detail::ScaleKernel>::type,
         ForNumeric<comm::detail::AddKernel>::type, ForFloating<detail::DropoutKernel>::type,
         ForFloating<MaskBiasKernel>::type, ForFloating<detail::CausalBias>::type,
         OptimKernels<float>::type, OptimKernels<double>::type>::type;

}  // namespace lockstep::cuda
