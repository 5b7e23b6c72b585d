// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/tensor/walk.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

namespace lockstep::detail {

template <class T>
inline constexpr bool is_half = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

// Truncates a number to i64 or i32. A NaN, or a number beyond the range, gives the least one, as
// x86 processors do.
template <class To, class From>
LOCKSTEP_HD To whole(From value) {
  constexpr auto kLeast = static_cast<To>(Wrapping<To>{1} << (8 * sizeof(To) - 1));
  constexpr auto kFirst = static_cast<From>(kLeast);
  return value >= kFirst && value < -kFirst ? static_cast<To>(value) : kLeast;
}

// Converts one element. Half-precision types go through f32, floating-point to u8 through i64.
template <class To, class From>
LOCKSTEP_HD To convert(From value) {
  if constexpr (is_half<From> && !std::is_same_v<To, float>) {
    return convert<To>(static_cast<float>(value));
  } else if constexpr (is_half<To>) {
    return To(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool> && std::is_floating_point_v<From>) {
    // By bits, since under -ffast-math NaN may compare equal to 0.
    using Bits = std::conditional_t<sizeof(From) == 4, std::uint32_t, std::uint64_t>;
    return (__builtin_bit_cast(Bits, value) << 1) != 0;
  } else if constexpr (sizeof(To) == 1 && std::is_floating_point_v<From>) {
    return static_cast<To>(whole<std::int64_t>(value));
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    return whole<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

template <class To, class From>
struct CastKernel {
  View<const From> in;
  View<To> out;
  LOCKSTEP_HD void operator()(std::size_t i) const { out[i] = convert<To>(in[i]); }
};

// An element of `Bytes` bytes, of any dtype, for copies, which do not read its value.
template <std::size_t Bytes>
struct alignas(Bytes) Moved {
  unsigned char bytes[Bytes];
};

// Copies between two strided layouts of one shape. The Views reach from the first to the last
// element touched.
template <class T>
struct StridedCopyKernel {
  View<const T> in;
  View<T> out;
  Walk<2> walk;  // over `in` and `out`

  void operator()() const {
    const bool transposed = is_transposed();
    walk.for_each_plane([this, transposed](const auto& offsets) {
      const T* from = in.data + offsets[0];
      T* to = out.data + offsets[1];
      if (transposed) return copy_transposed(from, to);
      for (std::int64_t r = walk.plane_rows(); r > 0; --r) {
        copy_row(from, walk.inner_stride(0), to, walk.inner_stride(1), walk.inner_size());
        from += walk.row_stride(0);
        to += walk.row_stride(1);
      }
    });
  }

 private:
  // True if one side's rows are closer together than the elements of a row. Copied row by row, each
  // element would take a cache line of that side, which is evicted before its next element's turn.
  bool is_transposed() const {
    const std::int64_t from = walk.inner_stride(0), to = walk.inner_stride(1);
    return walk.plane_rows() > 1 && std::min(from, to) > 0 && std::max(from, to) > 1 &&
           (walk.row_stride(0) < from || walk.row_stride(1) < to);
  }

  // Copies a plane by tiles of as many rows as have elements on a cache line.
  void copy_transposed(const T* from, T* to) const {
    constexpr std::int64_t kRows = 64 / sizeof(T);
    constexpr std::int64_t kColumns = 8;
    const std::int64_t rows = walk.plane_rows(), columns = walk.inner_size();
    const std::int64_t row_from = walk.row_stride(0), step_from = walk.inner_stride(0);
    const std::int64_t row_to = walk.row_stride(1), step_to = walk.inner_stride(1);
    for (std::int64_t left = 0; left < columns; left += kColumns) {
      const std::int64_t right = std::min(left + kColumns, columns);
      for (std::int64_t top = 0; top < rows; top += kRows) {
        const std::int64_t bottom = std::min(top + kRows, rows);
        for (std::int64_t r = top; r < bottom; ++r) {
          for (std::int64_t c = left; c < right; ++c) {
            to[r * row_to + c * step_to] = from[r * row_from + c * step_from];
          }
        }
      }
    }
  }

  // By whole cache lines, since compilers do not vectorise single-element writes of bytes.
  static void fill(T* to, T value, std::int64_t count) {
    constexpr std::int64_t kCount = 64 / sizeof(T);
    T line[kCount];
    std::fill_n(line, kCount, value);
    for (; count >= kCount; count -= kCount, to += kCount) std::memcpy(to, line, sizeof line);
    std::memcpy(to, line, static_cast<std::size_t>(count) * sizeof(T));
  }

  // By value: a write to a T, which is bytes, might alias anything passed by reference.
  static void copy_row(const T* from, std::int64_t step_from, T* to, std::int64_t step_to,
                       std::int64_t count) {
    if (step_to == 1 && step_from == 1) {
      std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
    } else if (step_to == 1 && step_from == 0) {
      fill(to, *from, count);
    } else {
      for (std::int64_t i = 0; i < count; ++i) to[i * step_to] = from[i * step_from];
    }
  }
};

// Calls `body(Moved<Bytes>())` for elements of `dtype`.
template <class Body>
decltype(auto) dispatch_moved(Dtype dtype, const Body& body) {
  return dispatch_all(dtype,
                      [&]<class T>(T) -> decltype(auto) { return body(Moved<sizeof(T)>()); });
}

// The bytes of a tensor's elements, packed.
inline std::size_t bytes_of(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel()) * element_size(tensor.dtype());
}

// The number of elements from the first to the last that a layout touches.
std::size_t extent(const Tensor& tensor);

// Copies on `stream` between tensors of one device, shape and dtype, of any strides.
void copy_strided(const Tensor& dst, const Tensor& src, const Stream& stream);

// A contiguous tensor with the elements of `src`, on the same device; `src` itself if it is
// contiguous. Not recorded for backward.
Tensor packed(const Tensor& src);

// As `packed`, but refers to a contiguous `src`, which must outlive it, instead of making a new
// handle.
class Packed : NonCopyable {
 public:
  explicit Packed(const Tensor& src) : Packed(src, src.is_contiguous() ? Tensor() : packed(src)) {}
  explicit Packed(const Tensor&&) = delete;  // a temporary would not live long enough

  operator const Tensor&() const { return tensor_; }
  const Tensor& operator*() const { return tensor_; }

 protected:
  // Refers to `copy` if that is defined, else to `src`.
  Packed(const Tensor& src, Tensor copy)
      : copy_(std::move(copy)), tensor_(copy_.defined() ? copy_ : src) {}

 private:
  const Tensor copy_;
  const Tensor& tensor_;
};

// A contiguous tensor with the elements of `src` converted, on the same device.
Tensor cast(const Tensor& src, Dtype dtype);

// The backend that copies between two devices: CUDA's if one of them is a GPU.
inline Backend& copying_backend(Device a, Device b) { return backend_of(a.is_cuda() ? a : b); }

// The stream on which copy_into copies: the current one of the target's device, or of the source's
// if the target is in plain host memory.
Stream stream_of_copy(const Tensor& dst, const Tensor& src);

// Issues to `stream` a copy between contiguous tensors of the same size in bytes. The caller has
// ordered `stream` after the source's producer; this records both tensors on it and orders the
// write after earlier readers of `dst`.
void copy_bytes(const Tensor& dst, const Tensor& src, const Stream& stream);

// `source`, or a copy of it if it shares memory with `target` in another layout, so that writing
// `target` element by element would change elements of `source` not yet read.
Tensor copy_if_overlapping(const Tensor& target, const Tensor& source);

// Copies the elements of `src` to `dst`, converted to its dtype. The shapes are equal; devices and
// strides are any.
//
// A copy to plain host memory has ended when this returns. A copy to another device is issued to
// that device's current stream, after what was issued to the source's. A copy from plain host
// memory may still read it when this returns: the source is recorded on the copy's stream.
void copy_into(const Tensor& dst, const Tensor& src);

// A new contiguous tensor as `options` say, filled by copy_into.
Tensor copy_as(const Tensor& src, const TensorOptions& options);

// A contiguous tensor that the host can read, with the elements of `tensor`; `tensor` itself if it
// is one. Not recorded for backward.
Tensor contiguous_on_host(const Tensor& tensor);

// The bytes of such a tensor.
std::span<const std::byte> host_bytes(const Tensor& host);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/impl/copy.ipp>
#endif
