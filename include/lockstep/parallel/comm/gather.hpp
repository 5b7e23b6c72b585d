// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/comm/out.hpp>
#include <lockstep/parallel/comm/transfer.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/memory_format.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::comm {

namespace detail {

// What a gather makes of its inputs, and where each of them goes.
class GatherPlan {
 public:
  // Throws unless the inputs agree.
  GatherPlan(const std::vector<Tensor>& tensors, std::int64_t dim) {
    check<ValueError>(!tensors.empty(), "gather: expected at least one tensor");
    scalars_ = tensors[0].dim() == 0;
    shape_ = scalars_ ? Shape{1} : tensors[0].sizes();
    along_ = scalars_ ? 0 : wrap_dim(dim, shape_.size());
    std::int64_t rows = rows_of(tensors[0]);
    for (std::size_t i = 1; i < tensors.size(); ++i) {
      const Tensor& tensor = tensors[i];
      check<DtypeError>(tensor.dtype() == tensors[0].dtype(), "gather: input tensor at index ", i,
                        " has dtype ", tensor.dtype(), ", but expected ", tensors[0].dtype());
      Shape expected = tensors[0].sizes();
      if (!scalars_ && tensor.sizes().size() == shape_.size()) {
        expected[along_] = tensor.sizes()[along_];
      }
      check<ShapeError>(tensor.sizes() == expected, "gather: input tensor at index ", i,
                        " has invalid shape ", tensor.sizes(), ", but expected ", expected);
      rows += rows_of(tensor);
    }
    shape_[along_] = rows;
  }

  const Shape& shape() const { return shape_; }
  std::size_t along() const { return along_; }

  void copy(const Transfer& transfer, const std::vector<Tensor>& tensors,
            const Tensor& result) const {
    std::int64_t start = 0;
    CopiesTogether together;
    for (const Tensor& tensor : tensors) {
      const lockstep::detail::Packed source(tensor);
      transfer.copy_in(result, source,
                       slice_of(shape_, tensor.dtype(), along_, start, rows_of(tensor)), together);
      start += rows_of(tensor);
    }
    together.issue();
  }

 private:
  std::int64_t rows_of(const Tensor& tensor) const { return scalars_ ? 1 : tensor.sizes()[along_]; }

  bool scalars_;
  std::size_t along_;
  Shape shape_;
};

}  // namespace detail

// Concatenates tensors, wherever they are, along `dim` into one on `destination`.
//
// They must agree in dtype and in all other sizes. Tensors without dimensions are taken as vectors
// of one element, whatever `dim` is. Without a destination the result is where the first tensor is.
// It is contiguous, or in channels_last if all tensors are.
//
// **Torch counterpart.** torch.nn.parallel.comm.gather, whose default is the current device; the
// CPU is an ordinary source and target.
// **Devices and streams.** Copied on the destination's copy stream after what is on each source's
// current stream; the destination's current stream waits. A result in plain host memory is complete
// when this returns.
// **Backward.** None: see functions.hpp.
// **Threads and exceptions.** ValueError for no tensors; ShapeError and DtypeError name the index.
inline Tensor gather(const std::vector<Tensor>& tensors, std::int64_t dim = 0,
                     std::optional<Device> destination = {}) {
  const detail::GatherPlan plan(tensors, dim);
  if (std::all_of(tensors.begin(), tensors.end(), lockstep::detail::is_channels_last)) {
    std::vector<Tensor> images;
    for (const Tensor& tensor : tensors) {
      images.push_back(lockstep::detail::channels_to_back(tensor));
    }
    const std::size_t behind = lockstep::detail::behind_channels(plan.along());
    return lockstep::detail::channels_to_front(
        gather(images, static_cast<std::int64_t>(behind), destination));
  }
  const profile::RecordFunction range("gather");
  const detail::Transfer transfer(destination.value_or(tensors[0].device()));
  Tensor result = transfer.allocate(plan.shape(), tensors[0].dtype());
  plan.copy(transfer, tensors, result);
  transfer.finish(result);
  return result;
}

// Concatenates tensors, wherever they are, along `dim` into `out`, and returns that.
//
// `out` has the shape and dtype that gather's result would have. It may be strided, but must not
// share memory with one of the tensors.
//
// **Torch counterpart.** torch::cuda::gather_out, the `out` of torch.nn.parallel.comm.gather.
// **Devices and streams.** As gather; what uses the memory of `out` already comes first.
// **Backward.** None: an `out` that requires grad is an AutogradError while recording is on. Its
// version counts the change.
// **Threads and exceptions.** As gather; ShapeError and DtypeError for an `out` that does not fit,
// ValueError for one that shares memory. Nothing has been written then.
inline Tensor gather_out(const std::vector<Tensor>& tensors, const Tensor& out,
                         std::int64_t dim = 0) {
  const detail::GatherPlan plan(tensors, dim);
  detail::check_out("gather_out", {out}, 0, plan.shape(), tensors[0].dtype());
  for (const Tensor& tensor : tensors) detail::check_apart("gather_out", out, 0, tensor);
  const detail::OutTransfer transfer(out);
  plan.copy(transfer.copies(), tensors, transfer.room());
  transfer.finish();
  return out;
}

}  // namespace lockstep::comm
