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

// As what a collective adds up tensors of a dtype, if it does.
std::optional<lockstep::detail::SumType> sum_type(Dtype dtype);

// The sums over one list of devices that lockstep/nccl.hpp makes together, as one collective.
//
// Devices and streams: work of each device's current stream, where the summands are made and the
// total is wanted, so that no further order is needed.
class CollectiveSums {
 public:
  // Adds total := the sum of the inputs, if the collective can make it: together with the sums
  // before, that is, on the same devices. The inputs have been checked; the total is new, and lives
  // until `issue`.
  bool add(const Tensor& total, std::span<const Tensor> inputs);

  void issue() const;

 private:
  lockstep::detail::Collectives* collectives_ = nullptr;
  std::vector<Device> devices_;
  std::size_t root_ = 0;
  std::vector<Tensor> inputs_;  // as they are read
  std::vector<lockstep::detail::Collectives::Sum> sums_;
};

}  // namespace lockstep::comm::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/comm/detail/impl/collective_sums.ipp>
#endif
