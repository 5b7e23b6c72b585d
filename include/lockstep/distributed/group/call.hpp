// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>

namespace lockstep::distributed::detail {

enum class Collective : unsigned char {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  scatter,
  gather,
  barrier,
  new_group,
};

// The collective's name, as a range in a timeline has it.
constexpr profile::Literal literal(Collective collective) {
  constexpr profile::Literal kNames[] = {"all_reduce", "broadcast",      "reduce",
                                         "all_gather", "reduce_scatter", "scatter",
                                         "gather",     "barrier",        "new_group"};
  return kNames[static_cast<unsigned char>(collective)];
}

constexpr const char* name(Collective collective) { return literal(collective).text(); }

constexpr bool has_root(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce ||
         collective == Collective::scatter || collective == Collective::gather;
}

constexpr bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce ||
         collective == Collective::reduce_scatter;
}

// The arguments of a collective that must be the same on all ranks. `count` is the number of
// elements of one rank's part (for new_group: the number of its ranks). Members that the collective
// does not use keep their defaults.
struct Call {
  Collective collective = Collective::barrier;
  Dtype dtype = Dtype::u8;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  std::size_t count = 0;

  std::size_t bytes() const { return count * element_size(dtype); }
  friend bool operator==(const Call&, const Call&) = default;
};

// True if a call that was received as bytes has valid enumerators.
constexpr bool is_valid(const Call& call) {
  return call.collective <= Collective::new_group && call.dtype <= Dtype::boolean &&
         call.op <= ReduceOp::max;
}

// The FNV-1a hash of ranks in their order.
inline std::uint64_t hash_of(std::span<const int> members) {
  std::uint64_t hash = 14695981039346656037U;
  for (const int member : members) {
    hash = (hash ^ static_cast<std::uint32_t>(member)) * 1099511628211U;
  }
  return hash;
}

// Where a collective runs, and whether its caller waits for the end.
enum class Execution {
  queued,          // in the communication thread; the caller goes on
  inline_if_idle,  // in the calling thread if all operations before have ended, else queued
  blocking         // as inline_if_idle, and the caller waits
};

inline std::ostream& operator<<(std::ostream& out, const Call& call) {
  out << name(call.collective);
  if (reduces(call.collective)) out << '(' << call.op << ')';
  if (call.collective == Collective::barrier) return out;
  if (call.collective == Collective::new_group) return out << " of " << call.count << " ranks";
  out << " of " << call.count << " x " << call.dtype;
  if (has_root(call.collective)) out << " with root " << call.root;
  return out;
}

}  // namespace lockstep::distributed::detail
