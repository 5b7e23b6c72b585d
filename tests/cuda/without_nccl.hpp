// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/thread/gpu_collectives.hpp>

namespace lockstep::testing {

// While it lives, what NCCL serves is done by copies and adds.
class WithoutNccl {
 public:
  WithoutNccl() : served_(distributed::detail::nccl_collectives.exchange(nullptr)) {}
  WithoutNccl(const WithoutNccl&) = delete;
  WithoutNccl& operator=(const WithoutNccl&) = delete;
  ~WithoutNccl() { distributed::detail::nccl_collectives.store(served_); }

 private:
  distributed::detail::GpuCollectives* const served_;
};

}  // namespace lockstep::testing
