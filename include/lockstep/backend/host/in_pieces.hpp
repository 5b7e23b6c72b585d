// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/host/background_threads.hpp>
#include <lockstep/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::detail {

// Work on fewer bytes than this is not divided: one core has done it before another has come.
inline constexpr std::size_t kWorthDividing = std::size_t{512} << 10;

// Calls run(begin, end) for ranges that together are [0, count), on this thread and on background
// threads that have time, and returns when all have ended. An index stands for `unit` bytes. `run`
// neither throws nor waits for another thread.
template <class Run>
void in_pieces(std::size_t count, std::size_t unit, const Run& run) {
  constexpr std::size_t kPieces = 32;
  constexpr std::size_t kLeast = std::size_t{32} << 10;
  constexpr std::size_t kMost = std::size_t{256} << 10;
  if (count * unit < kWorthDividing) return run(std::size_t{0}, count);
  const std::size_t bytes = std::clamp(count * unit / kPieces, kLeast, kMost);
  struct Context {
    const Run& run;
    std::size_t count;
    std::size_t length;
  } context{run, count, std::max<std::size_t>(1, bytes / unit)};
  const auto piece = [](void* at, std::size_t index) noexcept {
    const auto& work = *static_cast<const Context*>(at);
    const std::size_t begin = index * work.length;
    work.run(begin, std::min(begin + work.length, work.count));
  };
  const std::size_t pieces = (count + context.length - 1) / context.length;
  BackgroundThreads::instance().share({piece, &context, static_cast<std::uint32_t>(pieces)});
}

// The bytes [begin, end) of an order, not counting the gaps; or, where it has several runs, the
// runs that begin there.
void copy_part(const CopyOrder& order, std::size_t begin, std::size_t end);

// As std::memcpy.
void copy_in_pieces(void* dst, const void* src, std::size_t bytes);

// As std::memcpy for each order, all their bytes divided as if they were one after the other.
void copy_in_pieces(std::span<const CopyOrder> orders);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/backend/host/in_pieces.ipp>
#endif
