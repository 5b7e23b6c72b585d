// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/comm/detail/transfer.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace lockstep::comm::detail {

LOCKSTEP_INLINE Slice slice_of(const Shape& whole, Dtype dtype, std::size_t dim, std::int64_t start,
                               std::int64_t size) {
  std::int64_t rows = 1;
  std::int64_t inner = 1;
  for (std::size_t d = 0; d < whole.size(); ++d)
    (d < dim ? rows : inner) *= d == dim ? 1 : whole[d];
  const std::size_t unit = static_cast<std::size_t>(inner) * element_size(dtype);
  return {.offset = static_cast<std::size_t>(start) * unit,
          .width = static_cast<std::size_t>(size) * unit,
          .rows = static_cast<std::size_t>(rows),
          .pitch = static_cast<std::size_t>(whole[dim]) * unit};
}

LOCKSTEP_INLINE std::atomic<std::uint64_t>& copies_issued() {
  static std::atomic<std::uint64_t> count{0};
  return count;
}

LOCKSTEP_INLINE void CopiesTogether::add(lockstep::detail::Backend& backend,
                                         const lockstep::detail::CopyOrder& order,
                                         const Tensor& dst, const Tensor& src) {
  ++count_;
  const bool within_gpu =
      order.dst_device.is_cuda() && order.src_device.is_cuda() &&
      backend.native_index(order.dst_device) == backend.native_index(order.src_device);
  if (!within_gpu && order.bytes() < kLarge) return backend.copy_all({&order, 1});
  if (backend_ != &backend) issue();
  backend_ = &backend;
  orders_.push_back(order);
  kept_.push_back(dst);
  kept_.push_back(src);
}

LOCKSTEP_INLINE void CopiesTogether::issue() {
  if (!orders_.empty()) backend_->copy_all(orders_);
  orders_.clear();
  kept_.clear();
  copies_issued().fetch_add(std::exchange(count_, 0), std::memory_order_relaxed);
}

LOCKSTEP_INLINE Tensor Transfer::allocate(const Shape& shape, Dtype dtype) const {
  return lockstep::detail::empty_on(copy_, shape, dtype);
}

LOCKSTEP_INLINE void Transfer::after_users(const Tensor& result) const {
  result.record_stream(compute_);
  result.impl()->storage->order_write(copy_);
}

LOCKSTEP_INLINE void Transfer::overwrite(const Tensor& result) const {
  after_users(result);
  result.record_stream(copy_);
  result.mark_changed();
}

LOCKSTEP_INLINE void Transfer::copy_out(const Tensor& dst, const Tensor& src, const Slice& slice,
                                        CopiesTogether& together) const {
  issue(dst, 0, slice.width, src, slice.offset, slice.pitch, slice, together);
}

LOCKSTEP_INLINE void Transfer::copy_out(const Tensor& dst, const Tensor& src,
                                        const Slice& slice) const {
  CopiesTogether alone;
  copy_out(dst, src, slice, alone);
  alone.issue();
}

LOCKSTEP_INLINE void Transfer::copy_in(const Tensor& dst, const Tensor& src, const Slice& slice,
                                       CopiesTogether& together) const {
  issue(dst, slice.offset, slice.pitch, src, 0, slice.width, slice, together);
}

LOCKSTEP_INLINE void Transfer::finish(std::span<const Tensor> results) const {
  compute_.wait_stream(copy_);
  for (const Tensor& result : results) result.record_stream(compute_);
}

LOCKSTEP_INLINE void Transfer::issue(const Tensor& dst, std::size_t dst_offset,
                                     std::size_t dst_pitch, const Tensor& src,
                                     std::size_t src_offset, std::size_t src_pitch,
                                     const Slice& slice, CopiesTogether& together) const {
  if (slice.width == 0 || slice.rows == 0) return;
  copy_.wait_stream(current_stream(src.device()));
  src.record_stream(copy_);
  auto* to = static_cast<std::byte*>(dst.impl()->data()) + dst_offset;
  const auto* from = static_cast<const std::byte*>(src.impl()->data()) + src_offset;
  together.add(copying_backend(dst.device(), src.device()),
               {.dst = to,
                .dst_device = dst.device(),
                .src = from,
                .src_device = src.device(),
                .shape = {slice.width, slice.rows, dst_pitch, src_pitch},
                .stream = &copy_.state()},
               dst, src);
}

LOCKSTEP_INLINE Slice whole_of(const Tensor& tensor) {
  const std::size_t bytes = static_cast<std::size_t>(tensor.numel()) * element_size(tensor.dtype());
  return {.offset = 0, .width = bytes, .rows = 1, .pitch = bytes};
}

}  // namespace lockstep::comm::detail
