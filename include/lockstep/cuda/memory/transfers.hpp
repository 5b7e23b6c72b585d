// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/host/in_pieces.hpp>
#include <lockstep/cuda/memory/staging.hpp>
#include <lockstep/cuda/runtime/cuda_device.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/cuda/runtime/device_guard.hpp>
#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/cuda/runtime/logical_devices.hpp>
#include <lockstep/cuda/runtime/peer_access.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <memory>

// Copies that touch a GPU, each a rectangle of bytes, issued to a CUDA stream.
namespace lockstep::cuda {

using detail::CopyOrder;
using detail::Pitched;

// True for memory that the copy engine of a GPU reaches: it is page-locked. The GPU that is current
// has a context afterwards.
inline bool is_page_locked(const void* data) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, data) != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  return attributes.type == cudaMemoryTypeHost;
}

// The pitch that a two-dimensional copy may have at most, on every GPU there is.
inline constexpr std::size_t kMostPitch = 0x7fff'ffff;

// Calls copy(to, from, bytes) for a shape that is one run, and for each row of one whose pitch is
// more than a two-dimensional copy may have. False, without a call, for any other.
template <class Copy>
bool copy_runs(void* dst, const void* src, const Pitched& shape, const Copy& copy) {
  const bool one_run = shape.is_one_run();
  if (!one_run && std::max(shape.dst_pitch, shape.src_pitch) <= kMostPitch) return false;
  auto* const to = static_cast<std::byte*>(dst);
  const auto* const from = static_cast<const std::byte*>(src);
  const std::size_t bytes = one_run ? shape.bytes() : shape.width;
  for (std::size_t row = 0; row < (one_run ? 1 : shape.rows); ++row) {
    copy(to + row * shape.dst_pitch, from + row * shape.src_pitch, bytes);
  }
  return true;
}

// Copies between memory that the stream's GPU reaches: its own, a peer's under one address space,
// and page-locked host memory.
inline void copy_direct(void* dst, const void* src, const Pitched& shape,
                        const CudaStream& stream) {
  // A copy of pool memory is refused where another GPU is current.
  const DeviceGuard guard(stream.device());
  const auto copy = [&](void* to, const void* from, std::size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.handle()), "cudaMemcpyAsync",
          stream.device());
  };
  if (copy_runs(dst, src, shape, copy)) return;
  check(cudaMemcpy2DAsync(dst, shape.dst_pitch, src, shape.src_pitch, shape.width, shape.rows,
                          cudaMemcpyDefault, stream.handle()),
        "cudaMemcpy2DAsync", stream.device());
}

inline void copy_direct(const CopyOrder& order, const CudaStream& stream) {
  copy_direct(order.dst, order.src, order.shape, stream);
}

// Copies from another GPU what its allocator may have opened to no other: the driver finds a way.
inline void copy_lent(const CopyOrder& order, const CudaStream& stream) {
  const DeviceGuard guard(stream.device());
  const int here = gpu_of(order.dst_device);
  const int there = gpu_of(order.src_device);
  const Pitched& shape = order.shape;
  const auto copy = [&](void* to, const void* from, std::size_t bytes) {
    check(cudaMemcpyPeerAsync(to, here, from, there, bytes, stream.handle()), "cudaMemcpyPeerAsync",
          stream.device());
  };
  if (copy_runs(order.dst, order.src, shape, copy)) return;
  cudaMemcpy3DPeerParms plane{};
  plane.dstDevice = here;
  plane.dstPtr = {order.dst, shape.dst_pitch, shape.width, shape.rows};
  plane.srcDevice = there;
  plane.srcPtr = {const_cast<void*>(order.src), shape.src_pitch, shape.width, shape.rows};
  plane.extent = {shape.width, shape.rows, 1};
  check(cudaMemcpy3DPeerAsync(&plane, stream.handle()), "cudaMemcpy3DPeerAsync", stream.device());
}

