// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <cstdint>
#include <vector>

namespace lockstep {

// What scatter, gather and DataParallel need to know of a tensor type. Specialise it for another
// library's tensor, or for a structure that should be split in a way of its own.
//
// A type without a specialisation is walked if it is a container, or a plain aggregate but not a
// module. Any other type goes to every device as it is, but is refused if it may hold tensors (see
// Scatterable) or looks like one: if it has a member function `sizes`, `shape`, `dims`, `dim` or
// `ndim`, or `rows` and `cols`.
//
// A specialisation has these static members; if one is missing, the compiler's message names it:
//
//   bool defined(const T&)                           false: no tensor; stays so everywhere
//   Device device(const T&)
//   std::int64_t dim(const T&)                       number of dimensions; 0: not split, but copied
//                                                    to every device
//   std::int64_t size(const T&, std::int64_t dim)    rows along dim, which may be negative
//   std::vector<T> scatter(const T&, const std::vector<Device>&,
//                          const std::vector<std::int64_t>& sizes, std::int64_t dim)
//   std::vector<T> broadcast(const T&, const std::vector<Device>&)
//   T gather(const std::vector<T>&, Device, std::int64_t dim)
//
// and these, if they are needed:
//
//   T weighted_sum(const std::vector<T>& scalars, const std::vector<double>& weights, Device)
//                                                    for sums and means of scalar outputs
//   void record_stream(const T&, const Stream&)      keeps the memory until the stream is done with
//                                                    it: for a GPU listed several times, where each
//                                                    replica has its own stream
//   bool is_on(const T&, Device)                     whether the device can use it without a copy;
//                                                    default: device(t) == device
//
// Those that return a T are differentiable if the type is, and order their work on streams
// themselves.
template <class T>
struct tensor_traits;

template <>
struct tensor_traits<Tensor> {
  static bool defined(const Tensor& tensor) { return tensor.defined(); }
  static Device device(const Tensor& tensor) { return tensor.device(); }
  static std::int64_t dim(const Tensor& tensor) { return tensor.dim(); }
  static std::int64_t size(const Tensor& tensor, std::int64_t dim) { return tensor.size(dim); }

  static void record_stream(const Tensor& tensor, const Stream& stream) {
    tensor.record_stream(stream);
  }

  static std::vector<Tensor> scatter(const Tensor& tensor, const std::vector<Device>& devices,
                                     const std::vector<std::int64_t>& sizes, std::int64_t dim);
  static std::vector<Tensor> broadcast(const Tensor& tensor, const std::vector<Device>& devices);
  static Tensor gather(const std::vector<Tensor>& tensors, Device device, std::int64_t dim);
  static Tensor weighted_sum(std::vector<Tensor> scalars, const std::vector<double>& weights,
                             Device device);
};

namespace detail {

template <class T>
concept HasTensorTraits = requires {
  sizeof(tensor_traits<T>);
};

// Which members the specialisation for T has, callable as they must be.
template <class T>
struct TraitsMembers {
  using Traits = tensor_traits<T>;
  using Parts = std::vector<T>;
  using Devices = std::vector<Device>;
  using Sizes = std::vector<std::int64_t>;
  using Weights = std::vector<double>;

