// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/relayed_error.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>

#include <optional>
#include <string>

namespace lockstep::distributed::detail {

// Whether a rank of a world of threads has gone, and why. Copies need no memory.
struct Departure {
  int rank = 0;                  // its number in `run`, which messages name
  std::optional<Device> device;  // its device in `run`, if known
  bool gone = false;
  std::optional<lockstep::detail::DescribedError> thrown = {};  // nothing if it has returned

  // "rank 2 on device cpu:2 has thrown lockstep::ShapeError: …"
  std::string text() const {
    std::string who = lockstep::detail::str("rank ", rank);
    if (device) who += lockstep::detail::str(" on device ", *device);
    return who + (thrown
                      ? " has thrown " + thrown->text()
                      : " has returned and takes part no more (for uneven inputs there is join)");
  }
};

}  // namespace lockstep::distributed::detail
