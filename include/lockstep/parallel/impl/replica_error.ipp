// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/relayed_error.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/replica_error.hpp>

#include <cstddef>
#include <exception>
#include <string>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE void throw_first_failure(const std::vector<std::exception_ptr>& errors,
                                         const std::vector<Device>& devices) {
  const auto source_of = [&](std::size_t i) { return ReplicaFailure(i, devices[i]); };
  relay_first<ReplicaReleased>(
      errors, NestedConsequence::does_not_count, source_of, [&](std::size_t i) {
        const DescribedError caught = described(errors[i]);
        return str("Caught ", caught.type_name(), " in replica ", i, " on device ", devices[i], '.',
                   caught.what ? "\n" + *caught.what : "");
      });
}

}  // namespace lockstep::detail
