// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host_device.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/launch/strided_index.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>

#include <cstddef>
#include <cstdint>

// Kernels over single elements, which take four of 4 bytes at a time where they can. A thread has
// one read under way for each of its operands, and a GPU's memory is only busy if that is one of 16
// bytes.
namespace lockstep::cuda {

template <class T>
struct alignas(16) Four {
  T of[4];
};

// The elements 4i to 4i + 3, which lie at a multiple of 16 bytes.
template <class T>
LOCKSTEP_HD Four<T> read_four(const View<const T>& view, std::size_t i) {
  return reinterpret_cast<const Four<T>*>(view.data)[i];
}
template <class T>
LOCKSTEP_HD void write_four(const View<T>& view, std::size_t i, const Four<T>& four) {
  reinterpret_cast<Four<T>*>(view.data)[i] = four;
}
template <class T>
LOCKSTEP_HD bool has_fours(const View<T>& view) {
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

// Of a functor: whether its kernel can take four elements at a time; if so, whether it can with
// these operands, and the work itself, for the elements 4i to 4i + 3.
template <class F>
struct Fours {
  static constexpr bool possible = false;
};

template <class In, class Out, class F>
requires(sizeof(In) == 4 && sizeof(Out) == 4) struct Fours<detail::UnaryKernel<In, Out, F>> {
  using Kernel = detail::UnaryKernel<In, Out, F>;
  static constexpr bool possible = true;
  LOCKSTEP_HD static bool fit(const Kernel& kernel) {
    return has_fours(kernel.in) && has_fours(kernel.out);
  }
  LOCKSTEP_HD static void run(const Kernel& kernel, std::size_t i) {
    const Four<In> in = read_four(kernel.in, i);
    Four<Out> out;
    for (std::size_t k = 0; k < 4; ++k) out.of[k] = kernel.f(in.of[k]);
    write_four(kernel.out, i, out);
  }
};

template <class In, class Out, class F>
requires(sizeof(In) == 4 && sizeof(Out) == 4) struct Fours<detail::BinaryKernel<In, Out, F>> {
  using Kernel = detail::BinaryKernel<In, Out, F>;
  static constexpr bool possible = true;
  LOCKSTEP_HD static bool fit(const Kernel& kernel) {
    return has_fours(kernel.a) && has_fours(kernel.b) && has_fours(kernel.out);
  }
  LOCKSTEP_HD static void run(const Kernel& kernel, std::size_t i) {
    const Four<In> a = read_four(kernel.a, i);
    const Four<In> b = read_four(kernel.b, i);
    Four<Out> out;
    for (std::size_t k = 0; k < 4; ++k) out.of[k] = kernel.f(a.of[k], b.of[k]);
    write_four(kernel.out, i, out);
  }
};

// What one of so many threads does of functor(i) for each i below `count`.
template <class F>
LOCKSTEP_HD void run_thread(std::size_t thread, std::size_t threads, std::size_t count,
                            const F& functor) {
  std::size_t i = thread;
  if constexpr (Fours<F>::possible) {
    if (Fours<F>::fit(functor)) {
      const std::size_t fours = count / 4;
      for (; i < fours; i += threads) Fours<F>::run(functor, i);
      i += 3 * fours;  // the elements after the last four
    }
  }
  for (; i < count; i += threads) functor(i);
}

}  // namespace lockstep::cuda
