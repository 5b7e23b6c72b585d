// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <vector>

// The members of Tensor that move data to another device or dtype, or out to the program.
namespace lockstep {

namespace detail {

struct ToDeviceOp {
  static constexpr const char* name = "to";
  Device device;
  Device from = {};

  Tensor forward(const Tensor& x) {
    from = x.device();
    Tensor result = empty(x.sizes(), {.dtype = x.dtype(), .device = device});
    copy_into(result, x);
    return result;
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
  Tensor forward(const Tensor& x) const {
    Tensor result = empty(x.sizes(), x.options());
    copy_into(result, x);
    return result;
  }
  Tensor backward(const Backward&, const Tensor& grad) const { return grad; }
};

// A contiguous tensor with the same elements that the host can read.
inline Tensor on_host(const Tensor& x) {
  if (x.device().is_cpu()) return packed(x);
  Tensor host = empty(x.sizes(), {.dtype = x.dtype()});
  copy_into(host, x);
  return host;
}

}  // namespace detail

// The tensor on another device; the tensor itself if it is there.
//
// **Torch counterpart.** torch.Tensor.to(device).
// **Devices and streams.** On the destination's current stream, after what is on the source's; a
// copy to plain host memory has ended when this returns.
// **Backward.** Brings the gradient back to the source's device.
inline Tensor Tensor::to(Device device) const {
  return this->device() == device ? *this : apply(detail::ToDeviceOp{device}, *this);
}

// The elements converted; the tensor itself if it is of that dtype. A conversion to integers or
// booleans ends the gradient's way.
//
// **Torch counterpart.** torch.Tensor.to(dtype).
inline Tensor Tensor::to(Dtype dtype) const {
  if (this->dtype() == dtype) return *this;
  if (!is_floating_point(dtype)) return detail::cast(*this, dtype);
  return apply(detail::ToDtypeOp{dtype}, *this);
}

// A contiguous copy with memory of its own.
//
// **Torch counterpart.** torch.Tensor.clone.
inline Tensor Tensor::clone() const { return apply(detail::CloneOp{}, *this); }

template <class T>
T Tensor::item() const {
  check<ShapeError>(numel() == 1, "item: a tensor of shape ", sizes(), " with ", numel(),
                    " elements cannot be converted to one number");
  const Tensor host = detail::on_host(*this);
  return dispatch_all(
      dtype(), [&]<class Held>(Held) { return detail::convert<T>(*host.const_data_ptr<Held>()); });
}

inline double Tensor::item() const { return item<double>(); }

template <Element T>
std::vector<T> Tensor::to_vector() const {
  const Tensor host = detail::on_host(*this);
  const T* const first = host.const_data_ptr<T>();
  return std::vector<T>(first, first + numel());
}

}  // namespace lockstep
