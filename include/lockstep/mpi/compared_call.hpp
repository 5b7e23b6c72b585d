// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/call.hpp>
#include <lockstep/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace lockstep::mpi::detail {

// What ranks send each other to compare it: a call, with what else they have to agree on.
struct ComparedCall {
  distributed::detail::Call call;
  std::uint64_t details = 0;

  friend bool operator==(const ComparedCall&, const ComparedCall&) = default;
};
static_assert(std::is_trivially_copyable_v<ComparedCall>);

// A ValueError unless those of all ranks, one after the other in `bytes`, are the same.
inline void check_same_calls(const std::byte* bytes, std::size_t ranks) {
  const auto of = [bytes](std::size_t rank) {
    ComparedCall compared;
    std::memcpy(&compared, bytes + rank * sizeof compared, sizeof compared);
    // Or it is data of a collective that the rank does not compare, of as many bytes.
    check<ValueError>(distributed::detail::is_call(compared.call),
                      "collectives do not match: some ranks compare a call, but rank ", rank,
                      " is in another collective");
    return compared;
  };
  const ComparedCall first = of(0);
  for (std::size_t r = 1; r < ranks; ++r) {
    const ComparedCall other = of(r);
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
