// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/kernel_list.hpp>
#include <lockstep/ops/rnn_kernels.hpp>

namespace lockstep::cuda {

template <class T, class... Cell>
struct RecurrentKernels {
  using type = Kernels<lockstep::detail::RecurrentKernel<T, Cell>...,
                       lockstep::detail::RecurrentGradKernel<T, Cell>...>;
};
template <class T>
struct RecurrentKernelsOf
    : RecurrentKernels<T, lockstep::detail::TanhCell, lockstep::detail::ReluCell,
                       lockstep::detail::LstmCell, lockstep::detail::GruCell> {};

using RnnKernels = Join<RecurrentKernelsOf<float>::type, RecurrentKernelsOf<double>::type>::type;

}  // namespace lockstep::cuda
