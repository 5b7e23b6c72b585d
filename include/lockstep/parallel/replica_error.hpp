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
// the type that the replica threw, if that is from lockstep/error.hpp or <stdexcept> or is
// std::bad_alloc; otherwise from the nearest base that is, or else from Error.
//
// The original is nested: std::rethrow_if_nested throws it with its own type. If memory runs out,
// parallel_apply throws the original itself. The constructor nests the exception being handled.
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

// Thrown in a replica that waits for one that has ended. parallel_apply throws it only if no
// replica failed otherwise.
class ReplicaReleased : public Error {
 public:
  using Error::Error;
};

namespace detail {

// Throws the lowest failed replica's error, naming replica and device and listing the others; a
// ReplicaReleased only if there is nothing else. If memory runs out, throws that error as it is.
// `error_of` returns null for a replica that has not failed.
void throw_first_failure(std::size_t replicas,
                         FunctionRef<std::exception_ptr(std::size_t)> error_of,
                         FunctionRef<Device(std::size_t)> device_of);

}  // namespace detail

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/impl/replica_error.ipp>
#endif
