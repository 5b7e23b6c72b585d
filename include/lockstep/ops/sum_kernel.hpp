// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/elementwise.hpp>
#include <lockstep/ops/layout.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace lockstep::detail {

// Sums over some dimensions of a tensor with any strides.
//
// Floating-point sums are kept in double, in an order that only the shape decides: the same input
// gives the same bits. Integer sums wrap around.
template <class In, class Out>
struct SumCall {
  using Sum = std::conditional_t<std::is_integral_v<In>, std::uint64_t, double>;

  View<const In> in;
  View<Out> out;
  Walk<1> kept;  // in the order of the result
  Walk<1> reduced;
  double divisor;

  void operator()() const {
    const bool across = !kept.sizes.empty() &&
                        (reduced.sizes.empty() || kept.inner_stride(0) < reduced.inner_stride(0));
    if (across) {
      sum_across();
    } else {
      sum_along();
    }
  }

 private:
  // Where the innermost elements belong to different results: a block of results at once.
  void sum_across() const {
    constexpr std::int64_t kBlock = 64;
    const std::int64_t count = kept.inner_size();
    const std::int64_t step = kept.inner_stride(0);
    Out* to = out.data;
    kept.for_each_row([&](const auto& start) {
      for (std::int64_t first = 0; first < count; first += kBlock) {
        const auto width = static_cast<std::size_t>(std::min(kBlock, count - first));
        std::array<Sum, kBlock> sums{};
        reduced.for_each(reduced.sizes.size(), [&](const auto& offset) {
          const In* const from = in.data + start[0] + offset[0] + first * step;
          if (step == 1) {
            for (std::size_t i = 0; i < width; ++i) sums[i] += static_cast<Sum>(from[i]);
          } else {
            for (std::size_t i = 0; i < width; ++i) {
              sums[i] += static_cast<Sum>(from[static_cast<std::int64_t>(i) * step]);
            }
          }
        });
        for (std::size_t i = 0; i < width; ++i) *to++ = finish(sums[i]);
      }
    });
  }

  void sum_along() const {
    const std::int64_t count = reduced.inner_size();
    const std::int64_t step = reduced.inner_stride(0);
    Out* to = out.data;
    kept.for_each(kept.sizes.size(), [&](const auto& start) {
      Sum sum{};
      reduced.for_each_row([&](const auto& offset) {
        const In* const from = in.data + start[0] + offset[0];
        sum += step == 1 ? sum_row(from, count, [](std::int64_t i) { return i; })
                         : sum_row(from, count, [step](std::int64_t i) { return i * step; });
      });
      *to++ = finish(sum);
    });
  }

  // Several sums side by side, as one chain of additions waits for each of them.
  template <class At>
  static Sum sum_row(const In* from, std::int64_t count, const At& at) {
    constexpr std::int64_t kLanes = 8;
    std::array<Sum, kLanes> lanes{};
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (std::int64_t l = 0; l < kLanes; ++l) {
        lanes[static_cast<std::size_t>(l)] += static_cast<Sum>(from[at(i + l)]);
      }
    }
    for (std::size_t l = 0; i < count; ++i, ++l) lanes[l] += static_cast<Sum>(from[at(i)]);
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
           ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  }

  Out finish(Sum sum) const {
    if constexpr (std::is_integral_v<In>) {
      return static_cast<Out>(sum);
    } else {
      return static_cast<Out>(divisor == 1 ? sum : sum / divisor);
    }
  }
};

// The sum over the dimensions in `over`, divided; `shape` has the kept sizes in order.
// Floating-point tensors stay what they are, integers and booleans become i64. Not recorded.
inline Tensor sum_over(const Tensor& x, const std::bitset<Shape::kMaxDims>& over,
                       const Shape& shape, double divisor) {
  if (is_half_precision(x.dtype())) {
    return cast(sum_over(widened(x), over, shape, divisor), x.dtype());
  }
  std::array<Shape, 2> sizes;  // kept, reduced
  std::array<Shape, 2> strides;
  for (std::size_t d = 0; d < x.sizes().size(); ++d) {
    sizes[over[d]].push_back(x.sizes()[d]);
    strides[over[d]].push_back(x.strides()[d]);
  }
  const Stream stream = current_stream(x.device());
  Tensor result;
  const auto run = [&]<class In, class Out>(In, Out) {
    result = empty_on(stream, shape, dtype_of<Out>);
    if (result.numel() == 0) return;
    launch_call(stream, SumCall<In, Out>{strided_input<In>(x), output<Out>(result, stream),
                                         make_walk<1>(sizes[0], {strides[0]}),
                                         make_walk<1>(sizes[1], {strides[1]}), divisor});
  };
  if (x.dtype() == Dtype::boolean) {
    run(bool{}, std::int64_t{});
  } else if (x.dtype() == Dtype::u8) {
    run(std::uint8_t{}, std::int64_t{});
  } else {
    dispatch_numeric(x.dtype(), "sum", [&]<class T>(T element) {
      run(element, std::conditional_t<std::is_integral_v<T>, std::int64_t, T>{});
    });
  }
  return result;
}

// Every element divided by a number. Not recorded.
inline Tensor quotient(const Tensor& x, double divisor) {
  return compute_floating(x.dtype(), "div", [&]<class T>(T) {
    return map<T, T>(x, BindRight<T, Over<T>>{{}, static_cast<T>(divisor)});
  });
}

}  // namespace lockstep::detail
