// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/relayed_error.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/group/rank_failure.hpp>
#include <lockstep/error.hpp>

#include <cstddef>
#include <exception>
#include <string>
#include <vector>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE std::string describe(const std::exception_ptr& error) {
  return lockstep::detail::described(error).text();
}

// True also for a RankGone that is nested in another exception, as a replica's is.
inline bool is_rank_gone(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const RankGone&) {
    return true;
  } catch (const std::nested_exception& outer) {
    return outer.nested_ptr() && is_rank_gone(outer.nested_ptr());
  } catch (...) {
    return false;
  }
}

LOCKSTEP_INLINE void throw_first_failure(const std::vector<std::exception_ptr>& errors,
                                         const std::vector<Device>& devices) {
  const auto failed = [](const std::exception_ptr& error) { return error && !is_rank_gone(error); };
  auto found = lockstep::detail::find_if(errors, failed);
  if (found == errors.end()) {
    found = lockstep::detail::find_if(errors, [](const auto& error) { return !!error; });
  }
  if (found == errors.end()) return;
  const auto first = static_cast<std::size_t>(found - errors.begin());
  const RankFailure source(static_cast<int>(first), devices[first]);
  lockstep::detail::relay<RankGone>(errors[first], source, [&] {
    const std::string cause = describe(errors[first]);
    std::string text =
        lockstep::detail::str("rank ", first, " on device ", devices[first], " threw ", cause);
    for (std::size_t i = first + 1; i < errors.size(); ++i) {
      if (!failed(errors[i])) continue;
      const std::string other = describe(errors[i]);
      text += lockstep::detail::str("\nAlso: rank ", i, " on device ", devices[i], " threw ",
                                    other == cause ? "the same" : other);
    }
    return text;
  });
}

}  // namespace lockstep::distributed::detail
