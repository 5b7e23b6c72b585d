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

using detail::Pitched;

// One end of a copy.
struct CopyEnd {
  Device device;
  std::byte* data;
};

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

// Copies between memory that the stream's GPU reaches: its own, a peer's under one address space,
// and page-locked host memory.
inline void copy_direct(std::byte* dst, std::size_t dst_pitch, const std::byte* src,
                        std::size_t src_pitch, std::size_t width, std::size_t rows,
                        const CudaStream& stream) {
  // A copy of pool memory is refused where another GPU is current.
  const DeviceGuard guard(stream.device());
  const bool one_run = rows == 1 || (width == dst_pitch && width == src_pitch);
  if (one_run || std::max(dst_pitch, src_pitch) > kMostPitch) {
    const std::size_t bytes = one_run ? width * rows : width;
    for (std::size_t row = 0; row < (one_run ? 1 : rows); ++row) {
      check(cudaMemcpyAsync(dst + row * dst_pitch, src + row * src_pitch, bytes, cudaMemcpyDefault,
                            stream.handle()),
            "cudaMemcpyAsync", stream.device());
    }
  } else {
    check(cudaMemcpy2DAsync(dst, dst_pitch, src, src_pitch, width, rows, cudaMemcpyDefault,
                            stream.handle()),
          "cudaMemcpy2DAsync", stream.device());
  }
}

// A part of a rectangle that is copied.
struct Piece {
  std::byte* dst;
  const std::byte* src;
  std::size_t width;
  std::size_t rows;

  std::size_t bytes() const { return width * rows; }
};

// Calls copy(piece) for parts of a rectangle that have room in a block of Staging each: some whole
// rows, or part of one.
template <class Copy>
void for_each_piece(std::byte* dst, const std::byte* src, const Pitched& shape, const Copy& copy) {
  const std::size_t width = std::min(shape.width, Staging::kLarge);
  const std::size_t at_once = width < shape.width ? 1 : Staging::kLarge / width;
  for (std::size_t row = 0; row < shape.rows; row += at_once) {
    for (std::size_t column = 0; column < shape.width; column += width) {
      copy(Piece{dst + row * shape.dst_pitch + column, src + row * shape.src_pitch + column,
                 std::min(width, shape.width - column), std::min(at_once, shape.rows - row)});
    }
  }
}

// A copy of as much as the piece within ordinary host memory.
inline detail::CopyOrder on_host(const Piece& piece, std::byte* dst, std::size_t dst_pitch,
                                 const std::byte* src, std::size_t src_pitch) {
  return {.dst = dst,
          .dst_device = {},
          .src = src,
          .src_device = {},
          .shape = {piece.width, piece.rows, dst_pitch, src_pitch},
          .stream = nullptr};
}

// Copies from ordinary host memory, which has been read when this returns: by all cores that have
// time, since one reads and writes more slowly than the GPU takes what is page-locked.
inline void copy_from_host(std::byte* dst, const std::byte* src, const Pitched& shape,
                           CudaStream& stream) {
  Staging& staging = CudaDevice::at(stream.device()).staging;
  for_each_piece(dst, src, shape, [&](const Piece& piece) {
    const Staging::Block block(staging, piece.bytes(), stream);
    const detail::CopyOrder order =
        on_host(piece, block.data(), piece.width, piece.src, shape.src_pitch);
    detail::copy_in_pieces({&order, 1});
    copy_direct(piece.dst, shape.dst_pitch, block.data(), piece.width, piece.width, piece.rows,
                stream);
  });
}

// Copies to ordinary host memory, which is written in stream order: the stream moves each piece to
// its place, on the host, behind the copy from its GPU.
inline void copy_to_host(std::byte* dst, const std::byte* src, const Pitched& shape,
                         CudaStream& stream) {
  const auto move = [](void* order) {
    const std::unique_ptr<const detail::CopyOrder> owned(static_cast<detail::CopyOrder*>(order));
    detail::copy_part(*owned, 0, owned->bytes());
  };
  Staging& staging = CudaDevice::at(stream.device()).staging;
  for_each_piece(dst, src, shape, [&](const Piece& piece) {
    const Staging::Block block(staging, piece.bytes(), stream);
    copy_direct(block.data(), piece.width, piece.src, shape.src_pitch, piece.width, piece.rows,
                stream);
    auto order = std::make_unique<detail::CopyOrder>(
        on_host(piece, piece.dst, shape.dst_pitch, block.data(), piece.width));
    check(cudaLaunchHostFunc(stream.handle(), move, order.get()), "cudaLaunchHostFunc",
          stream.device());
    (void)order.release();  // the stream runs it once and destroys it
  });
}

// Copies between two GPUs that cannot reach each other: through page-locked memory, each half on a
// stream of the GPU whose memory it is, as work of `stream`.
inline void copy_through_host(const CopyEnd& dst, const CopyEnd& src, const Pitched& shape,
                              CudaStream& stream) {
  const auto stream_of = [&](Device device) -> CudaStream& {
    const bool own = gpu_of(device) == gpu_of(stream.device());
    return own ? stream : CudaDevice::at(device).bridge;
  };
  CudaStream& out = stream_of(src.device);
  CudaStream& in = stream_of(dst.device);
  Stream(out).wait_stream(Stream(stream));
  Staging& staging = CudaDevice::at(in.device()).staging;
  for_each_piece(dst.data, src.data, shape, [&](const Piece& piece) {
    Staging::Block block(staging, piece.bytes(), out);
    copy_direct(block.data(), piece.width, piece.src, shape.src_pitch, piece.width, piece.rows,
                out);
    Stream(in).wait_stream(Stream(out));
    block.pass_to(in);
    copy_direct(piece.dst, shape.dst_pitch, block.data(), piece.width, piece.width, piece.rows, in);
  });
  // `in` has waited for `out`, so that what is issued to `stream` from here on may overwrite the
  // source as well.
  Stream(stream).wait_stream(Stream(in));
}

// Makes any copy of which at least one end is a GPU's. Neither width nor rows is 0.
inline void copy(const CopyEnd& dst, const CopyEnd& src, const Pitched& shape, CudaStream& stream) {
  const auto direct = [&] {
    copy_direct(dst.data, shape.dst_pitch, src.data, shape.src_pitch, shape.width, shape.rows,
                stream);
  };
  if (src.device.is_cpu() || dst.device.is_cpu()) {
    // The guard is for is_page_locked, too, which would give a context to a GPU that is only
    // current.
    const DeviceGuard guard(stream.device());
    const bool from_host = src.device.is_cpu();
    if (is_page_locked(from_host ? src.data : dst.data)) {
      direct();
    } else if (from_host) {
      copy_from_host(dst.data, src.data, shape, stream);
    } else {
      copy_to_host(dst.data, src.data, shape, stream);
    }
  } else if (PeerAccess::instance().can_access(dst.device, src.device) &&
             PeerAccess::instance().can_access(src.device, dst.device)) {
    direct();
  } else {
    copy_through_host(dst, src, shape, stream);
  }
}

}  // namespace lockstep::cuda
