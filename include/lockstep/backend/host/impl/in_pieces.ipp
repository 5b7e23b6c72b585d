// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/host/background_threads.hpp>
#include <lockstep/backend/host/in_pieces.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace lockstep::detail {

LOCKSTEP_INLINE void in_pieces(std::size_t count, std::size_t unit,
                               FunctionRef<void(std::size_t begin, std::size_t end)> run) {
  constexpr std::size_t kPieces = 32;
  constexpr std::size_t kLeast = std::size_t{32} << 10;
  constexpr std::size_t kMost = std::size_t{256} << 10;
  if (count * unit < kWorthDividing) return run(0, count);
  const std::size_t bytes = std::clamp(count * unit / kPieces, kLeast, kMost);
  const std::size_t length = std::max<std::size_t>(1, bytes / unit);
  const auto piece = [&](std::size_t index) noexcept {
    const std::size_t begin = index * length;
    run(begin, std::min(begin + length, count));
  };
  const std::size_t pieces = (count + length - 1) / length;
  BackgroundThreads::instance().share({piece, static_cast<std::uint32_t>(pieces)});
}

LOCKSTEP_INLINE void copy_part(const CopyOrder& order, std::size_t begin, std::size_t end) {
  auto* const to = static_cast<std::byte*>(order.dst);
  const auto* const from = static_cast<const std::byte*>(order.src);
  const Pitched& shape = order.shape;
  if (shape.is_one_run()) {
    std::memcpy(to + begin, from + begin, end - begin);
    return;
  }
  const std::size_t last = (end + shape.width - 1) / shape.width;
  for (std::size_t row = (begin + shape.width - 1) / shape.width; row < last; ++row) {
    std::memcpy(to + row * shape.dst_pitch, from + row * shape.src_pitch, shape.width);
  }
}

LOCKSTEP_INLINE void copy_in_pieces(std::span<const CopyOrder> orders) {
  std::size_t total = 0;
  for (const CopyOrder& order : orders) total += order.bytes();
  in_pieces(total, 1, [orders](std::size_t begin, std::size_t end) {
    for (const CopyOrder& order : orders) {
      const std::size_t bytes = order.bytes();
      if (begin < bytes && begin < end) copy_part(order, begin, std::min(end, bytes));
      begin -= std::min(begin, bytes);
      end -= std::min(end, bytes);
    }
  });
}

}  // namespace lockstep::detail
