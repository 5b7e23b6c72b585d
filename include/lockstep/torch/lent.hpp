// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/from_blob.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/torch/device.hpp>
#include <lockstep/torch/streams.hpp>

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

// Shares memory between a tensor of lockstep's and one of LibTorch's, without a copy. Each library
// keeps alive what the other one uses.
namespace lockstep::libtorch::detail {

inline constexpr std::pair<at::ScalarType, Dtype> kDtypes[] = {
    {at::kFloat, Dtype::f32},     {at::kDouble, Dtype::f64},  {at::kHalf, Dtype::f16},
    {at::kBFloat16, Dtype::bf16}, {at::kLong, Dtype::i64},    {at::kInt, Dtype::i32},
    {at::kByte, Dtype::u8},       {at::kBool, Dtype::boolean}};

inline std::optional<Dtype> lockstep_dtype(at::ScalarType type) {
  for (const auto& [theirs, ours] : kDtypes) {
    if (theirs == type) return ours;
  }
  return std::nullopt;
}

inline at::ScalarType at_dtype(Dtype dtype) {
  for (const auto& [theirs, ours] : kDtypes) {
    if (ours == dtype) return theirs;
  }
  lockstep::detail::fail<DtypeError>("LibTorch has no ", dtype);
}

inline Shape shape_of(at::IntArrayRef sizes) {
  return Shape(std::span<const std::int64_t>(sizes.data(), sizes.size()));
}
inline at::IntArrayRef sizes_of(const Shape& shape) { return {shape.begin(), shape.size()}; }

// A tensor of lockstep's on the memory of a strided tensor of LibTorch's, which errors call `name`;
// `device` is one of that memory. A DtypeError for a dtype that lockstep does not have.
inline Tensor lent(const at::Tensor& tensor, Device device, const std::string& name) {
  lockstep::check<ModuleError>(tensor.layout() == at::kStrided, name, " is ", tensor.layout(),
                               ": expected a dense tensor");
  const std::optional<Dtype> dtype = lockstep_dtype(tensor.scalar_type());
  lockstep::check<DtypeError>(dtype.has_value(), name, " is of ", tensor.scalar_type(),
                              ", which lockstep has not: it has f32, f64, f16, bf16, i64, i32, u8 "
                              "and boolean");
  return from_blob(tensor.data_ptr(), shape_of(tensor.sizes()),
                   {.strides = shape_of(tensor.strides()),
                    .dtype = dtype,
                    .device = device,
                    .owner = std::make_shared<const c10::Storage>(tensor.storage())});
}

// A tensor of LibTorch's on the memory of a tensor of lockstep's. Its user first waits for
// lockstep; when it is freed, LibTorch's work comes before the memory's next use.
inline at::Tensor lent_back(const Tensor& tensor) {
  const Device device = tensor.device();
  const auto give_up = [tensor, device](void*) {
    try {
      wait_for_libtorch(device);
    } catch (...) {
      // The GPU has failed: nobody will use its memory.
    }
  };
  return at::from_blob(tensor.impl()->data(), sizes_of(tensor.sizes()), sizes_of(tensor.strides()),
                       give_up,
                       at::TensorOptions(at_dtype(tensor.dtype())).device(at_device(device)));
}

// True if both have the same memory and layout.
inline bool same_memory(const at::Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() && a.layout() == at::kStrided &&
         a.data_ptr() == b.impl()->data() && a.sizes() == sizes_of(b.sizes()) &&
         a.strides() == sizes_of(b.strides());
}

}  // namespace lockstep::libtorch::detail
