// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/kernels/copy.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/cuda/launch/strided_index.hpp>
#include <lockstep/ops/kernels/where_kernels.hpp>

#include <cstddef>

namespace lockstep::cuda {

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

using WhereCalls = ForMoved<detail::WhereCall>::type;

}  // namespace lockstep::cuda
