// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/shape.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

// Iteration over operands of different strides, for kernels.
namespace lockstep::detail {

// An iteration over N operands, in as few dimensions as their strides allow, the innermost last.
template <std::size_t N>
struct Walk {
  Shape sizes;
  std::array<Shape, N> strides;

  std::int64_t inner_size() const { return sizes.empty() ? 1 : sizes.back(); }
  std::int64_t inner_stride(std::size_t operand) const {
    return sizes.empty() ? 0 : strides[operand].back();
  }

  using Offsets = std::array<std::int64_t, N>;

  // Calls `body(offsets)` with each operand's offset for every row, that is, for every index of all
  // dimensions but the innermost, in row-major order. Without elements there is one row of size 0.
  template <class Body>
  void for_each_row(const Body& body) const {
    for_each(sizes.empty() ? 0 : sizes.size() - 1, body);
  }
  // The same for every plane of `plane_rows` rows: all dimensions but the two innermost.
  template <class Body>
  void for_each_plane(const Body& body) const {
    for_each(sizes.size() < 2 ? 0 : sizes.size() - 2, body);
  }
  std::int64_t plane_rows() const { return sizes.size() < 2 ? 1 : sizes[sizes.size() - 2]; }
  std::int64_t row_stride(std::size_t operand) const {
    return sizes.size() < 2 ? 0 : strides[operand][sizes.size() - 2];
  }

 private:
  // The same for every index of the first `dims` dimensions, none of which is empty.
  template <class Body>
  void for_each(std::size_t dims, const Body& body) const {
    visit(
        dims,
        [](const void* to, const Offsets& offsets) { (*static_cast<const Body*>(to))(offsets); },
        &body);
  }

  // Out of line, so that it is compiled once for all bodies. Calls of a body are indirect, so a
  // body should handle a whole row or plane.
  [[gnu::noinline]] void visit(std::size_t dims, void (*body)(const void*, const Offsets&),
                               const void* context) const {
    std::array<std::int64_t, Shape::kMaxDims> index{};
    Offsets offsets{};
    // Moves to the next index; false after the last one.
    const auto advance = [&] {
      for (std::size_t d = dims; d-- > 0;) {
        for (std::size_t n = 0; n < N; ++n) offsets[n] += strides[n][d];
        if (++index[d] < sizes[d]) return true;
        for (std::size_t n = 0; n < N; ++n) offsets[n] -= strides[n][d] * sizes[d];
        index[d] = 0;
      }
      return false;
    };
    do {
      body(context, offsets);
    } while (advance());
  }
};

// Wraps around: the sizes of a tensor without elements may have a product out of range.
inline std::int64_t wrapping_product(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}

// Drops dimensions of size 1 and joins those that all operands pass through evenly. Without
// elements the walk has one dimension of size 0.
template <std::size_t N>
Walk<N> make_walk(const Shape& sizes, const std::array<Shape, N>& strides) {
  Walk<N> walk;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    if (sizes[d] == 0) {
      walk.sizes = {0};
      walk.strides.fill({0});
      return walk;
    }
    bool joins = !walk.sizes.empty();
    for (std::size_t n = 0; n < N && joins; ++n) {
      joins = walk.strides[n].back() == wrapping_product(strides[n][d], sizes[d]);
    }
    if (!joins) {
      walk.sizes.push_back(sizes[d]);
      for (std::size_t n = 0; n < N; ++n) walk.strides[n].push_back(strides[n][d]);
      continue;
    }
    const std::size_t last = walk.sizes.size() - 1;
    walk.sizes[last] = wrapping_product(walk.sizes[last], sizes[d]);
    for (std::size_t n = 0; n < N; ++n) walk.strides[n][last] = strides[n][d];
  }
  return walk;
}

}  // namespace lockstep::detail
