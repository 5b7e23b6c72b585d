// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/bucket_assignment.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep {

LOCKSTEP_INLINE std::vector<std::vector<std::size_t>> compute_bucket_assignment_by_size(
    const std::vector<Tensor>& tensors, const std::vector<std::size_t>& size_limits,
    const std::vector<bool>& alone, const std::vector<std::size_t>& tensor_indices) {
  constexpr const char* kName = "compute_bucket_assignment_by_size: ";
  check<ValueError>(!size_limits.empty(), kName, "expected at least one size limit");
  check<ValueError>(alone.empty() || alone.size() == tensors.size(), kName, alone.size(),
                    " marks were given for ", tensors.size(), " tensors");
  check<ValueError>(tensor_indices.empty() || tensor_indices.size() == tensors.size(), kName,
                    tensor_indices.size(), " indices were given for ", tensors.size(), " tensors");

  struct Open {
    Dtype dtype;
    Device device;
    std::size_t closed = 0;  // how many before this one
    std::size_t bytes = 0;
    std::vector<std::size_t> members = {};
  };
  std::vector<std::vector<std::size_t>> buckets;
  std::vector<Open> open;  // in the order in which their kinds were first met
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    const std::size_t number = tensor_indices.empty() ? i : tensor_indices[i];
    if (!alone.empty() && alone[i]) {
      buckets.push_back({number});
      continue;
    }
    auto bucket = std::find_if(open.begin(), open.end(), [&](const Open& other) {
      return other.dtype == tensor.dtype() && other.device == tensor.device();
    });
    if (bucket == open.end()) {
      bucket = open.insert(open.end(), {.dtype = tensor.dtype(), .device = tensor.device()});
    }
    bucket->members.push_back(number);
    bucket->bytes += static_cast<std::size_t>(tensor.numel()) * element_size(tensor.dtype());
    if (bucket->bytes >= size_limits[std::min(bucket->closed, size_limits.size() - 1)]) {
      buckets.push_back(std::exchange(bucket->members, {}));
      bucket->bytes = 0;
      ++bucket->closed;
    }
  }
  for (Open& rest : open) {
    if (!rest.members.empty()) buckets.push_back(std::move(rest.members));
  }
  if (tensor_indices.empty()) {
    std::sort(buckets.begin(), buckets.end(),
              [](const auto& a, const auto& b) { return a.front() < b.front(); });
  }
  return buckets;
}

}  // namespace lockstep
