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

// Says which rank an exception of `run` comes from. The exception derives from RankFailure and from
// the type that the rank threw, or from the nearest base of that type that can be made from a text:
// a type of lockstep's, std::bad_alloc or one of <stdexcept>'s, else Error. It nests the rank's own
// exception, which `run` throws itself if there is no memory for more. The constructor nests the
// exception that is being handled.
class RankFailure : public std::nested_exception {
 public:
  RankFailure(int rank, Device device) : rank_(rank), device_(device) {}

  int rank() const { return rank_; }
  Device device() const { return device_; }

 private:
  int rank_;
  Device device_;
};

// Thrown on a rank that waits for another one which has ended or left the group. It is only a
// consequence: if the other rank has an error, `run` throws that.
//
// A rank on which an operation fails alone (no memory, an event, a copy in or out) gets the
// original exception and leaves the group. The others' operations that need it fail with a RankGone
// that names it: among threads at once, over MPI within a moment, with NCCL by the watchdog. So
// does every collective that is issued on the group later, on every rank, and among threads on
// groups made from it. What the rank had issued before and what has not ended may fail, too.
// Messages between other ranks go on, and so do the rank's other groups; but groups over NCCL that
// share a watchdog, because one was made from the other or carried its id, end together.
//
// A group of threads goes on after an error that all ranks are told within the operation: calls
// that do not match, or work that a GPU refuses, which is a DeviceError on the other ranks that
// names the rank. If a GPU breaks after its share was issued, waiting on the host for any GPU whose
// work depends on it throws a DeviceError that names it.
class RankGone : public Error {
 public:
  using Error::Error;
};

namespace detail {

// A RankGone that allocates nothing, for when there is no memory for a full text. It is copied from
// `spare`, which is made beforehand: no standard library allocates to copy an exception, while some
// do for every text, even an empty one.
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

// Throws the lowest rank's error, with rank, device and the other errors in its text. Does nothing
// if no rank failed.
void throw_first_failure(const std::vector<std::exception_ptr>& errors,
                         const std::vector<Device>& devices);

}  // namespace detail

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/group/impl/rank_failure.ipp>
#endif
