// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>

#include <exception>
#include <optional>
#include <string>

namespace lockstep::distributed::detail {

// Whether a rank of a world of threads has gone, and why. Nothing but `text` allocates, so that a
// rank can go without memory; who reads the text makes it.
struct Departure {
  int rank = 0;                  // what messages call it: its number in `run`
  std::optional<Device> device;  // likewise, if known
  bool gone = false;
  std::exception_ptr error = {};  // what it has thrown; null if it has returned

  // "rank 2 on device cpu:2 has thrown lockstep::ShapeError: …"
  std::string text() const;
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/departure.ipp>
#endif
