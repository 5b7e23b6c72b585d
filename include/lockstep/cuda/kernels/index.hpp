// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/kernels/copy.hpp>
#include <lockstep/cuda/launch/index_fault.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/cuda/launch/strided_index.hpp>
#include <lockstep/ops/kernels/index_kernels.hpp>

#include <cstddef>
#include <cstdint>

namespace lockstep::cuda {

// An index outside the dimension gives zeros, and the host is told.
template <class T>
struct TakeElements {
  detail::TakeCall<T> call;
  View<IndexFault> fault;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    const detail::Taking& taking = call.taking;
    const Division row = divided(i, taking.inner);
    // A division is spared where there is one slice.
    const Division slice = row.quotient < taking.taken ? Division{0, row.quotient}
                                                       : divided(row.quotient, taking.taken);
    const std::size_t place = taking.for_each ? i : slice.remainder;
    const std::int64_t index = call.indices[place];
    if (!in_range(fault, taking.of, index, place, taking.count)) {
      call.out[i] = T{};
      return;
    }
    const std::size_t from = slice.quotient * taking.count + static_cast<std::size_t>(index);
    call.out[i] = call.in[from * taking.inner + row.remainder];
  }
};
template <class T>
struct CudaCall<detail::TakeCall<T>> {
  using kernels = Kernels<TakeElements<T>>;
  static void run(detail::StreamState& stream, const detail::TakeCall<T>& call) {
    launch_kernel(stream, call.out.size, TakeElements<T>{call, IndexFaults::instance().of(stream)});
  }
};

// One thread adds up all that comes for the elements with one o and one i, so that the order is
// that of the indices. What an index outside names is left out: forward has told the host.
template <class T>
struct AddTakenColumns {
  detail::AddTakenCall<T> call;

  LOCKSTEP_HD void operator()(std::size_t column) const {
    const detail::Taking& taking = call.taking;
    const Division at = divided(column, taking.inner);
    const std::size_t first = at.quotient * taking.taken * taking.inner + at.remainder;
    T* const to = call.out.data + at.quotient * taking.count * taking.inner + at.remainder;
    for (std::size_t k = 0; k < taking.taken; ++k) {
      const std::int64_t index = call.indices[first + k * taking.inner];
      if (index < 0 || static_cast<std::size_t>(index) >= taking.count) continue;
      to[static_cast<std::size_t>(index) * taking.inner] += call.grad[first + k * taking.inner];
    }
  }
};

template <class T>
struct CudaCall<detail::AddTakenCall<T>> {
  using kernels = Kernels<AddTakenColumns<T>>;
  static void run(detail::StreamState& stream, const detail::AddTakenCall<T>& call) {
    if (call.grad.size == 0) return;
    launch_kernel(stream, call.grad.size / call.taking.taken, AddTakenColumns<T>{call});
  }
};

using IndexCalls =
    Join<ForMoved<detail::TakeCall>::type, ForFloating<detail::AddTakenCall>::type>::type;

}  // namespace lockstep::cuda