  static constexpr bool defined = requires(const T& t) {
    { Traits::defined(t) } -> std::convertible_to<bool>;
  };
  static constexpr bool device = requires(const T& t) {
    { Traits::device(t) } -> std::same_as<Device>;
  };
  static constexpr bool dim = requires(const T& t) {
    { Traits::dim(t) } -> std::convertible_to<std::int64_t>;
  };
  static constexpr bool size = requires(const T& t) {
    { Traits::size(t, 0) } -> std::convertible_to<std::int64_t>;
  };
  static constexpr bool scatter = requires(const T& t, const Devices& devices, const Sizes& sizes) {
    { Traits::scatter(t, devices, sizes, 0) } -> std::same_as<Parts>;
  };
  static constexpr bool broadcast = requires(const T& t, const Devices& devices) {
    { Traits::broadcast(t, devices) } -> std::same_as<Parts>;
  };
  static constexpr bool gather = requires(const Parts& parts) {
    { Traits::gather(parts, Device(), 0) } -> std::same_as<T>;
  };
  // The optional ones, in pairs: whether it can be called, and whether it can be called or is
  // absent.
  static constexpr bool sums = requires(const Parts& parts, const Weights& weights) {
    { Traits::weighted_sum(parts, weights, Device()) } -> std::same_as<T>;
  };
  static constexpr bool weighted_sum = sums || !requires { &Traits::weighted_sum; };
  static constexpr bool records = requires(const T& t, const Stream& stream) {
    Traits::record_stream(t, stream);
  };
  static constexpr bool record_stream = records || !requires { &Traits::record_stream; };
  static constexpr bool compares = requires(const T& t) {
    { Traits::is_on(t, Device()) } -> std::convertible_to<bool>;
  };
  static constexpr bool is_on = compares || !requires { &Traits::is_on; };

  static constexpr bool whole = defined && device && dim && size && scatter && broadcast &&
                                gather && weighted_sum && record_stream && is_on;
};

// Compiles if the specialisation for T has all members; otherwise the message names the missing
// ones.
template <class T>
consteval void require_whole_traits() {
  using Has = TraitsMembers<T>;
  static_assert(Has::defined,
                "lockstep: this specialisation of tensor_traits lacks a static member "
                "`bool defined(const T&)`");
  static_assert(Has::device,
                "lockstep: this specialisation of tensor_traits lacks a static member "
                "`Device device(const T&)`");
  static_assert(Has::dim,
                "lockstep: this specialisation of tensor_traits lacks a static member "
                "`std::int64_t dim(const T&)`");
  static_assert(Has::size,
                "lockstep: this specialisation of tensor_traits lacks a static member "
                "`std::int64_t size(const T&, std::int64_t dim)`");
  static_assert(Has::scatter,
                "lockstep: this specialisation of tensor_traits lacks a static member "
                "`std::vector<T> scatter(const T&, const std::vector<Device>&, const "
                "std::vector<std::int64_t>& sizes, std::int64_t dim)`");
  static_assert(Has::broadcast,
                "lockstep: this specialisation of tensor_traits lacks a static member "
                "`std::vector<T> broadcast(const T&, const std::vector<Device>&)`");
  static_assert(Has::gather,
                "lockstep: this specialisation of tensor_traits lacks a static member "
                "`T gather(const std::vector<T>&, Device, std::int64_t dim)`");
  static_assert(Has::weighted_sum,
                "lockstep: this specialisation of tensor_traits has a weighted_sum, but not "
                "`static T weighted_sum(const std::vector<T>&, const std::vector<double>& weights, "
                "Device)`");
  static_assert(Has::record_stream,
                "lockstep: this specialisation of tensor_traits has a record_stream, but not "
                "`static void record_stream(const T&, const Stream&)`");
  static_assert(Has::is_on,
                "lockstep: this specialisation of tensor_traits has an is_on, but not `static bool "
                "is_on(const T&, Device)`");
}

}  // namespace detail

// A type that scatter and gather treat as a tensor: tensor_traits<T> has all required members.
template <class T>
concept TensorLike = detail::HasTensorTraits<T> && detail::TraitsMembers<T>::whole;

namespace detail {

// Whether a device can use the tensor where it is.
template <TensorLike T>
bool is_on(const T& tensor, Device device) {
  if constexpr (TraitsMembers<T>::compares) {
    return tensor_traits<T>::is_on(tensor, device);
  } else {
    return tensor_traits<T>::device(tensor) == device;
  }
}

}  // namespace detail

// A TensorLike type whose scalars can be added up.
template <class T>
concept SummableTensor = TensorLike<T> && detail::TraitsMembers<T>::sums;

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/impl/tensor_traits.ipp>
#endif
