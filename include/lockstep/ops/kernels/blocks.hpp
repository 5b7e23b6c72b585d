// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>

#include <algorithm>
#include <cstddef>
#include <tuple>

// Kernels of host devices that take a block of elements at a time through vector functions
// (ops/kernels/vector_math.hpp), with what lies between those in ordinary loops over the whole
// block. The number of turns of these loops is a constant, so that compilers make vectors of them
// without being asked; a block that is not full has zeros behind its elements.
namespace lockstep::detail {

inline constexpr std::size_t kBlockSize = 64;

// Room for a block, with anything in it.
template <class T>
struct BlockRoom {
  BlockRoom() {}
  T data[kBlockSize];
};

// `count` elements as a block: where they are if they fill one, else in `room`.
template <class T>
const T* as_block(const T* from, std::size_t count, BlockRoom<T>& room) {
  if (count == kBlockSize) return from;
  std::fill(std::copy_n(from, count, room.data), room.data + kBlockSize, T{});
  return room.data;
}

// A function of elements that has `block(count, out, in...)` as well: the same for a block, of
// which `count` elements are wanted. Where a function has that, host devices use nothing else, so
// that an element gives the same bits in every layout.
template <class F, class Out, class... In>
concept WorksInBlocks = requires(const F& f, Out* out, const In*... in) {
  f.block(std::size_t{}, out, in...);
};

// Such a function of n elements. All blocks go through this one call, full or not: if it were
// compiled twice, it might be rounded in two ways.
template <class T, class F, class... In>
void in_blocks(std::size_t n, T* out, const F& f, const In*... in) {
  BlockRoom<T> last;
  std::tuple<BlockRoom<In>...> rooms;
  for (std::size_t i = 0; i < n; i += kBlockSize) {
    const std::size_t count = std::min(n - i, kBlockSize);
    T* const to = count == kBlockSize ? out + i : last.data;
    std::apply([&](auto&... room) { f.block(count, to, as_block(in + i, count, room)...); }, rooms);
    if (count != kBlockSize) std::copy_n(last.data, count, out + i);
  }
}

}  // namespace lockstep::detail
