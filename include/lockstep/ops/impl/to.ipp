// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/element.hpp>
#include <lockstep/tensor/scalar.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cmath>
#include <cstdint>

namespace lockstep::detail {

struct ToDeviceOp {
  static constexpr const char* name = "to";
  Device device;
  Device from = {};

  Tensor forward(const Tensor& x) {
    from = x.device();
    return copy_as(x, {.dtype = x.dtype(), .device = device});
  }
  Tensor backward(const Backward&, const Tensor& grad) const { return grad.to(from); }
};

struct ToDtypeOp {
  static constexpr const char* name = "to";
  Dtype dtype;
  Dtype from = {};

  Tensor forward(const Tensor& x) {
    from = x.dtype();
    return cast(x, dtype);
  }
  Tensor backward(const Backward&, const Tensor& grad) const { return grad.to(from); }
};

struct CloneOp {
  static constexpr const char* name = "clone";
  Tensor forward(const Tensor& x) const { return copy_as(x, x.options()); }
  Tensor backward(const Backward&, const Tensor& grad) const { return grad; }
};

LOCKSTEP_INLINE Scalar number_of(const Tensor& x) {
  check<ShapeError>(x.numel() == 1, "item: a tensor of shape ", x.sizes(), " with ", x.numel(),
                    " elements cannot be converted to one number");
  const Tensor host = contiguous_on_host(x);
  const void* const element = read_on_host(host, x.dtype());
  return dispatch_all(x.dtype(), [element]<class T>(T) -> Scalar {
    const T held = *static_cast<const T*>(element);
    if constexpr (is_half<T>) {
      return static_cast<float>(held);
    } else {
      return held;
    }
  });
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor Tensor::to(Device device) const {
  detail::check_defined("to", "the tensor", *this);
  return this->device() == device ? *this : apply(detail::ToDeviceOp{device}, *this);
}

LOCKSTEP_INLINE Tensor Tensor::to(Dtype dtype) const {
  detail::check_defined("to", "the tensor", *this);
  if (this->dtype() == dtype) return *this;
  if (!is_floating_point(dtype)) return detail::cast(*this, dtype);
  return apply(detail::ToDtypeOp{dtype}, *this);
}

LOCKSTEP_INLINE Tensor Tensor::clone() const { return apply(detail::CloneOp{}, *this); }

LOCKSTEP_INLINE double Tensor::item() const {
  const auto number = item<double>();
  if (dtype() == Dtype::i64 && std::abs(number) > 0x1p52) {
    const auto whole = item<std::int64_t>();
    check<DtypeError>(
        detail::fits_in<std::int64_t>(number) && static_cast<std::int64_t>(number) == whole,
        "item: no double is ", whole, ": ask for item<std::int64_t>()");
  }
  return number;
}

// For files that see only their declarations (tensor.hpp).
#if defined(LOCKSTEP_SEPARATE_COMPILATION)
#define LOCKSTEP_READ_AS(T)           \
  template T Tensor::item<T>() const; \
  template std::vector<T> Tensor::to_vector<T>() const;
LOCKSTEP_READ_AS(float)
LOCKSTEP_READ_AS(double)
LOCKSTEP_READ_AS(Half)
LOCKSTEP_READ_AS(BFloat16)
LOCKSTEP_READ_AS(std::int64_t)
LOCKSTEP_READ_AS(std::int32_t)
LOCKSTEP_READ_AS(std::uint8_t)
LOCKSTEP_READ_AS(bool)
#undef LOCKSTEP_READ_AS
#endif

}  // namespace lockstep
