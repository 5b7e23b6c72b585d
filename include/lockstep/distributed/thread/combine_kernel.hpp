// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host_device.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>

#include <cstddef>
#include <type_traits>

// How two ranks' elements are combined, on hosts and on GPUs.
namespace lockstep::distributed::detail {

using lockstep::detail::is_half;

// The type in which elements of T are combined.
template <class T>
using Wide = std::conditional_t<is_half<T>, float, T>;

// Integers wrap around on overflow.
template <class T, ReduceOp Op>
LOCKSTEP_HD T combine_two(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return Op == ReduceOp::product || Op == ReduceOp::min ? a && b : a || b;
  } else if constexpr (Op == ReduceOp::min) {
    return b < a || b != b ? b : a;
  } else if constexpr (Op == ReduceOp::max) {
    return a < b || b != b ? b : a;
  } else {
    using U = lockstep::detail::Wrapping<T>;
    return static_cast<T>(Op == ReduceOp::product ? static_cast<U>(a) * static_cast<U>(b)
                                                  : static_cast<U>(a) + static_cast<U>(b));
  }
}

// out[i] = before[i] op next[i], divided by `ranks`, the number of summands, unless that is 0.
template <class T>
struct CombineKernel {
  View<const Wide<T>> before;
  View<const T> next;
  View<Wide<T>> out;
  ReduceOp op;
  float ranks;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    Wide<T> result = combine(before[i], lockstep::detail::convert<Wide<T>>(next[i]));
    if constexpr (std::is_floating_point_v<Wide<T>>) {
      if (ranks != 0) result /= static_cast<Wide<T>>(ranks);
    }
    out[i] = result;
  }

 private:
  LOCKSTEP_HD Wide<T> combine(Wide<T> a, Wide<T> b) const {
    switch (op) {
      case ReduceOp::product:
        return combine_two<Wide<T>, ReduceOp::product>(a, b);
      case ReduceOp::min:
        return combine_two<Wide<T>, ReduceOp::min>(a, b);
      case ReduceOp::max:
        return combine_two<Wide<T>, ReduceOp::max>(a, b);
      default:
        return combine_two<Wide<T>, ReduceOp::sum>(a, b);
    }
  }
};

}  // namespace lockstep::distributed::detail
