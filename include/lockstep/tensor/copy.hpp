// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace lockstep::detail {

template <class T>
inline constexpr bool is_half = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

// One element converted; half-precision types through f32.
template <class To, class From>
LOCKSTEP_HD To convert(From value) {
  if constexpr (is_half<From> && !std::is_same_v<To, float>) {
    return convert<To>(static_cast<float>(value));
  } else if constexpr (is_half<To>) {
    return To(static_cast<float>(value));
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

template <class To, class From>
void launch_cast(const Tensor& to, const Tensor& from, const Stream& stream) {
  if constexpr ((!is_half<To> || std::is_same_v<From, float>)&&(!is_half<From> ||
                                                                std::is_same_v<To, float>)) {
    launch(stream, static_cast<std::size_t>(from.numel()),
           CastKernel<To, From>{input<From>(from), output<To>(to, stream)});
  }
}

// Copies between two strided layouts of one shape, the innermost dimension in a plain loop.
// The Views cover everything from the first to the last element touched.
template <class T>
struct StridedCopyKernel {
  View<const T> in;
  View<T> out;
  std::array<std::int64_t, Shape::kMaxDims> sizes;
  std::array<std::int64_t, Shape::kMaxDims> in_strides;
  std::array<std::int64_t, Shape::kMaxDims> out_strides;
  std::size_t dims;  // at least 1, and no size is 0

  void operator()() const {
    std::array<std::int64_t, Shape::kMaxDims> index{};
    const std::size_t last = dims - 1;
    while (true) {
      std::int64_t from = 0;
      std::int64_t to = 0;
      for (std::size_t d = 0; d < last; ++d) {
        from += index[d] * in_strides[d];
        to += index[d] * out_strides[d];
      }
      for (std::int64_t i = 0; i < sizes[last]; ++i) {
        out.data[to + i * out_strides[last]] = in.data[from + i * in_strides[last]];
      }
      std::size_t d = last;
      while (d > 0 && ++index[d - 1] == sizes[d - 1]) index[--d] = 0;
      if (d == 0) return;
    }
  }
};

// One past the last element that a layout touches, counted from the first.
inline std::size_t extent(const Tensor& tensor) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < tensor.sizes().size(); ++d) {
    last += (tensor.sizes()[d] - 1) * tensor.strides()[d];
  }
  return static_cast<std::size_t>(last + 1);
}

// Same device, same shape, same dtype, any strides; on `stream`.
inline void copy_strided(const Tensor& dst, const Tensor& src, const Stream& stream) {
  if (src.numel() == 0) return;
  dispatch_all(src.dtype(), [&]<class T>(T) {
    StridedCopyKernel<T> kernel{input<T>(src), output<T>(dst, stream), {1}, {}, {}, 1};
    kernel.in.size = extent(src);
    kernel.out.size = extent(dst);
    for (std::size_t d = 0; d < src.sizes().size(); ++d) {
      kernel.sizes[d] = src.sizes()[d];
      kernel.in_strides[d] = src.strides()[d];
      kernel.out_strides[d] = dst.strides()[d];
      kernel.dims = d + 1;
    }
    launch_call(stream, kernel);
  });
}

// A contiguous tensor with the elements of `src`, on the same device: `src` itself if it is one.
// Not recorded for backward.
inline Tensor packed(const Tensor& src) {
  if (src.is_contiguous()) return src;
  const Stream stream = current_stream(src.device());
  Tensor result = empty_on(stream, src.sizes(), src.dtype());
  copy_strided(result, src, stream);
  return result;
}

// The same for as long as `src` lives: where that is contiguous, without a handle of its own.
class Packed {
 public:
  explicit Packed(const Tensor& src)
      : copy_(src.is_contiguous() ? Tensor() : packed(src)),
        tensor_(copy_.defined() ? copy_ : src) {}
  explicit Packed(const Tensor&&) = delete;  // nobody would hold it
  Packed(const Packed&) = delete;
  Packed& operator=(const Packed&) = delete;

