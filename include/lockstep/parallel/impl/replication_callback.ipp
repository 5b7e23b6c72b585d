// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/parallel/replication_callback.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE void execute(const std::vector<ReplicationCallback>& callbacks,
                             const std::vector<Device>& devices) {
  std::vector<std::shared_ptr<CallbackContext>> contexts;
  std::size_t next = 0;
  std::size_t copy_id = 0;
  for (const ReplicationCallback& callback : callbacks) {
    if (callback.copy_id != copy_id) next = 0;
    copy_id = callback.copy_id;
    if (next == contexts.size()) {
      contexts.push_back(std::make_shared<CallbackContext>(CallbackContext{devices}));
    }
    callback.call(callback.module, contexts[next++], copy_id);
  }
}

}  // namespace lockstep::detail
