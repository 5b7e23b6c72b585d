// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/launch/fours.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/strided_index.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>

#include <cstddef>

// What `map` launches for a function of one element, and of two.
namespace lockstep::cuda {

// (Out is the type of the result.)
template <class In, class Out, class... F>
struct UnaryKernels : Kernels<detail::UnaryKernel<In, Out, F>...> {};
template <class In, class Out, class... F>
struct BinaryKernels
    : Kernels<detail::BinaryKernel<In, Out, F>..., detail::BroadcastCall<In, Out, F>...> {};

// `out` may be an operand that has its layout: a thread reads its elements before it writes them.
template <class In, class Out, class F>
struct BroadcastKernel {
  View<const In> a;
  View<const In> b;
  View<Out> out;
  StridedIndex<2> index;
  F f;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    const Offsets<2> at = index.at(i);
    out[i] = f(a.data[at.of[0]], b.data[at.of[1]]);
  }
};

template <class In, class Out, class F>
requires kInFours<In, Out>
struct Fours<BroadcastKernel<In, Out, F>> {
  using Kernel = BroadcastKernel<In, Out, F>;
  static bool fit(const Kernel& kernel) {
    return has_fours(kernel.a, kernel.index, 0) && has_fours(kernel.b, kernel.index, 1) &&
           has_fours(kernel.out);
  }
  LOCKSTEP_HD static void run(const Kernel& kernel, std::size_t i) {
    const Offsets<2> at = kernel.index.at(4 * i);
    const Four<In> a = read_four(kernel.a, kernel.index, at, 0);
    const Four<In> b = read_four(kernel.b, kernel.index, at, 1);
    write_four(kernel.out, i, map_fours<Out>(kernel.f, a, b));
  }
};

template <class In, class Out, class F>
struct CudaCall<detail::BroadcastCall<In, Out, F>> {
  using kernels = Kernels<BroadcastKernel<In, Out, F>>;
  static void run(detail::StreamState& stream, const detail::BroadcastCall<In, Out, F>& call) {
    launch_kernel(
        stream, call.out.size,
        BroadcastKernel<In, Out, F>{call.a, call.b, call.out, strided_index(call.walk), call.f});
  }
};

}  // namespace lockstep::cuda
