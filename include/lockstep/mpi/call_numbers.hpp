// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/dtype.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

namespace lockstep::mpi::detail {

// A call as ranks send it to each other, with what else they have to agree on.
class CallNumbers {
 public:
  CallNumbers() = default;
  CallNumbers(const distributed::detail::Call& call, std::uint64_t details)
      : numbers_{static_cast<std::int64_t>(call.collective), static_cast<std::int64_t>(call.dtype),
                 static_cast<std::int64_t>(call.op),         call.root,
                 static_cast<std::int64_t>(call.count),      static_cast<std::int64_t>(details)} {}

  distributed::detail::Call call() const {
    return {.collective = static_cast<distributed::detail::Collective>(numbers_[0]),
            .dtype = static_cast<Dtype>(numbers_[1]),
            .op = static_cast<distributed::ReduceOp>(numbers_[2]),
            .root = static_cast<int>(numbers_[3]),
            .count = static_cast<std::size_t>(numbers_[4])};
  }
  friend bool operator==(const CallNumbers&, const CallNumbers&) = default;

 private:
  std::array<std::int64_t, 6> numbers_{};
};

// A ValueError unless those of all ranks, one after the other in `bytes`, are the same.
inline void check_same_calls(const std::byte* bytes, std::size_t ranks) {
  const auto of = [bytes](std::size_t rank) {
    CallNumbers numbers;
    std::memcpy(&numbers, bytes + rank * sizeof numbers, sizeof numbers);
    return numbers;
  };
  const CallNumbers first = of(0);
  for (std::size_t r = 1; r < ranks; ++r) {
    const CallNumbers other = of(r);
    check<ValueError>(other.call() == first.call(), "collectives do not match: rank 0 called ",
                      first.call(), ", but rank ", r, " called ", other.call());
    check<ValueError>(other == first, "collectives do not match: rank 0 called ", first.call(),
                      ", but rank ", r, " called it with other ranks, or in another order");
  }
}

// A hash of ranks in their order: FNV-1a.
inline std::uint64_t hash_of(std::span<const int> members) {
  std::uint64_t hash = 14695981039346656037U;
  for (const int member : members) {
    hash = (hash ^ static_cast<std::uint32_t>(member)) * 1099511628211U;
  }
  return hash;
}

// Whether ranks compare their calls before each collective: LOCKSTEP_DISTRIBUTED_DEBUG is DETAIL.
inline bool debug_detail() {
  const char* level = std::getenv("LOCKSTEP_DISTRIBUTED_DEBUG");
  return level && std::strcmp(level, "DETAIL") == 0;
}

}  // namespace lockstep::mpi::detail
