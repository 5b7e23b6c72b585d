// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>

#include <cstdio>
#include <exception>
#include <string>
#include <type_traits>
#include <vector>

namespace lockstep::distributed {

// Says which rank an exception comes from. What `run` throws derives from this and from the type
// that the rank threw, or the nearest base of it that is made from a text alone: a type of
// lockstep's, std::bad_alloc or one of <stdexcept>'s, or else Error. The rank's own exception is
// nested within it. Without memory for all that, `run` throws the rank's own exception itself. The
// constructor nests the exception that is being handled where it is called.
class RankFailure : public std::nested_exception {
 public:
  RankFailure(int rank, Device device) : rank_(rank), device_(device) {}

  int rank() const { return rank_; }
  Device device() const { return device_; }

 private:
  int rank_;
  Device device_;
};

// Thrown on a rank that waits for another one which has ended or left the group. It is a
// consequence: if the other rank has an error, `run` throws that.
//
// If an operation fails on one rank alone (no memory, an event, a copy on the way in or out), that
// rank gets the original exception and has left the group: no collective of the group after it
// takes place, on any rank, so that none meets an earlier one; what the rank had issued before and
// what has not ended yet may fail, too. The others' operations that need it fail with a RankGone
// that names it: among threads at once, over MPI within a moment, and with NCCL by the watchdog. So
// does every collective that is issued on the group later, and among threads on groups that were
// made from it. Messages between the other ranks go on, and so do the rank's other groups, except
// that groups over NCCL that share a watchdog end together: those made from one another, and from
// the group that carried their id. An error that all ranks are told within the operation leaves a
// group of threads as it is: calls that do not match, or work that a GPU refuses, which is a
// DeviceError on the other ranks that names the rank. A GPU that breaks after its share has been
// issued is named by a DeviceError to whoever waits, on the host, for a GPU of the process whose
// work rests on that.
class RankGone : public Error {
 public:
  using Error::Error;
};

namespace detail {

// A RankGone that needs no memory, for when there is none to say why a rank has gone or failed. It
// begins as a copy of `spare`, which is made beforehand: no standard library allocates to copy an
// exception, while some do for every text, even an empty one.
class RankGoneWithoutMemory final : public RankGone {
 public:
  RankGoneWithoutMemory(int rank, const RankGone& spare, const char* has = "gone") noexcept
      : RankGone(spare) {
    static_assert(std::is_nothrow_copy_constructible_v<RankGone>);
    (void)std::snprintf(text_, sizeof text_, "rank %d has %s, and there was no memory to say why",
                        rank, has);
  }
  const char* what() const noexcept override { return text_; }

 private:
  char text_[80];
};

// Throws the lowest rank's error, naming rank and device, with the others listed in its text. Does
// nothing if no rank failed.
void throw_first_failure(const std::vector<std::exception_ptr>& errors,
                         const std::vector<Device>& devices);

}  // namespace detail

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/group/impl/rank_failure.ipp>
#endif
