// SPDX-License-Identifier: Apache-2.0
#pragma once

// In front of lockstep's other headers, whose kernels name what is declared here. They never run on
// the simulated runtime, so that any compiler takes them.
#define LOCKSTEP_CUDA_WITHOUT_NVCC
#include <device_launch_parameters.h>

inline const uint3 threadIdx{};
inline const uint3 blockIdx{};
inline const dim3 blockDim;
inline const dim3 gridDim;

#include <lockstep/backend/together_kernel.hpp>
#include <lockstep/cuda/launch/fours.hpp>
#include <lockstep/cuda/launch/index_fault.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/module/walk/reflect.hpp>

#include <cudasim/cudasim.hpp>

#include <concepts>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <vector>

// What the simulated runtime must know of lockstep's kernels: each runs as its host twin, the same
// functor over the same range as one thread would, by fours where a GPU takes them, and touches
// what the functor's Views cover.
namespace cudasim::twins {

namespace ls = lockstep;
using ls::cuda::Kernels;

template <class T>
void add_uses(const ls::View<T>& view, std::vector<MemoryUse>& uses) {
  if (view.size == 0) return;
  uses.push_back({view.data, view.size * sizeof(T), !std::is_const_v<T>});
}

inline void add_uses(const ls::View<ls::cuda::IndexFault>& fault, std::vector<MemoryUse>& uses) {
  uses.push_back({.data = fault.data, .bytes = sizeof(*fault.data), .write = true, .shared = true});
}

template <class T>
void add_uses(const T& value, std::vector<MemoryUse>& uses) {
  if constexpr (std::is_class_v<T> && std::is_aggregate_v<T> && !std::is_empty_v<T>) {
    std::apply([&](const auto&... members) { (add_uses(members, uses), ...); },
               ls::detail::tie_members(value));
  }
}

template <class F, std::size_t bytes>
void add_uses(const ls::detail::TogetherKernel<F, bytes>& together, std::vector<MemoryUse>& uses) {
  for (std::size_t k = 0; k < together.count; ++k) add_uses(together.each[k], uses);
}

template <class F>
std::function<void()> twin(void** arguments, std::vector<MemoryUse>& uses) {
  const std::size_t count = *static_cast<const std::size_t*>(arguments[0]);
  const F functor = *static_cast<const F*>(arguments[1]);
  add_uses(functor, uses);
  if constexpr (ls::cuda::RowFunctor<F>) {
    return [count, functor] {
      for (std::size_t i = 0; i < count; ++i) functor(i, ls::cuda::Lanes{});
    };
  } else {
    const bool fours = *static_cast<const bool*>(arguments[2]);
    return [count, functor, fours] { ls::cuda::run_thread(0, 1, count, functor, fours); };
  }
}

template <class F>
void register_kernel() {
  if constexpr (ls::cuda::RowFunctor<F>) {
    cudasim::register_twin(reinterpret_cast<const void*>(&ls::cuda::rows_kernel<F>),
                           typeid(F).name(), &twin<F>);
  } else {
    cudasim::register_twin(reinterpret_cast<const void*>(&ls::cuda::range_kernel<F>),
                           typeid(F).name(), &twin<F>);
  }
}

template <class... F>
void register_kernels(Kernels<F...>);

// Of a list, all of them; of a Call, those of what it launches.
template <class F>
bool register_one() {
  if constexpr (std::derived_from<F, ls::cuda::KernelList>) {
    register_kernels(F());
  } else if constexpr (ls::cuda::IsCall<F>) {
    register_kernels(typename ls::cuda::CudaCall<F>::kernels{});
  } else {
    register_kernel<F>();
  }
  return true;
}

// (No fold: compilers limit the depth of an expression.)
template <class... F>
void register_kernels(Kernels<F...>) {
  [[maybe_unused]] const std::initializer_list<bool> registered{register_one<F>()...};
}

}  // namespace cudasim::twins
