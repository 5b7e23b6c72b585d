// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/nested/scatterable.hpp>
#include <lockstep/parallel/tensor_traits.hpp>
#include <lockstep/torch/device.hpp>
#include <lockstep/warning.hpp>

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// Lets scatter and gather take and return LibTorch's tensors, of any dtype.
//
// **Torch counterpart.** torch::nn::parallel's Scatter and Gather, which refuse CPU tensors.
// **Devices and streams.** Copies run on LibTorch's current streams. On the CPU a chunk is a view,
// on any host device.
// **Backward.** LibTorch's own.
template <>
struct tensor_traits<at::Tensor> {
  static bool defined(const at::Tensor& tensor) { return tensor.defined(); }
  static Device device(const at::Tensor& tensor) {
    return libtorch::detail::lockstep_device(tensor);
  }
  static bool is_on(const at::Tensor& tensor, Device device) {
    return libtorch::detail::is_on(tensor, device);
  }
  static std::int64_t dim(const at::Tensor& tensor) { return tensor.dim(); }
  static std::int64_t size(const at::Tensor& tensor, std::int64_t dim) {
    check_dim(tensor, dim);
    return tensor.size(dim);
  }

  static std::vector<at::Tensor> scatter(const at::Tensor& tensor,
                                         const std::vector<Device>& devices,
                                         const std::vector<std::int64_t>& sizes, std::int64_t dim) {
    std::vector<at::Tensor> parts;
    if (tensor.requires_grad() && at::GradMode::is_enabled()) {
      parts = tensor.split_with_sizes(sizes, dim);
    } else {
      // Each is a view of its own handle, so that replicas that write to their chunks share no
      // autograd state but the tensor's count of changes.
      std::int64_t start = 0;
      for (const std::int64_t size : sizes) {
        parts.push_back(tensor.detach().narrow(dim, start, size));
        start += size;
      }
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts[i] = libtorch::detail::moved(parts[i], devices[i]);
    }
    return parts;
  }

  // The first entry for the tensor's own device is the tensor itself; all others are copies.
  static std::vector<at::Tensor> broadcast(const at::Tensor& tensor,
                                           const std::vector<Device>& devices) {
    std::vector<at::Tensor> copies;
    bool given = false;
    for (const Device device : devices) {
      const bool here = is_on(tensor, device);
      copies.push_back(here && given ? tensor.clone() : libtorch::detail::moved(tensor, device));
      given = given || here;
    }
    return copies;
  }

  static at::Tensor gather(const std::vector<at::Tensor>& tensors, Device device,
                           std::int64_t dim) {
    const at::Tensor& first = tensors.at(0);
    std::vector<at::Tensor> moved;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor& tensor = tensors[i];
      check<DtypeError>(tensor.scalar_type() == first.scalar_type(), "gather: tensor ", i, " is ",
                        tensor.scalar_type(), ", but tensor 0 is ", first.scalar_type());
      check<ShapeError>(tensor.dim() == first.dim(), "gather: tensor ", i, " has shape ",
                        tensor.sizes(), ", but tensor 0 has ", first.sizes());
      moved.push_back(libtorch::detail::moved(tensor, device));
    }
    if (first.dim() == 0) {
      warn("Was asked to gather along dimension " + std::to_string(dim) +
           ", but all input tensors were scalars; will instead unsqueeze and return a vector.");
      return at::stack(moved);
    }
    check_dim(first, dim);
    const std::int64_t along = dim < 0 ? dim + first.dim() : dim;
    for (std::size_t i = 1; i < tensors.size(); ++i) {
      for (std::int64_t d = 0; d < first.dim(); ++d) {
        check<ShapeError>(d == along || tensors[i].size(d) == first.size(d), "gather: tensor ", i,
                          " has shape ", tensors[i].sizes(), ", but tensor 0 has ", first.sizes(),
                          ": only their sizes along dim ", dim, " may differ");
      }
    }
    return at::cat(moved, dim);
  }

  static at::Tensor weighted_sum(const std::vector<at::Tensor>& scalars,
                                 const std::vector<double>& weights, Device device) {
    at::Tensor sum;
    for (std::size_t i = 0; i < scalars.size(); ++i) {
      const bool counted = weights[i] == 1;
      check<DtypeError>(counted || scalars[i].is_floating_point() || scalars[i].is_complex(),
                        "the mean of the replicas' scalars: those of ", scalars[i].scalar_type(),
                        " can only be added up; give floating-point ones, or Reduction::sum");
      at::Tensor summand = libtorch::detail::moved(scalars[i], device);
      if (!counted) summand = summand * weights[i];
      sum = sum.defined() ? sum + summand : summand;
    }
    return sum;
  }

 private:
  static void check_dim(const at::Tensor& tensor, std::int64_t dim) {
    check<IndexError>(dim >= -tensor.dim() && dim < tensor.dim(),
                      "Dimension out of range (expected to be in range of [", -tensor.dim(), ", ",
                      tensor.dim() - 1, "], but got ", dim, ")");
  }
};

namespace detail::nested {

// These hold tensors but are not walked, and so are refused.
template <>
inline constexpr bool is_foreign_container<c10::IValue> = true;
template <>
inline constexpr bool is_foreign_container<::torch::nn::utils::rnn::PackedSequence> = true;
template <class Key, class Value>
inline constexpr bool is_foreign_container<::torch::OrderedDict<Key, Value>> = true;
template <class Data, class Target>
inline constexpr bool is_foreign_container<::torch::data::Example<Data, Target>> = true;

// These are plain values with private members, of which every device gets a copy.
template <>
inline constexpr bool is_shared_as_is<c10::Scalar> = true;
template <>
inline constexpr bool is_shared_as_is<c10::SymInt> = true;
template <>
inline constexpr bool is_shared_as_is<c10::SymFloat> = true;
template <>
inline constexpr bool is_shared_as_is<at::Generator> = true;

}  // namespace detail::nested

}  // namespace lockstep
