// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host_device.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>

#include <atomic>
#include <cstddef>
#include <typeinfo>

// Put before an elementwise loop whose iterations are independent even if the output is the input.
// Otherwise g++ checks every pair of pointers for overlap.
#if defined(__GNUC__) && !defined(__clang__)
#define LOCKSTEP_INDEPENDENT _Pragma("GCC ivdep")
#else
#define LOCKSTEP_INDEPENDENT
#endif

namespace lockstep {

// What a functor sees of a tensor: contiguous elements, or a range of them. A kernel reads its
// `View<const T>` members and writes (and may read) its `View<T>` members. This alone tells what a
// launch touches, so a functor holds no raw pointer.
template <class T>
struct View {
  T* data = nullptr;
  std::size_t size = 0;
  LOCKSTEP_HD T& operator[](std::size_t i) const { return data[i]; }
};

namespace detail {

// How a file compiled by g++ or clang gets a kernel onto a GPU: one slot per functor, which the
// CUDA side fills for the library's own (a user's functor takes one line in a .cu file).
using Launcher = void (*)(StreamState& stream, std::size_t count, const void* functor);
template <class F>
inline constinit std::atomic<Launcher> kernel_slot{nullptr};

// The slot for what GPUs compute in another way; nobody fills it.
inline constinit std::atomic<Launcher> no_kernel{nullptr};

using HostKernel = void (*)(std::size_t count, const void* functor);

// The host's kernels. They copy the functor first, so that no write of the loop can change it.
template <class F>
void run_each(std::size_t count, const void* functor) {
  const F each = *static_cast<const F*>(functor);
  if constexpr (requires { each.on_host(count); }) {
    each.on_host(count);
  } else if constexpr (requires { each.on_host(std::size_t{}, count); }) {
    each.on_host(0, count);
  } else {
    LOCKSTEP_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) each(i);
  }
}

template <class F>
void run_once(std::size_t, const void* functor) {
  (*static_cast<const F*>(functor))();
}

// Launches a functor of any type, given as bytes, unless `count` is 0. Compiled once.
void launch_bytes(const Stream& stream, std::size_t count, const void* functor, std::size_t size,
                  HostKernel on_host, const std::atomic<Launcher>& on_gpu,
                  const std::type_info& type);

// The same for a functor of type F.
template <class F>
void launch_as(HostKernel on_host, const Stream& stream, std::size_t count, const F& functor,
               const std::atomic<Launcher>& on_gpu = kernel_slot<F>) {
  // The compiler's own trait: std's instantiates ten class templates for each functor.
  static_assert(__is_trivially_copyable(F) && alignof(F) <= alignof(std::max_align_t),
                "a kernel functor is copied as bytes");
  launch_bytes(stream, count, &functor, sizeof(F), on_host, on_gpu, typeid(F));
}

}  // namespace detail

// Runs `functor(i)` for each i in [0, count) on a stream, in any order, and on a GPU in parallel.
//
// The functor is a trivially copyable struct of Views and numbers with a const operator() marked
// LOCKSTEP_HD. Host devices prefer a const member `on_host(count)`, which does all i, or
// `on_host(begin, end)`, which does a range.
//
// **Devices and streams.** Work of `stream`, which must be able to use the memory behind the Views.
// **Threads and exceptions.** A DeviceError on a GPU if no kernel of type F is registered.
template <class F>
void launch(const Stream& stream, std::size_t count, const F& functor) {
  detail::launch_as(&detail::run_each<F>, stream, count, functor);
}

// Runs `call()` once on a stream: a library call, or an algorithm with its own loop. As with
// `launch`, its View members are what it reads and writes. Host devices run operator(); GPUs run
// another implementation from the slot.
template <class F>
void launch_call(const Stream& stream, const F& call) {
  detail::launch_as(&detail::run_once<F>, stream, 1, call);
}

// The same for what only host devices do like this: a DeviceError on a GPU.
template <class F>
void launch_on_host(const Stream& stream, const F& call) {
  detail::launch_as(&detail::run_once<F>, stream, 1, call, detail::no_kernel);
}

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/backend/impl/launch.ipp>
#endif
