// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/cuda/launch/strided_index.hpp>
#include <lockstep/ops/layout.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace lockstep::cuda {

// The cast between two types; none from a type to itself.
template <class To, class From>
struct CastKernels {
  using type = std::conditional_t<std::is_same_v<To, From>, Kernels<>,
                                  Kernels<lockstep::detail::CastKernel<To, From>>>;
};
template <class From, class... To>
struct CastsFrom : Join<typename CastKernels<To, From>::type...> {};
template <class... T>
struct CastsBetween : Join<typename CastsFrom<T, T...>::type...> {};

// Half precision is converted to and from f32 alone; other casts go through that.
using CopyKernels =
    Join<CastsBetween<float, double, std::int64_t, std::int32_t, std::uint8_t, bool>::type,
         CastsFrom<float, Half, BFloat16>::type, CastKernels<float, Half>::type,
         CastKernels<float, BFloat16>::type>::type;

template <class T>
struct StridedCopyElements {
  View<const T> in;
  View<T> out;
  StridedIndex<2> index;
  LOCKSTEP_HD void operator()(std::size_t i) const {
    const Offsets<2> at = index.at(i);
    out.data[at.of[1]] = in.data[at.of[0]];
  }
};

template <class T>
struct CudaCall<lockstep::detail::StridedCopyKernel<T>> {
  using kernels = Kernels<StridedCopyElements<T>>;
  static void run(lockstep::detail::StreamState& stream,
                  const lockstep::detail::StridedCopyKernel<T>& call) {
    const std::size_t dims = call.dims;
    const Shape sizes(std::span(call.sizes.data(), dims));
    const auto walk =
        lockstep::detail::make_walk<2>(sizes, {Shape(std::span(call.in_strides.data(), dims)),
                                               Shape(std::span(call.out_strides.data(), dims))});
    launch_kernel(stream, static_cast<std::size_t>(numel(sizes)),
                  StridedCopyElements<T>{call.in, call.out, strided_index(walk)});
  }
};

// For what moves elements of any dtype.
template <template <class> class F>
struct ForMoved : ForEach<F, lockstep::detail::Moved<1>, lockstep::detail::Moved<2>,
                          lockstep::detail::Moved<4>, lockstep::detail::Moved<8>> {};

using CopyCalls = ForMoved<lockstep::detail::StridedCopyKernel>::type;

}  // namespace lockstep::cuda
