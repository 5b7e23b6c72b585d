// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/relayed_error.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/replica_error.hpp>

#include <cstddef>
#include <exception>
#include <string>
#include <vector>

namespace lockstep::detail {

// "Caught TYPE in replica 1 on device cuda:1." and the text of the error.
inline std::string describe(const std::exception_ptr& error, std::size_t replica, Device device) {
  const DescribedError caught = described(error);
  return str("Caught ", caught.type_name(), " in replica ", replica, " on device ", device, '.',
             caught.what ? "\n" + *caught.what : "");
}

inline bool is_release(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const ReplicaReleased&) {
    return true;
  } catch (...) {
    return false;
  }
}

LOCKSTEP_INLINE void throw_first_failure(const std::vector<std::exception_ptr>& errors,
                                         const std::vector<Device>& devices) {
  const auto failed = [](const std::exception_ptr& error) { return error && !is_release(error); };
  auto found = find_if(errors, failed);
  if (found == errors.end()) {
    found = find_if(errors, [](const auto& error) { return !!error; });
  }
  if (found == errors.end()) return;
  const auto first = static_cast<std::size_t>(found - errors.begin());
  relay<ReplicaReleased>(errors[first], ReplicaFailure(first, devices[first]), [&] {
    std::string text = describe(errors[first], first, devices[first]);
    for (std::size_t i = first + 1; i < errors.size(); ++i) {
      if (failed(errors[i])) text += "\nAlso: " + describe(errors[i], i, devices[i]);
    }
    return text;
  });
}

}  // namespace lockstep::detail
