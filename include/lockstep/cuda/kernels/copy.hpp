// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/launch/fours.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/strided_index.hpp>
#include <lockstep/ops/kernels/where_kernels.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace lockstep::cuda {

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
requires kInFours<T>
struct Fours<StridedCopyElements<T>> {
  static bool fit(const StridedCopyElements<T>& kernel) {
    return has_fours(kernel.in, kernel.index, 0) && has_fours(kernel.out, kernel.index, 1) &&
           !kernel.index.repeats(1);
  }
  LOCKSTEP_HD static void run(const StridedCopyElements<T>& kernel, std::size_t i) {
    const Offsets<2> at = kernel.index.at(4 * i);
    write_four(kernel.out, static_cast<std::size_t>(at.of[1]) / 4,
               read_four(kernel.in, kernel.index, at, 0));
  }
};

template <class T>
struct CudaCall<detail::StridedCopyKernel<T>> {
  using kernels = Kernels<StridedCopyElements<T>>;
  static void run(detail::StreamState& stream, const detail::StridedCopyKernel<T>& call) {
    launch_kernel(stream, static_cast<std::size_t>(numel(call.walk.sizes)),
                  StridedCopyElements<T>{call.in, call.out, strided_index(call.walk)});
  }
};

// For what moves elements of any dtype.
template <template <class> class F>
struct ForMoved
    : ForEach<F, detail::Moved<1>, detail::Moved<2>, detail::Moved<4>, detail::Moved<8>> {};

template <class T>
struct WhereElements {
  View<const bool> condition;
  View<const T> a;
  View<const T> b;
  View<T> out;
  StridedIndex<3> index;
  LOCKSTEP_HD void operator()(std::size_t i) const {
    const Offsets<3> at = index.at(i);
    out[i] = condition.data[at.of[0]] ? a.data[at.of[1]] : b.data[at.of[2]];
  }
};

template <class T>
struct CudaCall<detail::WhereCall<T>> {
  using kernels = Kernels<WhereElements<T>>;
  static void run(detail::StreamState& stream, const detail::WhereCall<T>& call) {
    launch_kernel(
        stream, call.out.size,
        WhereElements<T>{call.condition, call.a, call.b, call.out, strided_index(call.walk)});
  }
};

template <class To, class From>
requires kInFours<To, From>
struct Fours<detail::CastKernel<To, From>> {
  using Kernel = detail::CastKernel<To, From>;
  static bool fit(const Kernel& kernel) { return has_fours(kernel.in) && has_fours(kernel.out); }
  LOCKSTEP_HD static void run(const Kernel& kernel, std::size_t i) {
    const auto convert = [](From value) { return detail::convert<To>(value); };
    write_four(kernel.out, i, map_fours<To>(convert, read_four(kernel.in, i)));
  }
};

// The cast between two types; none from a type to itself.
template <class To, class From>
using Cast = std::conditional_t<std::is_same_v<To, From>, Kernels<>, detail::CastKernel<To, From>>;
template <class From, class... To>
struct CastsFrom : Kernels<Cast<To, From>...> {};
template <class... T>
struct CastsBetween : Kernels<CastsFrom<T, T...>...> {};

// Half precision is converted to and from f32 alone; other casts go through that.
using CopyKernels =
    Kernels<ForMoved<detail::StridedCopyKernel>, ForMoved<detail::WhereCall>,
            CastsBetween<float, double, std::int64_t, std::int32_t, std::uint8_t, bool>,
            CastsFrom<float, Half, BFloat16>, Cast<float, Half>, Cast<float, BFloat16>>;

}  // namespace lockstep::cuda
