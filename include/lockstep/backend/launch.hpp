// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host_device.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>

#include <atomic>
#include <cstddef>
#include <typeinfo>

// Put before an element-wise loop: its iterations do not depend on one another, even where the
// output is the input. Otherwise g++ checks for every pair of pointers whether they overlap.
#if defined(__GNUC__) && !defined(__clang__)
#define LOCKSTEP_INDEPENDENT _Pragma("GCC ivdep")
#else
#define LOCKSTEP_INDEPENDENT
#endif

namespace lockstep {

// What a functor sees of a tensor: contiguous elements, or any range of them. `View<const T>`
// members are what a kernel reads, `View<T>` members what it writes (and may read); there is no
// other way to tell what a launch touches, so a functor holds no raw pointer.
template <class T>
struct View {
  T* data = nullptr;
  std::size_t size = 0;
  LOCKSTEP_HD T& operator[](std::size_t i) const { return data[i]; }
};

namespace detail {

// How a file that g++ or clang compiles gets its kernel onto a GPU: one slot a functor, filled by
// the CUDA side for the library's own functors (a user's functor takes one line in a .cu file).
using Launcher = void (*)(StreamState& stream, std::size_t count, const void* functor);
template <class F>
inline constinit std::atomic<Launcher> kernel_slot{nullptr};

// The slot of what GPUs compute in another way: nobody fills it.
inline constinit std::atomic<Launcher> no_kernel{nullptr};

using HostKernel = void (*)(std::size_t count, const void* functor);

// The host's kernels. The functor is copied first: then no write of the loop can change it.
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

// Launches a functor of any type, given as its bytes, unless `count` is 0; compiled once.
void launch_bytes(const Stream& stream, std::size_t count, const void* functor, std::size_t size,
                  HostKernel on_host, const std::atomic<Launcher>& on_gpu,
                  const std::type_info& type);

// The same for a functor of type F.
template <class F>
void launch_as(HostKernel on_host, const Stream& stream, std::size_t count, const F& functor,
               const std::atomic<Launcher>& on_gpu = kernel_slot<F>) {
  // The compiler's own trait: std's has it instantiate ten class templates for each functor.
  static_assert(__is_trivially_copyable(F) && alignof(F) <= alignof(std::max_align_t),
                "a kernel functor is copied as bytes");
  launch_bytes(stream, count, &functor, sizeof(F), on_host, on_gpu, typeid(F));
}

}  // namespace detail

// Runs `functor(i)` for each i in [0, count) on a stream, in any order and on a GPU at once.
//
// The functor is a trivially copyable struct whose members are Views and numbers; its operator() is
// const and marked LOCKSTEP_HD. If it has a member `on_host(count)`, which is const and does the
// same for all i, or `on_host(begin, end)` for those of a range, host devices call that one.
//
// **Devices and streams.** Ordered like all work of `stream`; the memory behind the Views must be
// usable there.
// **Threads and exceptions.** A DeviceError on a GPU for which no kernel of type F is registered.
template <class F>
void launch(const Stream& stream, std::size_t count, const F& functor) {
  detail::launch_as(&detail::run_each<F>, stream, count, functor);
}

// Runs `call()` once on a stream: a library call, or an algorithm with a loop of its own. As with
// `launch`, its View members are what it reads and writes. Host devices run operator(); for GPUs
// the slot has another implementation.
template <class F>
void launch_call(const Stream& stream, const F& call) {
  detail::launch_as(&detail::run_once<F>, stream, 1, call);
}

// The same for what only host devices do so: there is no slot to fill, and a DeviceError on a GPU.
template <class F>
void launch_on_host(const Stream& stream, const F& call) {
  detail::launch_as(&detail::run_once<F>, stream, 1, call, detail::no_kernel);
}

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/backend/impl/launch.ipp>
#endif