  operator const Tensor&() const { return tensor_; }
  const Tensor& operator*() const { return tensor_; }

 private:
  const Tensor copy_;
  const Tensor& tensor_;
};

// Half-precision types are converted through f32 alone, so that not every pair of dtypes needs a
// kernel; nothing is lost on that way.
inline bool needs_f32_between(Dtype from, Dtype to) {
  const auto is_half = [](Dtype dtype) { return dtype == Dtype::f16 || dtype == Dtype::bf16; };
  return (is_half(from) && to != Dtype::f32) || (is_half(to) && from != Dtype::f32);
}

// A contiguous tensor with the elements of `src` converted, on the same device.
inline Tensor cast(const Tensor& src, Dtype dtype) {
  if (src.dtype() == dtype) return packed(src);
  if (needs_f32_between(src.dtype(), dtype)) return cast(cast(src, Dtype::f32), dtype);
  const Tensor from = packed(src);
  const Stream stream = current_stream(src.device());
  Tensor result = empty_on(stream, src.sizes(), dtype);
  dispatch_all(src.dtype(), [&]<class From>(From) {
    dispatch_all(dtype, [&]<class To>(To) {
      if constexpr (dtype_of<From> != dtype_of<To>) {
        launch_cast<To, From>(result, from, stream);
      }
    });
  });
  return result;
}

// The backend that copies between two devices: the GPU's if one is.
inline Backend& copying_backend(Device a, Device b) { return backend_of(a.is_cuda() ? a : b); }

// Issues the copy of one contiguous tensor's bytes onto another of the same size to `stream`. The
// caller has ordered `stream` after the source's producer; this records both tensors on it and
// orders the write after earlier readers of `dst`.
inline void copy_bytes(const Tensor& dst, const Tensor& src, const Stream& stream) {
  dst.impl()->storage->order_write(stream);
  dst.mark_changed();
  src.record_stream(stream);
  if (stream != dst.impl()->storage->owner()) dst.record_stream(stream);
  const std::size_t bytes = static_cast<std::size_t>(src.numel()) * element_size(src.dtype());
  copying_backend(dst.device(), src.device())
      .copy(dst.impl()->data(), dst.device(), src.impl()->data(), src.device(), bytes,
            stream.state());
}

// Makes `dst` hold the elements of `src`, converted to its dtype; the shapes are equal, devices and
// strides are any.
//
// A copy to plain host memory has ended when this returns, as it has no stream that could be waited
// for. A copy between devices is issued to the destination's current stream after what is on the
// source's. A copy from plain host memory may still be reading it: the source is recorded.
inline void copy_into(const Tensor& dst, const Tensor& src) {
  check<ShapeError>(dst.sizes() == src.sizes(), "copy: a tensor of shape ", src.sizes(),
                    " does not fit one of shape ", dst.sizes());
  if (src.dtype() != dst.dtype()) return copy_into(dst, cast(src, dst.dtype()));
  if (dst.device() == src.device()) {
    const Stream stream = current_stream(dst.device());
    if (dst.is_contiguous() && src.is_contiguous()) {
      copy_bytes(dst, src, stream);
    } else {
      copy_strided(dst, src, stream);
    }
    return;
  }
  const Tensor from = packed(src);
  if (!dst.is_contiguous()) {
    const Tensor staged = empty_on(current_stream(dst.device()), dst.sizes(), dst.dtype());
    copy_into(staged, from);
    return copy_into(dst, staged);
  }
  const bool to_host = dst.device().is_host_memory();
  const Stream stream = current_stream(to_host ? src.device() : dst.device());
  // The other end's stream: what it has to do with either tensor comes first.
  stream.wait_stream(current_stream(to_host ? dst.device() : src.device()));
  copy_bytes(dst, from, stream);
  if (to_host) stream.synchronize();
}

}  // namespace lockstep::detail
