// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host/in_pieces.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/threads/worker_pool.hpp>
#include <lockstep/device/stream.hpp>

#include <cstddef>

namespace lockstep {

namespace detail {

// As run_each, by all idle cores. An index stands for `unit` bytes.
template <std::size_t unit, class F>
void run_each_in_pieces(std::size_t count, const void* functor) {
  in_pieces(count, unit, [functor](std::size_t begin, std::size_t end) {
    const F each = *static_cast<const F*>(functor);
    if constexpr (requires { each.on_host(begin, end); }) {
      each.on_host(begin, end);
    } else {
      LOCKSTEP_INDEPENDENT
      for (std::size_t i = begin; i < end; ++i) each(i);
    }
  });
}

}  // namespace detail

// As launch, but on a host device idle cores take part: for work between devices that is limited by
// memory. On a GPU there is no difference.
//
// `unit` is the number of bytes that an index stands for. The functor must not throw. If it has a
// member `on_host(begin, end)`, host devices call that.
template <std::size_t unit, class F>
void launch_in_pieces(const Stream& stream, std::size_t count, const F& functor) {
  detail::launch_as(&detail::run_each_in_pieces<unit, F>, stream, count, functor);
}

// As launch_in_pieces, but other cores take part only if the caller is in no team: for work of one
// device while the others have none, such as an optimiser's step after all replicas' backward.
// Within a team the other cores have work of their own.
template <std::size_t unit, class F>
void launch_between_teams(const Stream& stream, std::size_t count, const F& functor) {
  if (detail::inside_team) return launch(stream, count, functor);
  launch_in_pieces<unit>(stream, count, functor);
}

}  // namespace lockstep
