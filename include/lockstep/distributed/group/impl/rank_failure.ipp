// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/relayed_error.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/group/rank_failure.hpp>
#include <lockstep/error.hpp>

#include <cstddef>
#include <exception>
#include <string>
#include <vector>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE void throw_first_failure(const std::vector<std::exception_ptr>& errors,
                                         const std::vector<Device>& devices) {
  const auto source_of = [&](std::size_t i) {
    return RankFailure(static_cast<int>(i), devices[i]);
  };
  std::string first;  // what the first of them says
  // A RankGone may be nested in a replica's error.
  constexpr auto nested = lockstep::detail::NestedConsequence::counts;
  lockstep::detail::relay_first<RankGone>(errors, nested, source_of, [&](std::size_t i) {
    const std::string cause = lockstep::detail::described(errors[i]).text();
    const bool same = cause == first;
    if (first.empty()) first = cause;
    return lockstep::detail::str("rank ", i, " on device ", devices[i], " threw ",
                                 same ? "the same" : cause);
  });
}

}  // namespace lockstep::distributed::detail
