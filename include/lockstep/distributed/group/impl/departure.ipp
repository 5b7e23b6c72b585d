// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/departure.hpp>
#include <lockstep/error.hpp>

#include <string>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE std::string Departure::text() const {
  std::string who = lockstep::detail::str("rank ", rank);
  if (device) who += lockstep::detail::str(" on device ", *device);
  return who + (thrown ? " has thrown " + thrown->text() : " has returned and takes part no more");
}

}  // namespace lockstep::distributed::detail
