// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

// What scatter, gather and broadcast have in common: part of a tensor copied to another device on
// that device's background copy stream.
namespace lockstep::comm::detail {

using lockstep::detail::copying_backend;

// The place of a chunk within a contiguous tensor of shape `whole`: `size` indices along `dim`,
// from `start` on. In bytes.
struct Slice {
  std::size_t offset;
  std::size_t width;  // of one contiguous run
  std::size_t rows;   // number of runs
  std::size_t pitch;  // from run to run within the whole
};

inline Slice slice_of(const Shape& whole, Dtype dtype, std::size_t dim, std::int64_t start,
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

// How many copies Transfers have issued, or collectives in their place, in all threads: what tests
// count instead of time.
inline std::atomic<std::uint64_t>& copies_issued() {
  static std::atomic<std::uint64_t> count{0};
  return count;
}

// Copies of several Transfers that are issued together, as far as they are large: what is small
// goes at once.
//
// The tensors are kept until then. Whoever lets go of this without `issue` gives the copies up.
class CopiesTogether {
 public:
  // A copy of fewer bytes costs less than to divide it.
  static constexpr std::size_t kLarge = std::size_t{64} << 10;

  void add(lockstep::detail::Backend& backend, const lockstep::detail::CopyOrder& order,
           const Tensor& dst, const Tensor& src) {
    ++count_;
    if (order.bytes() < kLarge) return backend.copy_all({&order, 1});
    if (backend_ != &backend) issue();
    backend_ = &backend;
    orders_.push_back(order);
    kept_.insert(kept_.end(), {dst, src});
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

// Copies that end on one device: issued to its copy stream, or another one that is given, and
// closed by `finish`.
//
// Devices and streams: each copy is ordered after what is on the source's current stream, and the
// source is recorded on the copy stream, so that memory that is still being read is neither freed
// nor overwritten. Results are allocated on the copy stream. `finish` makes the device's compute
// stream wait for the copy stream and records the results there.
class Transfer {
 public:
  explicit Transfer(Device device) : Transfer(copy_stream(device)) {}
  explicit Transfer(const Stream& stream)
      : copy_(stream), compute_(current_stream(stream.device())) {}

  const Stream& stream() const { return copy_; }

  // A tensor to copy into, without values.
  Tensor allocate(const Shape& shape, Dtype dtype) const {
    return lockstep::detail::empty_on(copy_, shape, dtype);
  }

  // For a result that is not new: nothing is copied into it before the device's compute stream has
  // done all that was issued to it so far.
  void after_compute() const { copy_.wait_stream(compute_); }

  // The same, and after whatever else was recorded to use the result's memory; counts as a change.
  // The memory is not reused too early even if an exception comes before `finish`.
  void overwrite(const Tensor& result) const {
    after_compute();
    result.impl()->storage->order_write(copy_);
    result.record_stream(copy_);
    result.mark_changed();
  }

  // dst := src[slice], where dst is contiguous and just as large.
  void copy_out(const Tensor& dst, const Tensor& src, const Slice& slice,
                CopiesTogether& together) const {
    issue(dst, 0, slice.width, src, slice.offset, slice.pitch, slice, together);
  }
  void copy_out(const Tensor& dst, const Tensor& src, const Slice& slice) const {
    CopiesTogether alone;
    copy_out(dst, src, slice, alone);
    alone.issue();
  }
  // dst[slice] := src, where src is contiguous and just as large.
  void copy_in(const Tensor& dst, const Tensor& src, const Slice& slice,
               CopiesTogether& together) const {
    issue(dst, slice.offset, slice.pitch, src, 0, slice.width, slice, together);
  }

  // From here on the device's compute stream may use `result`.
  void finish(const Tensor& result) const {
    compute_.wait_stream(copy_);
    result.record_stream(compute_);
  }

 private:
  void issue(const Tensor& dst, std::size_t dst_offset, std::size_t dst_pitch, const Tensor& src,
             std::size_t src_offset, std::size_t src_pitch, const Slice& slice,
             CopiesTogether& together) const {
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

  const Stream copy_;
  const Stream compute_;
};

// The whole of a tensor, as a slice.
inline Slice whole_of(const Tensor& tensor) {
  const std::size_t bytes = static_cast<std::size_t>(tensor.numel()) * element_size(tensor.dtype());
  return {.offset = 0, .width = bytes, .rows = 1, .pitch = bytes};
}

}  // namespace lockstep::comm::detail
