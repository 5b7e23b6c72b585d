// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/config.hpp>
#include <lockstep/cuda/launch/fours.hpp>
#include <lockstep/cuda/launch/lanes.hpp>
#include <lockstep/device/stream.hpp>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <typeinfo>

namespace lockstep::cuda {

// A list of functors, and of other lists.
struct KernelList {};
template <class... F>
struct Kernels : KernelList {};

// One template for several element types. (Structs, as nvcc drops an alias template's pack.)
template <template <class> class F, class... T>
struct ForEach : Kernels<F<T>...> {};
template <template <class> class... F>
struct ForFloating : Kernels<ForEach<F, float, double>...> {};
template <template <class> class F>
struct ForNumeric : ForEach<F, float, double, std::int64_t, std::int32_t> {};

// How a library call runs on a GPU: a specialisation for each Call that `launch_call` takes has
//   using kernels = Kernels<…>;                              // what it launches itself
//   static void run(detail::StreamState& stream, const Call& call);
template <class Call>
struct CudaCall;

template <class F>
__global__ void range_kernel(std::size_t count, F functor, bool fours) {
  run_thread(std::size_t{blockIdx.x} * blockDim.x + threadIdx.x,
             std::size_t{gridDim.x} * blockDim.x, count, functor, fours);
}

template <class F>
__global__ void rows_kernel(std::size_t rows, F functor, unsigned lanes_of_row) {
  const Lanes lanes{threadIdx.x % lanes_of_row, lanes_of_row};
  const std::size_t at_once = blockDim.x / lanes_of_row;
  const std::size_t step = std::size_t{gridDim.x} * at_once;
  for (std::size_t row = blockIdx.x * at_once + threadIdx.x / lanes_of_row; row < rows;
       row += step) {
    functor(row, lanes);
  }
}

// Launches one of the two kernels above on a stream, with `a_block` of its items a block. Out of
// line, so that it is compiled once and not once a functor.
void launch_erased(detail::StreamState& stream, std::size_t count, std::size_t a_block,
                   const void* kernel, void** arguments, const std::type_info& functor);

// Runs functor(i), or functor(row, lanes), for each i below `count` on a stream.
template <class F>
void launch_kernel(detail::StreamState& stream, std::size_t count, const F& functor) {
  if (count == 0) return;
  if constexpr (RowFunctor<F>) {
    unsigned lanes = lanes_of_row(functor);
    void* arguments[] = {&count, const_cast<F*>(&functor), &lanes};
    launch_erased(stream, count, kThreads / lanes, reinterpret_cast<const void*>(&rows_kernel<F>),
                  arguments, typeid(F));
  } else {
    bool fours = by_fours(functor);
    void* arguments[] = {&count, const_cast<F*>(&functor), &fours};
    launch_erased(stream, count, fours ? 4 * kThreads : kThreads,
                  reinterpret_cast<const void*>(&range_kernel<F>), arguments, typeid(F));
  }
}

// A CudaCall with one kernel, which has the Call as its only member `call`, and a thread for each
// element of the call's `out`.
template <class Kernel>
struct ElementCall {
  using kernels = Kernels<Kernel>;
  static void run(detail::StreamState& stream, const decltype(Kernel::call)& call) {
    launch_kernel(stream, call.out.size, Kernel{call});
  }
};

// The same with a row functor, whose members are `call` and `by_thread`, for the rows along the
// call's `axis`: each has a single thread where neighbours in memory are of different rows.
template <class Kernel>
struct AxisCall {
  using kernels = Kernels<Kernel>;
  static void run(detail::StreamState& stream, const decltype(Kernel::call)& call) {
    if (call.out.size == 0) return;
    launch_kernel(stream, call.axis.outer * call.axis.inner,
                  Kernel{call, call.axis.inner >= kLanes});
  }
};

// Whether a functor is a Call that has a CudaCall.
template <class F>
concept IsCall = requires {
  typename CudaCall<F>::kernels;
};

template <class F>
void launch_slot(detail::StreamState& stream, std::size_t count, const void* functor) {
  if constexpr (IsCall<F>) {
    CudaCall<F>::run(stream, *static_cast<const F*>(functor));
  } else {
    launch_kernel(stream, count, *static_cast<const F*>(functor));
  }
}

template <class... F>
void fill_slots(Kernels<F...>);

// The slot of a functor, or all those of a list.
template <class F>
bool fill_one() {
  if constexpr (std::derived_from<F, KernelList>) {
    fill_slots(F());
  } else {
    detail::kernel_slot<F>.store(&launch_slot<F>, std::memory_order_release);
  }
  return true;
}

// (No fold: compilers limit the depth of an expression.)
template <class... F>
void fill_slots(Kernels<F...>) {
  [[maybe_unused]] const std::initializer_list<bool> filled{fill_one<F>()...};
}

}  // namespace lockstep::cuda

#if defined(LOCKSTEP_CUDA_DEFINITIONS)
#include <lockstep/cuda/launch/impl/kernel.ipp>
#endif
