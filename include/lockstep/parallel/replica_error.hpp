// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>

#include <cstddef>
#include <exception>
#include <string>
#include <vector>

namespace lockstep {

// Which replica an exception comes from. What parallel_apply throws derives from this and from the
// type that the replica threw, or the nearest base of it that is made from a text alone: one of
// lockstep's, std::bad_alloc, or one of <stdexcept>'s; from Error, where there is none. The
// original is nested within it: std::rethrow_if_nested throws it, of whatever type of the user's
// own it is. Where there is no memory for all that, the original itself comes out.
//
// **Example.**
//   try {
//     model(images);
//   } catch (const ls::ReplicaFailure& failure) {  // … failure.replica() …
//     std::rethrow_if_nested(failure);             // for an enclosing catch (const Mine& error)
//   }
class ReplicaFailure {
 public:
  ReplicaFailure(std::size_t replica, Device device) : replica_(replica), device_(device) {}
  virtual ~ReplicaFailure() = default;

  std::size_t replica() const { return replica_; }
  Device device() const { return device_; }

 private:
  std::size_t replica_;
  Device device_;
};

// What is thrown in a replica that waits for another one which has ended. It is never the cause, so
// parallel_apply throws the other one's error, if it has one.
class ReplicaReleased : public Error {
 public:
  using Error::Error;
};

namespace detail {

std::string describe(const std::exception_ptr& error, std::size_t replica, Device device);

// Throws the lowest replica's error, naming replica and device, with the others listed in its text.
// Does nothing if no replica failed.
void throw_first_failure(const std::vector<std::exception_ptr>& errors,
                         const std::vector<Device>& devices);

}  // namespace detail

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/impl/replica_error.ipp>
#endif
