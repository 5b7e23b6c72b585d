// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/parallel/functions.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/warning.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// All that scatter, gather and DataParallel know of the tensors at the leaves of their arguments.
// Specialise it to let a type of your own take part: another library's tensor, or a structure that
// wants to be split in a way of its own. A type without it is walked if it is a container or a
// plain aggregate, and otherwise shared with every device as it is.
//
// A specialisation has these static members:
//
//   bool defined(const T&)                           false: there is no tensor; it stays so
//                                                    everywhere
//   Device device(const T&)
//   std::int64_t dim(const T&)                       number of dimensions; 0: not split, but copied
//                                                    to every device
//   std::int64_t size(const T&, std::int64_t dim)    rows along dim, which may be negative
//   std::vector<T> scatter(const T&, const std::vector<Device>&,
//                          const std::vector<std::int64_t>& sizes, std::int64_t dim)
//   std::vector<T> broadcast(const T&, const std::vector<Device>&)
//   T gather(const std::vector<T>&, Device, std::int64_t dim)
//
// and, if sums and means of scalar outputs are to be taken:
//
//   T weighted_sum(const std::vector<T>& scalars, const std::vector<double>& weights, Device)
//
// and, if a GPU is to be listed several times, which gives each replica there a stream of its own:
//
//   void record_stream(const T&, const Stream&)      its memory stays until the stream, which uses
//                                                    it, is through with it
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
                                     const std::vector<std::int64_t>& sizes, std::int64_t dim) {
    return functions::detail::scattered(tensor, devices, sizes, dim);
  }

  static std::vector<Tensor> broadcast(const Tensor& tensor, const std::vector<Device>& devices) {
    // To one device it is the same as a single chunk, which needs no buffer for several tensors.
    if (devices.size() == 1 && tensor.dim() > 0) return scatter(tensor, devices, {}, 0);
    return lockstep::apply(functions::Broadcast{devices}, std::vector<Tensor>{tensor});
  }

  static Tensor gather(const std::vector<Tensor>& tensors, Device device, std::int64_t dim) {
    const auto is_scalar = [](const Tensor& tensor) { return tensor.dim() == 0; };
    if (std::all_of(tensors.begin(), tensors.end(), is_scalar)) {
      warn("Was asked to gather along dimension " + std::to_string(dim) +
           ", but all input tensors were scalars; will instead unsqueeze and return a vector.");
    }
    return lockstep::apply(functions::Gather{.device = device, .dim = dim}, tensors);
  }

  static Tensor weighted_sum(std::vector<Tensor> scalars, const std::vector<double>& weights,
                             Device device) {
    std::vector<Device> devices;
    for (std::size_t i = 0; i < scalars.size(); ++i) {
      devices.push_back(scalars[i].device());
      check<DtypeError>(weights[i] == 1 || is_floating_point(scalars[i].dtype()),
                        "the mean of the replicas' scalars: those of ", scalars[i].dtype(),
                        " can only be added up; give floating-point ones, or Reduction::sum");
      if (weights[i] != 1) scalars[i] = scalars[i] * weights[i];
    }
    return lockstep::apply(functions::ReduceAddCoalesced{devices, device}, scalars)[0];
  }
};

// A type at the leaves of nested arguments.
template <class T>
concept TensorLike = requires(const T& tensor, const std::vector<T>& tensors,
                              const std::vector<Device>& devices,
                              const std::vector<std::int64_t>& sizes) {
  { tensor_traits<T>::defined(tensor) } -> std::convertible_to<bool>;
  { tensor_traits<T>::device(tensor) } -> std::same_as<Device>;
  { tensor_traits<T>::dim(tensor) } -> std::convertible_to<std::int64_t>;
  { tensor_traits<T>::size(tensor, 0) } -> std::convertible_to<std::int64_t>;
  { tensor_traits<T>::scatter(tensor, devices, sizes, 0) } -> std::same_as<std::vector<T>>;
  { tensor_traits<T>::broadcast(tensor, devices) } -> std::same_as<std::vector<T>>;
  { tensor_traits<T>::gather(tensors, devices[0], 0) } -> std::same_as<T>;
};

// One whose scalars can be added up.
template <class T>
concept SummableTensor = TensorLike<T> &&
    requires(const std::vector<T>& scalars, const std::vector<double>& weights) {
  { tensor_traits<T>::weighted_sum(scalars, weights, Device()) } -> std::same_as<T>;
};

}  // namespace lockstep
