// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host_device.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/launch/strided_index.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>

#include <cstddef>
#include <cstdint>

// Kernels over single elements, which take four of 4 bytes or less at a time where they can. A
// thread has one read under way for each of its operands, and a GPU's memory is only busy if that
// is a long one, of 16 bytes at best.
namespace lockstep::cuda {

template <class T>
struct alignas(4 * sizeof(T)) Four {
  T of[4];
};

// Whether elements are taken by fours.
template <class... T>
inline constexpr bool kInFours = ((sizeof(T) <= 4) && ...);

// The elements 4i to 4i + 3, which lie at a multiple of their size.
template <class T>
LOCKSTEP_HD Four<T> read_four(const View<const T>& view, std::size_t i) {
  return reinterpret_cast<const Four<T>*>(view.data)[i];
}
template <class T>
LOCKSTEP_HD void write_four(const View<T>& view, std::size_t i, const Four<T>& four) {
  reinterpret_cast<Four<T>*>(view.data)[i] = four;
}
template <class T>
bool has_fours(const View<T>& view) {
  return reinterpret_cast<std::uintptr_t>(view.data) % alignof(Four<T>) == 0;
}

// The same of operand n of a StridedIndex, at the offsets of place 4i.
template <class T, std::size_t N>
bool has_fours(const View<T>& view, const StridedIndex<N>& index, std::size_t n) {
  return index.has_fours(n) && (index.repeats(n) || has_fours(view));
}
template <class T, std::size_t N>
LOCKSTEP_HD Four<T> read_four(const View<const T>& view, const StridedIndex<N>& index,
                              const Offsets<N>& at, std::size_t n) {
  if (!index.repeats(n)) return read_four(view, static_cast<std::size_t>(at.of[n]) / 4);
  const T same = view.data[at.of[n]];
  return {{same, same, same, same}};
}

// f of each four elements of some operands.
template <class Out, class F, class... In>
LOCKSTEP_HD Four<Out> map_fours(const F& f, const Four<In>&... in) {
  Four<Out> out;
  for (std::size_t k = 0; k < 4; ++k) out.of[k] = f(in.of[k]...);
  return out;
}

// Of a functor whose kernel can take four elements at a time: whether it can with these operands,
// and the work itself, for the elements 4i to 4i + 3.
template <class F>
struct Fours;
template <class F>
concept HasFours = requires(const F& functor) {
  Fours<F>::fit(functor);
};

template <class In, class Out, class F>
requires kInFours<In, Out>
struct Fours<detail::UnaryKernel<In, Out, F>> {
  using Kernel = detail::UnaryKernel<In, Out, F>;
  static bool fit(const Kernel& kernel) { return has_fours(kernel.in) && has_fours(kernel.out); }
  LOCKSTEP_HD static void run(const Kernel& kernel, std::size_t i) {
    write_four(kernel.out, i, map_fours<Out>(kernel.f, read_four(kernel.in, i)));
  }
};

template <class In, class Out, class F>
requires kInFours<In, Out>
struct Fours<detail::BinaryKernel<In, Out, F>> {
  using Kernel = detail::BinaryKernel<In, Out, F>;
  static bool fit(const Kernel& kernel) {
    return has_fours(kernel.a) && has_fours(kernel.b) && has_fours(kernel.out);
  }
  LOCKSTEP_HD static void run(const Kernel& kernel, std::size_t i) {
    const Four<Out> out = map_fours<Out>(kernel.f, read_four(kernel.a, i), read_four(kernel.b, i));
    write_four(kernel.out, i, out);
  }
};

// Whether a functor takes its elements by fours.
template <class F>
bool by_fours([[maybe_unused]] const F& functor) {
  if constexpr (HasFours<F>) return Fours<F>::fit(functor);
  return false;
}

// What one of so many threads does of functor(i) for each i below `count`; `fours`: what by_fours
// says of the functor.
template <class F>
LOCKSTEP_HD void run_thread(std::size_t thread, std::size_t threads, std::size_t count,
                            const F& functor, [[maybe_unused]] bool fours) {
  std::size_t i = thread;
  if constexpr (HasFours<F>) {
    if (fours) {
      const std::size_t whole = count / 4;
      for (; i < whole; i += threads) Fours<F>::run(functor, i);
      i += 3 * whole;  // the elements after the last four
    }
  }
  for (; i < count; i += threads) functor(i);
}

}  // namespace lockstep::cuda
