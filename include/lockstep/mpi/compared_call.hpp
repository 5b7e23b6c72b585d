// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/call.hpp>
#include <lockstep/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>

namespace lockstep::mpi::detail {

// What ranks send each other to compare it: a call, with what else they have to agree on.
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

// What is wrong if a rank has sent no call that ranks compare, by `is_compared`, but data of
// another collective, of as many bytes; empty if none has. All ranks' are one after the other in
// `bytes`.
template <class IsCompared>
std::string who_is_elsewhere(const std::byte* bytes, std::size_t ranks,
                             const IsCompared& is_compared) {
  for (std::size_t r = 0; r < ranks; ++r) {
    const distributed::detail::Call call = compared_call(bytes, r).call;
    if (distributed::detail::is_valid(call) && is_compared(call)) continue;
    return lockstep::detail::str("collectives do not match: some ranks compare a call, but rank ",
                                 r, " is in another collective");
  }
  return {};
}

// A ValueError unless those of all ranks, one after the other in `bytes`, are the same.
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

// Whether ranks compare their calls before each collective: LOCKSTEP_DISTRIBUTED_DEBUG is DETAIL.
inline bool debug_detail() {
  const char* level = std::getenv("LOCKSTEP_DISTRIBUTED_DEBUG");
  return level && std::strcmp(level, "DETAIL") == 0;
}

}  // namespace lockstep::mpi::detail
