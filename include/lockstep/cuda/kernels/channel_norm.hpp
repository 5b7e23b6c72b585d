// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/kernels/sums.hpp>
#include <lockstep/cuda/launch/fours.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/strided_index.hpp>
#include <lockstep/ops/kernels/axis.hpp>
#include <lockstep/ops/kernels/batch_norm_kernels.hpp>
#include <lockstep/ops/kernels/channel_norm_kernels.hpp>
#include <lockstep/ops/kernels/channel_sum_kernel.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/walk.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

// Kernels of lockstep's own for the moments and sums of normalised channels: cuDNN's batch
// normalisation is deprecated since version 9, and neither takes nor gives the moments alone, which
// replicas combine between the two steps. Layer normalisation shares them.
namespace lockstep::cuda {

// The sum of the terms of each channel, divided.
template <class Term>
void launch_channel_sums(detail::StreamState& stream, const SumOperands<typename Term::In>& in,
                         const View<typename Term::Out>& out, const detail::Axis& axis,
                         double divisor = 1) {
  const auto outer = static_cast<std::int64_t>(axis.outer);
  const auto count = static_cast<std::int64_t>(axis.count);
  const auto inner = static_cast<std::int64_t>(axis.inner);
  launch_sum<Term>(stream, in, out, detail::make_walk<1>(Shape{count}, {Shape{inner}}),
                   detail::make_walk<1>(Shape{outer, inner}, {Shape{count * inner, 1}}), divisor);
}

template <class T>
struct CudaCall<detail::ChannelSumCall<T>> {
  using kernels = SumKernels<ValueTerm<T>>;
  static void run(detail::StreamState& stream, const detail::ChannelSumCall<T>& call) {
    launch_channel_sums<ValueTerm<T>>(stream, {call.in}, call.out, call.axis);
  }
};

// (x − mean)², with the mean as it was rounded to T.
template <class T>
struct SquareApartTerm : DoubleTerm<T> {
  LOCKSTEP_HD static double at(const SumOperands<T>& in, std::int64_t offset, std::size_t k) {
    const double apart = static_cast<double>(in.a.data[offset]) - static_cast<double>(in.centre[k]);
    return apart * apart;
  }
};

// a · (b − mean)
template <class T>
struct ProductTerm : DoubleTerm<T> {
  LOCKSTEP_HD static double at(const SumOperands<T>& in, std::int64_t offset, std::size_t k) {
    const T apart = in.b.data[offset] - detail::channel_value(in.centre, k);
    return static_cast<double>(in.a.data[offset]) * static_cast<double>(apart);
  }
};

template <class T>
struct CudaCall<detail::ChannelMomentsCall<T>> {
  using kernels = Kernels<SumKernels<ValueTerm<T>>, SumKernels<SquareApartTerm<T>>>;
  static void run(detail::StreamState& stream, const detail::ChannelMomentsCall<T>& call) {
    const auto count =
        static_cast<double>(std::max<std::size_t>(call.axis.outer * call.axis.inner, 1));
    launch_channel_sums<ValueTerm<T>>(stream, {call.in}, call.mean, call.axis, count);
    const View<const T> mean{call.mean.data, call.mean.size};
    launch_channel_sums<SquareApartTerm<T>>(stream, {call.in, {}, mean}, call.var, call.axis,
                                            count);
  }
};

template <class T>
struct CudaCall<detail::ChannelDotCall<T>> {
  using kernels = SumKernels<ProductTerm<T>>;
  static void run(detail::StreamState& stream, const detail::ChannelDotCall<T>& call) {
    launch_channel_sums<ProductTerm<T>>(stream, {call.a, call.b, call.mean}, call.out, call.axis);
  }
};

// An element of a Call whose function the channel decides.
template <class Call>
struct ChannelElements {
  Call call;

  LOCKSTEP_HD void operator()(std::size_t i) const { call.out[i] = function_at(i)(i); }

  // The function of the channel that element i is of.
  LOCKSTEP_HD auto function_at(std::size_t i) const {
    return call.of_channel(
        divided(divided(i, call.axis.inner).quotient, call.axis.count).remainder);
  }
};

// Four elements of one channel: finding it takes longer than computing them.
template <template <class> class Call, class T>
requires kInFours<T>
struct Fours<ChannelElements<Call<T>>> {
  using Kernel = ChannelElements<Call<T>>;
  static bool fit(const Kernel& kernel) {
    return kernel.call.axis.inner % 4 == 0 && has_fours(kernel.call.out);
  }
  LOCKSTEP_HD static void run(const Kernel& kernel, std::size_t i) {
    const auto function = kernel.function_at(4 * i);
    Four<T> out;
    for (std::size_t k = 0; k < 4; ++k) out.of[k] = function(4 * i + k);
    write_four(kernel.call.out, i, out);
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
                detail::ChannelAffineCall, detail::ChannelGradientCall>;

}  // namespace lockstep::cuda
