// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/call.hpp>
#include <lockstep/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace lockstep::mpi::detail {

// What ranks send each other to compare: a call, and what else they must agree on.
struct ComparedCall {
  distributed::detail::Call call;
  std::uint64_t details = 0;

  friend bool operator==(const ComparedCall&, const ComparedCall&) = default;
};
static_assert(std::is_trivially_copyable_v<ComparedCall>);

inline ComparedCall compared_call(const std::byte* bytes, std::size_t rank) {
  ComparedCall compared;
  std::memcpy(&compared, bytes + rank * sizeof compared, sizeof compared);
  return compared;
}

// The text of an error if some rank has sent, instead of a call to compare (as `is_compared`
// tells), another collective's data of the same length; else empty. `bytes` holds what all ranks
// sent, one after another.
template <class IsCompared>
std::string uncompared_call_error(const std::byte* bytes, std::size_t ranks,
                                  const IsCompared& is_compared) {
  for (std::size_t r = 0; r < ranks; ++r) {
    const distributed::detail::Call call = compared_call(bytes, r).call;
    if (distributed::detail::is_valid(call) && is_compared(call)) continue;
    return lockstep::detail::str("collectives do not match: some ranks compare a call, but rank ",
                                 r, " is in another collective");
  }
  return {};
}

// Throws a ValueError unless the calls of all ranks, one after another in `bytes`, are the same.
inline void check_same_calls(const std::byte* bytes, std::size_t ranks) {
  const ComparedCall first = compared_call(bytes, 0);
  for (std::size_t r = 1; r < ranks; ++r) {
    const ComparedCall other = compared_call(bytes, r);
    check<ValueError>(other.call == first.call, "collectives do not match: rank 0 called ",
                      first.call, ", but rank ", r, " called ", other.call);
    check<ValueError>(other == first, "collectives do not match: rank 0 called ", first.call,
                      ", but rank ", r, " called it with other ranks, or in another order");
  }
}

// True if ranks compare their calls before each collective: LOCKSTEP_DISTRIBUTED_DEBUG is DETAIL.
// False for torch's other levels, INFO and OFF; a ValueError for anything else.
inline bool debug_detail() {
  const char* const set = std::getenv("LOCKSTEP_DISTRIBUTED_DEBUG");
  const std::string_view level = set ? set : "";
  check<ValueError>(level.empty() || level == "OFF" || level == "INFO" || level == "DETAIL",
                    "LOCKSTEP_DISTRIBUTED_DEBUG is \"", level, "\": expected DETAIL, INFO or OFF");
  return level == "DETAIL";
}

}  // namespace lockstep::mpi::detail
