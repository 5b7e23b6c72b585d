// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/kernels/blocks.hpp>
#include <lockstep/ops/kernels/comparison.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/walk.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

// The kernels that apply a function to one or two elements at a time, and the functions of
// arithmetic.
namespace lockstep::detail {

template <class In, class Out, class F>
struct UnaryKernel {
  View<const In> in;
  View<Out> out;
  F f;
  LOCKSTEP_HD void operator()(std::size_t i) const { out[i] = f(in[i]); }

  void on_host(std::size_t count) const requires WorksInBlocks<F, Out, In> {
    in_blocks(count, out.data, f, in.data);
  }
};

template <class In, class Out, class F>
struct BinaryKernel {
  View<const In> a;
  View<const In> b;
  View<Out> out;
  F f;
  LOCKSTEP_HD void operator()(std::size_t i) const { out[i] = f(a[i], b[i]); }

  void on_host(std::size_t count) const requires WorksInBlocks<F, Out, In, In> {
    in_blocks(count, out.data, f, a.data, b.data);
  }
};

// The same for operands that are stretched to a common shape or lie scattered. Rows that are
// contiguous or a single element are told apart once a row, not once an element.
template <class In, class Out, class F>
struct BroadcastCall {
  View<const In> a;
  View<const In> b;
  View<Out> out;
  Walk<2> walk;
  F f;

  void operator()() const {
    if (out.size == 0) return;
    const auto count = static_cast<std::size_t>(walk.inner_size());
    const std::int64_t step_a = walk.inner_stride(0);
    const std::int64_t step_b = walk.inner_stride(1);
    Out* to = out.data;
    walk.for_each_plane([&](const auto& offsets) {
      const In* x = a.data + offsets[0];
      const In* y = b.data + offsets[1];
      for (std::int64_t r = walk.plane_rows(); r > 0; --r, to += count) {
        row(x, step_a, y, step_b, to, count);
        x += walk.row_stride(0);
        y += walk.row_stride(1);
      }
    });
  }

 private:
  void row(const In* x, std::int64_t step_x, const In* y, std::int64_t step_y, Out* to,
           std::size_t count) const {
    if constexpr (WorksInBlocks<F, Out, In, In>) {
      row_in_blocks(x, step_x, y, step_y, to, count);
    } else if (step_x == 1 && step_y == 1) {
      LOCKSTEP_INDEPENDENT
      for (std::size_t i = 0; i < count; ++i) to[i] = f(x[i], y[i]);
    } else if (step_x == 1 && step_y == 0) {
      const In fixed = *y;
      LOCKSTEP_INDEPENDENT
      for (std::size_t i = 0; i < count; ++i) to[i] = f(x[i], fixed);
    } else if (step_x == 0 && step_y == 1) {
      const In fixed = *x;
      LOCKSTEP_INDEPENDENT
      for (std::size_t i = 0; i < count; ++i) to[i] = f(fixed, y[i]);
    } else {
      for (std::size_t i = 0; i < count; ++i, x += step_x, y += step_y) to[i] = f(*x, *y);
    }
  }

  void row_in_blocks(const In* x, std::int64_t step_x, const In* y, std::int64_t step_y, Out* to,
                     std::size_t count) const {
    In gathered[2][kBlockSize];
    for (std::size_t i = 0; i < count; i += kBlockSize) {
      const std::size_t size = std::min(count - i, kBlockSize);
      for (std::size_t k = 0; k < size; ++k, x += step_x, y += step_y) {
        gathered[0][k] = *x;
        gathered[1][k] = *y;
      }
      in_blocks(size, to + i, f, gathered[0], gathered[1]);
    }
  }
};

template <class T>
struct Plus {
  LOCKSTEP_HD T operator()(T x, T y) const {
    return static_cast<T>(static_cast<Wrapping<T>>(x) + static_cast<Wrapping<T>>(y));
  }
};

template <class T>
struct PlusScaled {
  T alpha;
  LOCKSTEP_HD T operator()(T x, T y) const {
    using U = Wrapping<T>;
    return static_cast<T>(static_cast<U>(x) + static_cast<U>(alpha) * static_cast<U>(y));
  }
};

template <class T>
struct Minus {
  LOCKSTEP_HD T operator()(T x, T y) const {
    return static_cast<T>(static_cast<Wrapping<T>>(x) - static_cast<Wrapping<T>>(y));
  }
};

template <class T>
struct Times {
  LOCKSTEP_HD T operator()(T x, T y) const {
    return static_cast<T>(static_cast<Wrapping<T>>(x) * static_cast<Wrapping<T>>(y));
  }
};

template <class T>
struct Over {
  LOCKSTEP_HD T operator()(T x, T y) const { return x / y; }
};

template <class T>
struct Maximum {
  LOCKSTEP_HD T operator()(T x, T y) const { return x > y || x != x ? x : y; }
};
template <class T>
struct Minimum {
  LOCKSTEP_HD T operator()(T x, T y) const { return x < y || x != x ? x : y; }
};

// The part of a maximum's gradient that x gets; that of a minimum's, y.
template <class T>
struct MaximumShare {
  LOCKSTEP_HD T operator()(T x, T y) const { return x == y ? T(0.5) : x < y ? T(0) : T(1); }
};

// A function of two elements with a number for one of them.
template <class T, class F>
struct BindRight {
  F f;
  T y;
  LOCKSTEP_HD T operator()(T x) const { return f(x, y); }
};

template <class T, class F>
struct BindLeft {
  F f;
  T x;
  LOCKSTEP_HD T operator()(T y) const { return f(x, y); }
};

// One functor for all comparisons, so that they are compiled once.
template <class T>
struct Compare {
  By by;

  LOCKSTEP_HD bool operator()(T x, T y) const {
    return by == By::eq   ? x == y
           : by == By::ne ? x != y
           : by == By::lt ? x < y
           : by == By::le ? x <= y
           : by == By::gt ? x > y
                          : x >= y;
  }
  void block(std::size_t, bool* out, const T* x, const T* y) const {
    switch (by) {
      case By::eq:
        return map_block([](T a, T b) { return a == b; }, out, x, y);
      case By::ne:
        return map_block([](T a, T b) { return a != b; }, out, x, y);
      case By::lt:
        return map_block([](T a, T b) { return a < b; }, out, x, y);
      case By::le:
        return map_block([](T a, T b) { return a <= b; }, out, x, y);
      case By::gt:
        return map_block([](T a, T b) { return a < b; }, out, y, x);
      case By::ge:
        return map_block([](T a, T b) { return a <= b; }, out, y, x);
    }
  }
};
template <class T>
struct CompareTo {
  Compare<T> f;
  T y;

  LOCKSTEP_HD bool operator()(T x) const { return f(x, y); }
  void block(std::size_t n, bool* out, const T* x) const {
    T other[kBlockSize];
    std::fill_n(other, kBlockSize, y);
    f.block(n, out, x, other);
  }
};

}  // namespace lockstep::detail
