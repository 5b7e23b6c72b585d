// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/dropout.hpp>
#include <lockstep/ops/kernels/dropout_kernel.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/current_replica.hpp>
#include <lockstep/tensor/device_random.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/random.hpp>

#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

// Linear, and its own transpose: backward draws the same numbers again, so nothing is saved.
struct DropoutOp {
  static constexpr const char* name = "dropout";
  double p;
  RandomRange random;

  Tensor forward(const Tensor& x) const {
    const Tensor in = packed_wide(x);
    const Stream stream = current_stream(x.device());
    return compute_elements(x.dtype(), name, [&]<class T>(T) {
      Tensor out = empty_on(stream, x.sizes(), dtype_of<T>);
      launch(stream, static_cast<std::size_t>(in.numel()),
             DropoutKernel<T>{input<T>(in), output<T>(out, stream), random,
                              static_cast<std::uint64_t>(p * 0x1p53),
                              p < 1 ? static_cast<T>(1 / (1 - p)) : T(0)});
      return out;
    });
  }
  Tensor backward(const Backward&, const Tensor& grad) const {
    return apply(DropoutOp{p, random}, grad);
  }
};

LOCKSTEP_INLINE void check_probability(const char* operation, double p) {
  check<ValueError>(p >= 0 && p <= 1, operation,
                    ": dropout probability has to be between 0 and 1, but got ", p);
}

LOCKSTEP_INLINE RandomRange dropout_numbers(Device device, std::int64_t count) {
  return device_random().take(device, current_replica.index, static_cast<std::size_t>(count));
}

LOCKSTEP_INLINE Tensor dropout_by(const Tensor& x, double p, const RandomRange& random) {
  return apply(DropoutOp{p, random}, x);
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor dropout(const Tensor& x, double p, bool training) {
  detail::check_probability("dropout", p);
  if (!training || p == 0) return x;
  detail::check_defined("dropout", "the input", x);
  return detail::dropout_by(x, p, detail::dropout_numbers(x.device(), x.numel()));
}

}  // namespace lockstep