// Divides a copy into parts that have room in a block of Staging each, some whole rows or part of
// one. Calls copy(in, out, block) for each: `in` is the part's copy to the block, `out` that from
// there. The block is given back behind what `stream` has been given by then.
template <class Copy>
void copy_by_blocks(const CopyOrder& order, Staging& staging, CudaStream& stream,
                    const Copy& copy) {
  const Pitched& shape = order.shape;
  auto* const dst = static_cast<std::byte*>(order.dst);
  const auto* const src = static_cast<const std::byte*>(order.src);
  const std::size_t most = std::min(shape.width, Staging::kLarge);
  const std::size_t at_once = most < shape.width ? 1 : Staging::kLarge / most;
  for (std::size_t row = 0; row < shape.rows; row += at_once) {
    for (std::size_t column = 0; column < shape.width; column += most) {
      const std::size_t width = std::min(most, shape.width - column);
      const std::size_t rows = std::min(at_once, shape.rows - row);
      Staging::Block block(staging, width * rows, stream);
      CopyOrder in = order;
      in.dst = block.data();
      in.src = src + row * shape.src_pitch + column;
      in.shape = {width, rows, width, shape.src_pitch};
      CopyOrder out = order;
      out.dst = dst + row * shape.dst_pitch + column;
      out.src = block.data();
      out.shape = {width, rows, shape.dst_pitch, width};
      copy(in, out, block);
    }
  }
}

// Copies from ordinary host memory, which has been read when this returns: by all cores that have
// time, since one reads and writes more slowly than the GPU takes what is page-locked.
inline void copy_from_host(const CopyOrder& order, CudaStream& stream) {
  copy_by_blocks(order, CudaDevice::at(stream.device()).staging, stream,
                 [&](const CopyOrder& in, const CopyOrder& out, const Staging::Block&) {
                   detail::copy_in_pieces({&in, 1});
                   copy_direct(out, stream);
                 });
}

// Copies to ordinary host memory, which is written in stream order: the stream moves each piece to
// its place, on the host, behind the copy from its GPU.
inline void copy_to_host(const CopyOrder& order, CudaStream& stream) {
  const auto move = [](void* out) {
    const std::unique_ptr<const CopyOrder> owned(static_cast<CopyOrder*>(out));
    detail::copy_part(*owned, 0, owned->bytes());
  };
  copy_by_blocks(order, CudaDevice::at(stream.device()).staging, stream,
                 [&](const CopyOrder& in, const CopyOrder& out, const Staging::Block&) {
                   copy_direct(in, stream);
                   auto kept = std::make_unique<CopyOrder>(out);
                   check(cudaLaunchHostFunc(stream.handle(), move, kept.get()),
                         "cudaLaunchHostFunc", stream.device());
                   (void)kept.release();  // the stream runs it once and destroys it
                 });
}

// Copies between two GPUs that cannot reach each other: through page-locked memory, each half on a
// stream of the GPU whose memory it is, as work of `stream`.
inline void copy_through_host(const CopyOrder& order, CudaStream& stream) {
  const auto stream_of = [&](Device device) -> CudaStream& {
    const bool own = gpu_of(device) == gpu_of(stream.device());
    return own ? stream : CudaDevice::at(device).bridge;
  };
  CudaStream& reader = stream_of(order.src_device);
  CudaStream& writer = stream_of(order.dst_device);
  Stream(reader).wait_stream(Stream(stream));
  try {
    copy_by_blocks(order, CudaDevice::at(writer.device()).staging, reader,
                   [&](const CopyOrder& in, const CopyOrder& out, Staging::Block& block) {
                     copy_direct(in, reader);
                     Stream(writer).wait_stream(Stream(reader));
                     block.pass_to(writer);
                     copy_direct(out, writer);
                   });
    // `writer` has waited for `reader`, so that what is issued to `stream` from here on may
    // overwrite the source as well.
    Stream(stream).wait_stream(Stream(writer));
  } catch (...) {
    // A part may have been issued, and the memory is known to be used on `stream` alone.
    reader.drain();
    writer.drain();
    throw;
  }
}

// Makes any copy of some bytes of which at least one end is a GPU's, as work of `stream`.
inline void copy(const CopyOrder& order, CudaStream& stream) {
  const Device src = order.src_device;
  const Device dst = order.dst_device;
  if (src.is_cpu() || dst.is_cpu()) {
    // The guard is for is_page_locked, too, which would give a context to a GPU that is only
    // current.
    const DeviceGuard guard(stream.device());
    if (is_page_locked(src.is_cpu() ? order.src : order.dst)) {
      copy_direct(order, stream);
    } else if (src.is_cpu()) {
      copy_from_host(order, stream);
    } else {
      copy_to_host(order, stream);
    }
  } else if (PeerAccess::instance().can_access(dst, src) &&
             PeerAccess::instance().can_access(src, dst)) {
    if (order.src_is_lent && gpu_of(src) != gpu_of(dst)) {
      copy_lent(order, stream);
    } else {
      copy_direct(order, stream);
    }
  } else {
    copy_through_host(order, stream);
  }
}

}  // namespace lockstep::cuda
