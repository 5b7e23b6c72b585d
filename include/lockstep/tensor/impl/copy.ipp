// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/tensor/walk.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace lockstep::detail {

LOCKSTEP_INLINE std::size_t extent(const Tensor& tensor) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < tensor.sizes().size(); ++d) {
    last += (tensor.sizes()[d] - 1) * tensor.strides()[d];
  }
  return static_cast<std::size_t>(last + 1);
}

LOCKSTEP_INLINE void copy_strided(const Tensor& dst, const Tensor& src, const Stream& stream) {
  dispatch_moved(src.dtype(), [&]<class T>(T) {
    StridedCopyKernel<T> kernel{input<T>(src), output<T>(dst, stream),
                                make_walk<2>(src.sizes(), {src.strides(), dst.strides()})};
    kernel.in.size = extent(src);
    kernel.out.size = extent(dst);
    launch_call(stream, kernel);
  });
}

LOCKSTEP_INLINE Tensor packed(const Tensor& src) {
  if (src.is_contiguous()) return src;
  const Stream stream = current_stream(src.device());
  Tensor result = empty_on(stream, src.sizes(), src.dtype());
  copy_strided(result, src, stream);
  return result;
}

// True if a cast goes through f32: half-precision types are converted from and to f32 only, so that
// not every pair of dtypes needs a kernel.
constexpr bool needs_f32_between(Dtype from, Dtype to) {
  return (is_half_precision(from) && to != Dtype::f32) ||
         (is_half_precision(to) && from != Dtype::f32);
}

LOCKSTEP_INLINE Tensor cast(const Tensor& src, Dtype dtype) {
  if (src.dtype() == dtype) return packed(src);
  if (needs_f32_between(src.dtype(), dtype)) return cast(cast(src, Dtype::f32), dtype);
  const Tensor from = packed(src);
  const Stream stream = current_stream(src.device());
  Tensor result = empty_on(stream, src.sizes(), dtype);
  dispatch_all(dtype, [&]<class To>(To) {
    dispatch_all(src.dtype(), [&]<class From>(From) {
      if constexpr (!std::is_same_v<To, From> && !needs_f32_between(dtype_of<From>, dtype_of<To>)) {
        launch(stream, static_cast<std::size_t>(src.numel()),
               CastKernel<To, From>{input<From>(from), output<To>(result, stream)});
      }
    });
  });
  return result;
}

LOCKSTEP_INLINE Stream stream_of_copy(const Tensor& dst, const Tensor& src) {
  return current_stream(dst.device().is_host_memory() ? src.device() : dst.device());
}

LOCKSTEP_INLINE void copy_bytes(const Tensor& dst, const Tensor& src, const Stream& stream) {
  order_write(dst, stream);
  src.record_stream(stream);
  if (stream != dst.impl()->storage->owner()) dst.record_stream(stream);
  copying_backend(dst.device(), src.device())
      .copy({dst.impl()->data(), dst.device(), src.impl()->data(), src.device(),
             Pitched{bytes_of(src)}, &stream.state(), src.impl()->storage->is_lent()});
}

// True if they share memory in different layouts.
inline bool overlap_differently(const Tensor& a, const Tensor& b) {
  const TensorImpl& one = *a.impl();
  const TensorImpl& other = *b.impl();
  if (one.storage != other.storage || a.numel() == 0 || b.numel() == 0) return false;
  if (one.offset == other.offset && one.strides == other.strides) return false;
  const auto begin = [](const Tensor& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.impl()->data());
  };
  const auto end = [&](const Tensor& tensor) {
    return begin(tensor) + extent(tensor) * element_size(tensor.dtype());
  };
  return begin(a) < end(b) && begin(b) < end(a);
}

LOCKSTEP_INLINE Tensor copy_if_overlapping(const Tensor& target, const Tensor& source) {
  return overlap_differently(target, source) ? copy_as(source, source.options()) : source;
}

LOCKSTEP_INLINE void copy_into(const Tensor& dst, const Tensor& src) {
  check<ShapeError>(dst.sizes() == src.sizes(), "copy: a tensor of shape ", src.sizes(),
                    " does not fit one of shape ", dst.sizes());
  if (src.dtype() != dst.dtype()) return copy_into(dst, cast(src, dst.dtype()));
  if (dst.device() == src.device()) {
    if (overlap_differently(dst, src)) return copy_into(dst, copy_as(src, src.options()));
    const Stream stream = current_stream(dst.device());
    if (dst.is_contiguous() && src.is_contiguous()) {
      copy_bytes(dst, src, stream);
    } else {
      copy_strided(dst, src, stream);
    }
    return;
  }
  if (!dst.is_contiguous()) return copy_into(dst, copy_as(src, dst.options()));
  const Tensor from = packed(src);
  const bool to_host = dst.device().is_host_memory();
  const Stream stream = stream_of_copy(dst, src);
  // Work of the other device's current stream on either tensor comes first.
  stream.wait_stream(current_stream(to_host ? dst.device() : src.device()));
  copy_bytes(dst, from, stream);
  if (to_host) stream.synchronize();
}

LOCKSTEP_INLINE Tensor copy_as(const Tensor& src, const TensorOptions& options) {
  Tensor copy = empty(src.sizes(), options);
  copy_into(copy, src);
  return copy;
}

LOCKSTEP_INLINE Tensor contiguous_on_host(const Tensor& tensor) {
  if (tensor.device().is_cpu()) return packed(tensor);
  return copy_as(tensor, {.dtype = tensor.dtype()});
}

LOCKSTEP_INLINE std::span<const std::byte> host_bytes(const Tensor& host) {
  return {static_cast<const std::byte*>(read_on_host(host, host.dtype())), bytes_of(host)};
}

}  // namespace lockstep::detail
