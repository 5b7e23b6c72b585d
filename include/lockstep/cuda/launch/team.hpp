// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host_device.hpp>
#include <lockstep/cuda/launch/lanes.hpp>

#include <cstddef>

namespace lockstep::cuda {

// How the threads of a warp share rows: all of them work on one, as Lanes do, or each has one of
// its own. The latter where neighbouring elements in memory belong to different rows.
struct Sharing {
  std::size_t rows;
  bool by_thread;

  // How many calls of a row functor serve all rows.
  std::size_t launches() const { return by_thread ? (rows + kLanes - 1) / kLanes : rows; }
};

// The threads that work on one row.
struct Team {
  Lanes lanes;
  bool alone;

  LOCKSTEP_HD unsigned index() const { return alone ? 0 : lanes.index; }
  LOCKSTEP_HD unsigned count() const { return alone ? 1 : lanes.count; }
  template <class T>
  LOCKSTEP_HD T sum(T value) const {
    return alone ? value : lanes.sum(value);
  }
  template <class T>
  LOCKSTEP_HD T max(T value) const {
    return alone ? value : lanes.max(value);
  }
};

// Calls body(row, team) for the rows that belong to one call of a row functor.
template <class Body>
LOCKSTEP_HD void for_rows(const Sharing& sharing, std::size_t launch, const Lanes& lanes,
                          const Body& body) {
  const bool alone = sharing.by_thread;
  const std::size_t after = (launch + 1) * kLanes;
  const std::size_t end = alone ? (after < sharing.rows ? after : sharing.rows) : launch + 1;
  std::size_t row = alone ? launch * kLanes + lanes.index : launch;
  for (; row < end; row += alone ? lanes.count : 1) body(row, Team{lanes, alone});
}

}  // namespace lockstep::cuda
