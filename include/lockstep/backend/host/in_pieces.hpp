// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/config.hpp>
#include <lockstep/function_ref.hpp>

#include <cstddef>
#include <span>

namespace lockstep::detail {

// Less work than this, in bytes, is not divided: one core has done it before another one comes.
inline constexpr std::size_t kWorthDividing = std::size_t{512} << 10;

// Calls run(begin, end) for ranges that together are [0, count), on this thread and on idle
// background threads, and returns when all have ended. An index stands for `unit` bytes. `run` must
// neither throw nor wait for another thread.
void in_pieces(std::size_t count, std::size_t unit,
               FunctionRef<void(std::size_t begin, std::size_t end)> run);

// Copies the bytes [begin, end) of an order, not counting gaps; if it has gaps, the whole runs that
// begin in that range.
void copy_part(const CopyOrder& order, std::size_t begin, std::size_t end);

// As std::memcpy for each order. in_pieces divides all their bytes as if they followed one another.
void copy_in_pieces(std::span<const CopyOrder> orders);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/backend/host/impl/in_pieces.ipp>
#endif
