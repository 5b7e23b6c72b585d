// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/call.hpp>

#include <cstddef>

namespace lockstep::distributed::detail {

// Does one rank's share of a collective of a world of threads, on hosts and on GPUs. For rank `own`
// of `ranks`, which writes `outputs` parts, it calls
//   add_up()             for its share of a sum that all ranks make together
//   add_up_own()         for the sum of its own parts
//   copy(i, rank, part)  for its output i, which is that part of `rank`'s inputs
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
      // Starts at its own part, so that the ranks do not all read from the same one.
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
