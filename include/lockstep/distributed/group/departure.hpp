// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>

#include <exception>
#include <optional>
#include <string>

namespace lockstep::distributed::detail {

// Whether a rank of a world of threads has gone, and why. Only `text` allocates, which readers
// call, so that a rank can go when there is no memory.
struct Departure {
  int rank = 0;                  // its number in `run`, which messages name
  std::optional<Device> device;  // its device in `run`, if known
  bool gone = false;
  std::exception_ptr error = {};  // what it has thrown; null if it has returned

  // "rank 2 on device cpu:2 has thrown lockstep::ShapeError: …"
  std::string text() const;
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/group/impl/departure.ipp>
#endif
