// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

// How scatter, gather and broadcast copy part of a tensor to another device, on that device's copy
// stream or on a given stream.
namespace lockstep::comm::detail {

using lockstep::detail::bytes_of;
using lockstep::detail::copying_backend;
using lockstep::detail::Pitched;

// Where a part of a contiguous tensor lies, in bytes: `rows` runs of `width` bytes, the first at
// `offset`, their starts `pitch` apart.
struct Slice {
  std::size_t offset;
  std::size_t width;
  std::size_t rows;
  std::size_t pitch;
};

// The part of a contiguous tensor of shape `whole` with `size` indices along `dim`, from `start`
// on.
inline Slice slice_of(const Shape& whole, Dtype dtype, std::size_t dim, std::int64_t start,
                      std::int64_t size) {
  if (numel(whole) == 0) return {.offset = 0, .width = 0, .rows = 1, .pitch = 0};
  std::int64_t rows = 1;
  std::int64_t inner = 1;
  for (std::size_t d = 0; d < dim; ++d) rows *= whole[d];
  for (std::size_t d = dim + 1; d < whole.size(); ++d) inner *= whole[d];
  const std::size_t unit = static_cast<std::size_t>(inner) * element_size(dtype);
  return {.offset = static_cast<std::size_t>(start) * unit,
          .width = static_cast<std::size_t>(size) * unit,
          .rows = static_cast<std::size_t>(rows),
          .pitch = static_cast<std::size_t>(whole[dim]) * unit};
}

inline Slice whole_of(const Tensor& tensor) {
  const std::size_t bytes = bytes_of(tensor);
  return {.offset = 0, .width = bytes, .rows = 1, .pitch = bytes};
}

// The number of copies that all threads have issued, by Transfers or by collectives in their place.
// For tests.
inline std::atomic<std::uint64_t>& copies_issued() {
  static std::atomic<std::uint64_t> count{0};
  return count;
}

// Issues the copies of several Transfers. Small copies on the host are issued as they are added;
// large ones, and those within or between GPUs, together by `issue`, until which it keeps their
// tensors. They are never made if `issue` is not called.
class CopiesTogether {
 public:
  // In bytes. Dividing a smaller copy among cores takes longer than making it.
  static constexpr std::size_t kLarge = std::size_t{64} << 10;

  // Adds the copy `order`, of `src` to `dst`. First issues the copies collected for another
  // backend.
  void add(lockstep::detail::Backend& backend, const lockstep::detail::CopyOrder& order,
           const Tensor& dst, const Tensor& src) {
    ++count_;
    const bool on_gpus = order.dst_device.is_cuda() && order.src_device.is_cuda();
    if (!on_gpus && order.bytes() < kLarge) return backend.copy_all({&order, 1});
    if (backend_ != &backend) issue();
    backend_ = &backend;
    orders_.push_back(order);
    kept_.push_back(dst);
    kept_.push_back(src);
  }

  void issue() {
    if (!orders_.empty()) backend_->copy_all(orders_);
    orders_.clear();
    kept_.clear();
    copies_issued().fetch_add(std::exchange(count_, 0), std::memory_order_relaxed);
  }

 private:
  lockstep::detail::Backend* backend_ = nullptr;
  std::vector<lockstep::detail::CopyOrder> orders_;
  std::vector<Tensor> kept_;
  std::uint64_t count_ = 0;  // since the last issue
};

// Copies to one device, issued on its copy stream or on a given one, and completed by `finish`.
//
// Devices and streams: each copy waits for the source's current stream, and the source is recorded
// on the copy stream, so its memory is neither freed nor overwritten while it is read. Results are
// allocated on the copy stream; `finish` records them on the device's compute stream.
class Transfer {
 public:
  explicit Transfer(Device device) : Transfer(copy_stream(device)) {}
  explicit Transfer(const Stream& stream)
      : copy_(stream), compute_(current_stream(stream.device())) {}

  const Stream& stream() const { return copy_; }

  // An uninitialised tensor to copy into.
  Tensor allocate(const Shape& shape, Dtype dtype) const {
    return lockstep::detail::empty_on(copy_, shape, dtype);
  }

  // Makes copies into an existing tensor wait for all work issued so far on the device's compute
  // stream and on every other stream that uses its memory.
  void after_users(const Tensor& result) const {
    result.record_stream(compute_);
    result.impl()->storage->order_write(copy_);
  }

  // Calls after_users, counts a change of the result, and keeps its memory until the copies are
  // made, even if an exception prevents `finish`.
  void overwrite(const Tensor& result) const {
    after_users(result);
    result.record_stream(copy_);
    result.mark_changed();
  }

  // Sets dst[slice] to src, or dst to src[slice]. Both are contiguous; the slice is of the larger
  // one, and the other is as large as the slice.
  void copy(const Tensor& dst, const Tensor& src, const Slice& slice,
            CopiesTogether& together) const {
    if (slice.width == 0 || slice.rows == 0) return;
    copy_.wait_stream(current_stream(src.device()));
    src.record_stream(copy_);
    auto* to = static_cast<std::byte*>(dst.impl()->data());
    const auto* from = static_cast<const std::byte*>(src.impl()->data());
    Pitched shape{slice.width, slice.rows, slice.width, slice.width};
    if (dst.numel() > src.numel()) {
      to += slice.offset;
      shape.dst_pitch = slice.pitch;
    } else {
      from += slice.offset;
      shape.src_pitch = slice.pitch;
    }
    together.add(copying_backend(dst.device(), src.device()),
                 {.dst = to,
                  .dst_device = dst.device(),
                  .src = from,
                  .src_device = src.device(),
                  .shape = shape,
                  .stream = &copy_.state(),
                  .src_is_lent = src.impl()->storage->is_lent()},
                 dst, src);
  }

  // Makes the device's compute stream wait for the copies, so that it may use the results.
  void finish(std::span<const Tensor> results) const {
    compute_.wait_stream(copy_);
    for (const Tensor& result : results) result.record_stream(compute_);
  }
  void finish(const Tensor& result) const { finish({&result, 1}); }

 private:
  const Stream copy_;
  const Stream compute_;
};

}  // namespace lockstep::comm::detail
