// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/scalar.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

// New tensors with given values; the random ones are in tensor/random.hpp.
namespace lockstep {

// A tensor of the given shape filled with `value`. Integer dtypes drop its fraction, and u8 takes
// -255 to -1 modulo 256.
//
// **Torch counterpart.** torch::full.
// **Threads and exceptions.** A DtypeError if the value is out of range for f32 or an integer
// dtype.
Tensor full(const Shape& shape, Scalar value, const TensorOptions& options = {});
template <std::same_as<Dtype> D>
Tensor full(const Shape& shape, Scalar value, D dtype) {
  return full(shape, value, TensorOptions{.dtype = dtype});
}

// Tensors of the given shape filled with 0 and with 1.
//
// **Torch counterpart.** torch::zeros, torch::ones.
inline Tensor zeros(const Shape& shape, const TensorOptions& options = {}) {
  return full(shape, 0, options);
}
template <std::same_as<Dtype> D>
Tensor zeros(const Shape& shape, D dtype) {
  return zeros(shape, TensorOptions{.dtype = dtype});
}

inline Tensor ones(const Shape& shape, const TensorOptions& options = {}) {
  return full(shape, 1, options);
}
template <std::same_as<Dtype> D>
Tensor ones(const Shape& shape, D dtype) {
  return ones(shape, TensorOptions{.dtype = dtype});
}

// Contiguous tensors of the shape, dtype and device of `tensor`: uninitialised, filled with 0, and
// filled with 1. They do not require grad.
//
// **Torch counterpart.** torch::empty_like, torch::zeros_like, torch::ones_like.
inline Tensor empty_like(const Tensor& tensor) { return empty(tensor.sizes(), tensor.options()); }
inline Tensor zeros_like(const Tensor& tensor) { return zeros(tensor.sizes(), tensor.options()); }
inline Tensor ones_like(const Tensor& tensor) { return ones(tensor.sizes(), tensor.options()); }

// A tensor with a copy of `values`, in row-major order. Its dtype is that of T.
//
// **Torch counterpart.** torch::tensor with a shape; torch::from_blob(...).clone().
// **Threads and exceptions.** A ShapeError if the number of values is not that of the shape.
template <Element T>
Tensor from_values(std::span<const T> values, const Shape& shape, Device device = {}) {
  check<ShapeError>(static_cast<std::int64_t>(values.size()) == numel(shape),
                    "from_values: ", values.size(), " values do not fill shape ", shape);
  Tensor host = empty(shape, {.dtype = dtype_of<T>});
  if (!values.empty()) {
    std::memcpy(host.template mutable_data_ptr<T>(), values.data(), values.size_bytes());
  }
  if (device.is_host_memory()) return host;
  return detail::copy_as(host, {.dtype = dtype_of<T>, .device = device});
}

template <Element T>
requires(!std::is_same_v<T, bool>) Tensor
    from_values(const std::vector<T>& values, const Shape& shape, Device device = {}) {
  return from_values(std::span<const T>(values), shape, device);
}

// A 1-dimensional tensor of the given values.
//
// **Torch counterpart.** torch::tensor.
// **Example.** tensor({1.0f, 2.0f}), tensor<double>({1, 2}), tensor(std::vector{1.0f, 2.0f})
template <Element T>
Tensor tensor(std::initializer_list<T> values, Device device = {}) {
  return from_values(std::span<const T>(values.begin(), values.size()),
                     {static_cast<std::int64_t>(values.size())}, device);
}

template <Element T>
Tensor tensor(const std::vector<T>& values, Device device = {}) {
  const auto count = static_cast<std::int64_t>(values.size());
  if constexpr (std::same_as<T, bool>) {  // std::vector<bool> is not an array
    const auto array = std::make_unique<bool[]>(values.size());
    std::copy(values.begin(), values.end(), array.get());
    return from_values(std::span<const bool>(array.get(), values.size()), {count}, device);
  } else {
    return from_values(values, {count}, device);
  }
}

// A tensor without dimensions that holds one value.
//
// **Torch counterpart.** torch::scalar_tensor.
template <Element T>
Tensor scalar_tensor(T value, Device device = {}) {
  return from_values(std::span<const T>(&value, 1), {}, device);
}

// A 1-dimensional tensor of 0, 1, …, count − 1. Its dtype is i64; with options, theirs, which is
// f32 by default.
//
// **Torch counterpart.** torch::arange(count).
// **Threads and exceptions.** A ValueError for a negative count, a DtypeError if count − 1 is out
// of range for the dtype.
Tensor arange(std::int64_t count, const TensorOptions& options = {.dtype = Dtype::i64});
template <std::same_as<Dtype> D>
Tensor arange(std::int64_t count, D dtype) {
  return arange(count, TensorOptions{.dtype = dtype});
}

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/impl/creation.ipp>
#endif
