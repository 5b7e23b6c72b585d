// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/non_copyable.hpp>

#include <algorithm>
#include <cstddef>

// Kernels of host devices that take a block of elements at a time through vector functions
// (ops/kernels/vector_math.hpp), with what lies between those in ordinary loops over the whole
// block. The number of turns of these loops is a constant, so that compilers make vectors of them
// without being asked; a block that is not full has zeros behind its elements.
namespace lockstep::detail {

inline constexpr std::size_t kBlockSize = 64;

// A block to be read: `count` elements where they are if they fill it, else in a room of its own.
// Without a place it is all zeros.
template <class T>
class BlockIn : NonCopyable {
 public:
  const T* const data;

  BlockIn(const T* from, std::size_t count)
      : data(from != nullptr && count == kBlockSize ? from : room_) {
    if (data == from) return;
    T* const end = from == nullptr ? room_ : std::copy_n(from, count, room_);
    std::fill(end, room_ + kBlockSize, T{});
  }

 private:
  T room_[kBlockSize];
};

// A block to be written: in place, or in a room of its own whose first `count` elements are copied
// to their place at the end. Without a place they are dropped.
template <class T>
class BlockOut : NonCopyable {
 public:
  T* const data;

  BlockOut(T* to, std::size_t count)
      : data(to != nullptr && count == kBlockSize ? to : room_), to_(to), count_(count) {}
  ~BlockOut() {
    if (to_ != nullptr && data != to_) std::copy_n(data, count_, to_);
  }

 private:
  T* const to_;
  const std::size_t count_;
  T room_[kBlockSize];
};

// out[i] = f(in[i]...) for a whole block.
template <class F, class T, class... In>
void map_block(const F& f, T* out, const In*... in) {
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = 0; i < kBlockSize; ++i) out[i] = f(in[i]...);
}

// A function of elements that has `block(count, out, in...)` as well: the same for a block, of
// which `count` elements are wanted. Where a function has that, host devices use it, or `range`
// below, and no operator of one element, so that an element gives the same bits in every layout.
template <class F, class Out, class... In>
concept WorksInBlocks = requires(const F& f, Out* out, const In*... in) {
  f.block(std::size_t{}, out, in...);
};

// Such a function of n elements; a member `range` that has computed all of them by itself returns
// true. All blocks go through this one call, full or not: if it were compiled twice, it might be
// rounded in two ways.
template <class T, class F, class... In>
void in_blocks(std::size_t n, T* out, const F& f, const In*... in) {
  if constexpr (requires { f.range(n, out, in...); }) {
    if (f.range(n, out, in...)) return;
  }
  for (std::size_t i = 0; i < n; i += kBlockSize) {
    const std::size_t count = std::min(n - i, kBlockSize);
    f.block(count, BlockOut<T>(out + i, count).data, BlockIn<In>(in + i, count).data...);
  }
}

}  // namespace lockstep::detail
