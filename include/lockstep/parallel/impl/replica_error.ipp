// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/relayed_error.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/function_ref.hpp>
#include <lockstep/parallel/replica_error.hpp>

#include <cstddef>
#include <exception>
#include <new>
#include <string>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE void throw_first_failure(std::size_t replicas,
                                         FunctionRef<std::exception_ptr(std::size_t)> error_of,
                                         FunctionRef<Device(std::size_t)> device_of) {
  std::vector<std::exception_ptr> errors;
  try {
    for (std::size_t i = 0; i < replicas; ++i) errors.push_back(error_of(i));
  } catch (const std::bad_alloc&) {  // no memory for a text: the replica's own error comes out
    for (std::size_t i = 0; i < replicas; ++i) {
      if (error_of(i)) std::rethrow_exception(error_of(i));
    }
  }
  const auto source_of = [&](std::size_t i) { return ReplicaFailure(i, device_of(i)); };
  relay_first<ReplicaReleased>(
      errors, NestedConsequence::does_not_count, source_of, [&](std::size_t i) {
        const DescribedError caught = described(errors[i]);
        return str("Caught ", caught.type_name(), " in replica ", i, " on device ", device_of(i),
                   '.', caught.what ? "\n" + *caught.what : "");
      });
}

}  // namespace lockstep::detail
