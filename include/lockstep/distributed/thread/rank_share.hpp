// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/call.hpp>

#include <cstddef>

namespace lockstep::distributed::detail {

// One rank's share of a collective of a world of threads, on hosts and on GPUs alike. Calls, for
// rank `own` of `ranks`, which writes `outputs` parts:
//   add_up()             for its share of a sum, which all ranks make together
//   add_up_own()         for the sum of the parts that are its own
//   copy(i, rank, part)  for its output i, which is that part of what `rank` has brought
template <class AddUp, class AddUpOwn, class Copy>
void do_share(const Call& call, std::size_t own, std::size_t ranks, std::size_t outputs,
              const AddUp& add_up, const AddUpOwn& add_up_own, const Copy& copy) {
  const auto root = static_cast<std::size_t>(call.root);
  switch (call.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return add_up();
    case Collective::reduce_scatter:
      return add_up_own();
    case Collective::broadcast:
      if (own != root) copy(0, root, 0);
      return;
    case Collective::scatter:
      return copy(0, root, own);
    case Collective::all_gather:
    case Collective::gather:
      // From its own part on, so that the ranks do not all read from the same one.
      for (std::size_t i = 0; i < outputs; ++i) {
        const std::size_t r = (own + i) % ranks;
        copy(r, r, 0);
      }
      return;
    case Collective::barrier:
    case Collective::new_group:
      return;
  }
}

}  // namespace lockstep::distributed::detail
