// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/collectives.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::comm::detail {

// The type as which a collective adds up tensors of a dtype; nothing if none does.
std::optional<lockstep::detail::SumType> sum_type(Dtype dtype);

// Collects sums over one list of devices, which NCCL (lockstep/nccl.hpp) then makes together, as
// one collective.
//
// Devices and streams: the collective is work of each device's current stream. The summands are
// made and the total is used on these streams, so nothing else has to be ordered.
class CollectiveSums {
 public:
  // Adds total := the sum of the inputs and returns true; returns false if a collective cannot make
  // that sum, or not together with those added before, which have other devices. The inputs have
  // been checked; the total is new, and the caller keeps it until `issue`.
  bool add(const Tensor& total, std::span<const Tensor> inputs);

  // Issues the collective; does nothing if no sum was added.
  void issue() const;

 private:
  lockstep::detail::Collectives* collectives_ = nullptr;
  std::vector<Device> devices_;
  std::size_t root_ = 0;
  std::vector<Tensor> inputs_;  // contiguous; kept while this lives
  std::vector<lockstep::detail::Collectives::Sum> sums_;
};

}  // namespace lockstep::comm::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/comm/detail/impl/collective_sums.ipp>
#endif
