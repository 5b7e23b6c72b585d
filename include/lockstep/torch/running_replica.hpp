// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/module/module_traits.hpp>
#include <lockstep/torch/device.hpp>
#include <lockstep/torch/intraop_threads.hpp>

#include <c10/core/DeviceGuard.h>

#include <concepts>
#include <memory>
#include <optional>

namespace lockstep::libtorch::detail {

// A replica of one call of a DataParallel.
template <class Net>
struct RunningReplica {
  std::shared_ptr<Net> net;
  Device device;
  int threads;  // for its operations
};

}  // namespace lockstep::libtorch::detail

namespace lockstep {

template <class Net>
struct module_traits<libtorch::detail::RunningReplica<Net>> {
  using Replica = libtorch::detail::RunningReplica<Net>;

  template <class... Args>
  static auto forward(const Replica& replica, const Args&... args) requires requires {
    { replica.net->forward(args...) } -> std::move_constructible;
  }
  {
    const libtorch::detail::IntraopScope threads(replica.threads);
    const c10::DeviceGuard device(libtorch::detail::at_device(replica.device));
    return replica.net->forward(args...);
  }

  static std::optional<Device> device(const Replica& replica) { return replica.device; }
};

}  // namespace lockstep
