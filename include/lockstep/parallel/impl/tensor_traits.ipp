// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/parallel/comm/scatter.hpp>
#include <lockstep/parallel/functions.hpp>
#include <lockstep/parallel/tensor_traits.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/warning.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

LOCKSTEP_INLINE std::vector<Tensor> tensor_traits<Tensor>::scatter(
    const Tensor& tensor, const std::vector<Device>& devices,
    const std::vector<std::int64_t>& sizes, std::int64_t dim) {
  if (!detail::is_recorded(tensor) && !tensor.is_sparse()) {
    return comm::scatter(tensor, devices, sizes, dim);
  }
  return lockstep::apply(functions::Scatter{.devices = devices, .chunk_sizes = sizes, .dim = dim},
                         tensor);
}

LOCKSTEP_INLINE std::vector<Tensor> tensor_traits<Tensor>::broadcast(
    const Tensor& tensor, const std::vector<Device>& devices) {
  // One copy is the same as a single chunk, which needs no flat buffer.
  if (devices.size() == 1 && tensor.dim() > 0) return scatter(tensor, devices, {}, 0);
  return lockstep::apply(functions::Broadcast{devices}, std::vector<Tensor>{tensor});
}

LOCKSTEP_INLINE Tensor tensor_traits<Tensor>::gather(const std::vector<Tensor>& tensors,
                                                     Device device, std::int64_t dim) {
  const auto is_scalar = [](const Tensor& tensor) { return tensor.dim() == 0; };
  if (detail::all_of(tensors, is_scalar)) {
    warn("Was asked to gather along dimension " + std::to_string(dim) +
         ", but all input tensors were scalars; will instead unsqueeze and return a vector.");
  }
  return lockstep::apply(functions::Gather{.device = device, .dim = dim}, tensors);
}

LOCKSTEP_INLINE Tensor tensor_traits<Tensor>::weighted_sum(std::vector<Tensor> scalars,
                                                           const std::vector<double>& weights,
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

}  // namespace lockstep
