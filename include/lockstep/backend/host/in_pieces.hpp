// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/config.hpp>
#include <lockstep/function_ref.hpp>

#include <cstddef>
#include <span>

namespace lockstep::detail {

// Work on fewer bytes than this is not divided: one core has done it before another has come.
inline constexpr std::size_t kWorthDividing = std::size_t{512} << 10;

// Calls run(begin, end) for ranges that together are [0, count), on this thread and on background
// threads that have time, and returns when all have ended. An index stands for `unit` bytes. `run`
// neither throws nor waits for another thread.
void in_pieces(std::size_t count, std::size_t unit,
               FunctionRef<void(std::size_t begin, std::size_t end)> run);

// Copies the bytes [begin, end) of an order, the gaps not counted; of an order with several runs
// and gaps between them, the whole runs that begin in that range.
void copy_part(const CopyOrder& order, std::size_t begin, std::size_t end);

// As std::memcpy for each order, all their bytes divided by in_pieces as if they were one after the
// other.
void copy_in_pieces(std::span<const CopyOrder> orders);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/backend/host/impl/in_pieces.ipp>
#endif
