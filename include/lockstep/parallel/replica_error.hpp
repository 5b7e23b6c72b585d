// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/function_ref.hpp>

#include <cstddef>
#include <exception>

namespace lockstep {

// Says which replica an exception comes from. What parallel_apply throws derives from this and from
// the type that the replica threw, if that is one of lockstep/error.hpp, std::bad_alloc, or one of
// <stdexcept>; otherwise from the nearest base of it that is, or from Error where there is none.
// The original is nested within it: std::rethrow_if_nested throws it, with its own type. Without
// memory for all that, parallel_apply throws the original itself. The constructor nests the
// exception that is being handled where it is called.
//
// **Example.**
//   try {
//     model(images);
//   } catch (const ls::ReplicaFailure& failure) {  // … failure.replica() …
//     std::rethrow_if_nested(failure);             // for an enclosing catch (const Mine& error)
//   }
class ReplicaFailure : public std::nested_exception {
 public:
  ReplicaFailure(std::size_t replica, Device device) : replica_(replica), device_(device) {}

  std::size_t replica() const { return replica_; }
  Device device() const { return device_; }

 private:
  std::size_t replica_;
  Device device_;
};

// Thrown in a replica that waits for another one which has ended. It is never the cause, so
// parallel_apply throws the other one's error, if there is one.
class ReplicaReleased : public Error {
 public:
  using Error::Error;
};

namespace detail {

// Throws the lowest replica's error, naming replica and device, with the others listed in its text;
// a ReplicaReleased only if there is nothing else. Without memory for that it throws the lowest
// replica's as it is. `error_of` gives null for a replica that has not failed.
void throw_first_failure(std::size_t replicas,
                         FunctionRef<std::exception_ptr(std::size_t)> error_of,
                         FunctionRef<Device(std::size_t)> device_of);

}  // namespace detail

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/impl/replica_error.ipp>
#endif
