// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace lockstep::testing {

// While it lives, what NCCL serves is done by copies and adds: the atomic through which that is
// found, detail::nccl_collectives or distributed::detail::nccl_world, is null.
template <class Served>
class WithoutNccl {
 public:
  explicit WithoutNccl(std::atomic<Served*>& nccl) : nccl_(nccl), served_(nccl.exchange(nullptr)) {}
  WithoutNccl(const WithoutNccl&) = delete;
  WithoutNccl& operator=(const WithoutNccl&) = delete;
  ~WithoutNccl() { nccl_.store(served_); }

 private:
  std::atomic<Served*>& nccl_;
  Served* const served_;
};

}  // namespace lockstep::testing
