// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/kernels/sums.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/cuda/launch/strided_index.hpp>
#include <lockstep/ops/kernels/batch_norm_kernels.hpp>
#include <lockstep/ops/kernels/channel_norm_kernels.hpp>
#include <lockstep/ops/kernels/channel_sum_kernel.hpp>
#include <lockstep/ops/layout.hpp>
#include <lockstep/tensor/shape.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

// Kernels of lockstep's own for the moments and sums of normalised channels: cuDNN's batch
// normalisation is deprecated since version 9, and neither takes nor gives the moments alone, which
// replicas combine between the two steps. Layer normalisation shares them.
namespace lockstep::cuda {

// The channels of a tensor of [outer, channels, inner], and the elements of one of them.
struct ChannelWalks {
  detail::Walk<1> kept;
  detail::Walk<1> reduced;

  ChannelWalks(std::size_t outer, std::size_t channels, std::size_t inner) {
    const auto o = static_cast<std::int64_t>(outer);
    const auto c = static_cast<std::int64_t>(channels);
    const auto i = static_cast<std::int64_t>(inner);
    kept = detail::make_walk<1>(Shape{c}, {Shape{i}});
    reduced = detail::make_walk<1>(Shape{o, i}, {Shape{c * i, 1}});
  }
};

template <class T>
struct CudaCall<detail::ChannelSumCall<T>> {
  using Term = ValueTerm<T>;
  using kernels = SumKernels<Term>;
  static void run(detail::StreamState& stream, const detail::ChannelSumCall<T>& call) {
    const ChannelWalks walks(call.axis.outer, call.axis.count, call.axis.inner);
    launch_sum<Term>(stream, {call.in}, call.out, walks.kept, walks.reduced, 1);
  }
};

// (x − mean)², with the mean as it was rounded to T.
template <class T>
struct SquareApartTerm {
  using In = T;
  using Sum = double;
  using Out = T;
  template <class Kernel>
  LOCKSTEP_HD static double at(const Kernel& kernel, std::int64_t offset, std::size_t k) {
    const double apart =
        static_cast<double>(kernel.a.data[offset]) - static_cast<double>(kernel.centre[k]);
    return apart * apart;
  }
};

// a · (b − mean)
template <class T>
struct ProductTerm {
  using In = T;
  using Sum = double;
  using Out = T;
  template <class Kernel>
  LOCKSTEP_HD static double at(const Kernel& kernel, std::int64_t offset, std::size_t k) {
    const T apart = kernel.b.data[offset] - detail::channel_value(kernel.centre, k);
    return static_cast<double>(kernel.a.data[offset]) * static_cast<double>(apart);
  }
};

template <class T>
struct CudaCall<detail::ChannelMomentsCall<T>> {
  using kernels = typename Join<SumKernels<ValueTerm<T>>, SumKernels<SquareApartTerm<T>>>::type;
  static void run(detail::StreamState& stream, const detail::ChannelMomentsCall<T>& call) {
    const ChannelWalks walks(call.axis.outer, call.axis.count, call.axis.inner);
    const auto count =
        static_cast<double>(std::max<std::size_t>(call.axis.outer * call.axis.inner, 1));
    launch_sum<ValueTerm<T>>(stream, {call.in}, call.mean, walks.kept, walks.reduced, count);
    const View<const T> mean{call.mean.data, call.mean.size};
    launch_sum<SquareApartTerm<T>>(stream, {call.in, {}, mean}, call.var, walks.kept, walks.reduced,
                                   count);
  }
};

template <class T>
struct CudaCall<detail::ChannelDotCall<T>> {
  using kernels = SumKernels<ProductTerm<T>>;
  static void run(detail::StreamState& stream, const detail::ChannelDotCall<T>& call) {
    const ChannelWalks walks(call.axis.outer, call.axis.count, call.axis.inner);
    launch_sum<ProductTerm<T>>(stream, {call.a, call.b, call.mean}, call.out, walks.kept,
                               walks.reduced, 1);
  }
};

// An element of a Call whose function the channel decides.
template <class Call>
struct ChannelElements {
  Call call;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    const std::size_t c = divided(divided(i, call.axis.inner).quotient, call.axis.count).remainder;
    call.out[i] = call.of_channel(c)(i);
  }
};

template <class T>
struct CudaCall<detail::ChannelAffineCall<T>>
    : ElementCall<ChannelElements<detail::ChannelAffineCall<T>>> {};
template <class T>
struct CudaCall<detail::ChannelGradientCall<T>>
    : ElementCall<ChannelElements<detail::ChannelGradientCall<T>>> {};

using ChannelCalls =
    ForFloating<detail::ChannelSumCall, detail::ChannelMomentsCall, detail::ChannelDotCall,
                detail::ChannelAffineCall, detail::ChannelGradientCall>::type;

}  // namespace lockstep::cuda
