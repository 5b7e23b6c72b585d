// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/comm/detail/transfer.hpp>
#include <lockstep/parallel/comm/gather.hpp>
#include <lockstep/parallel/comm/out.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/memory_format.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/sparse_sum.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::comm::detail {

// The shape of a gather's result, and where in it each input goes.
struct GatherPlan {
  // Throws unless the inputs agree.
  GatherPlan(const std::vector<Tensor>& tensors, std::int64_t dim) {
    check<ValueError>(!tensors.empty(), "gather: expected at least one tensor");
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      check<ValueError>(tensors[i].defined(), "gather: input tensor at index ", i, " is undefined");
    }
    scalars = tensors[0].dim() == 0;
    shape = scalars ? Shape{1} : tensors[0].sizes();
    along = scalars ? 0 : wrap_dim(dim, shape.size());
    std::int64_t rows = rows_of(tensors[0]);
    for (std::size_t i = 1; i < tensors.size(); ++i) {
      const Tensor& tensor = tensors[i];
      check<DtypeError>(tensor.dtype() == tensors[0].dtype(), "gather: input tensor at index ", i,
                        " has dtype ", tensor.dtype(), ", but expected ", tensors[0].dtype());
      Shape expected = tensors[0].sizes();
      if (!scalars && tensor.sizes().size() == shape.size()) {
        expected[along] = tensor.sizes()[along];
      }
      check<ShapeError>(tensor.sizes() == expected, "gather: input tensor at index ", i,
                        " has invalid shape ", tensor.sizes(), ", but expected ", expected);
      check<ShapeError>(!__builtin_add_overflow(rows, rows_of(tensor), &rows),
                        "gather: no number holds the sizes of dimension ", along,
                        " added up: input tensor at index ", i, " is of shape ", tensor.sizes());
    }
    shape[along] = rows;
  }

  void copy(const Transfer& transfer, const std::vector<Tensor>& tensors,
            const Tensor& result) const {
    std::int64_t start = 0;
    CopiesTogether together;
    for (const Tensor& tensor : tensors) {
      const lockstep::detail::Packed source(tensor);
      transfer.copy(result, source, slice_of(shape, tensor.dtype(), along, start, rows_of(tensor)),
                    together);
      start += rows_of(tensor);
    }
    together.issue();
  }

  std::int64_t rows_of(const Tensor& tensor) const { return scalars ? 1 : tensor.sizes()[along]; }

  bool scalars;
  std::size_t along;
  Shape shape;
};

// The stream for a gather's copies: the destination's copy stream, but its current stream if it is
// a GPU that has one of the tensors. Then copies and current stream would wait for each other
// anyway, and no copies of another batch are ahead of them.
inline Stream gather_stream(const std::vector<Tensor>& tensors, Device destination) {
  const auto is_there = [&](const Tensor& tensor) {
    return tensor.device() == destination && tensor.numel() > 0;
  };
  const bool own = destination.is_cuda() && lockstep::detail::any_of(tensors, is_there);
  return own ? current_stream(destination) : copy_stream(destination);
}

}  // namespace lockstep::comm::detail

namespace lockstep::comm {

LOCKSTEP_INLINE Tensor gather(const std::vector<Tensor>& tensors, std::int64_t dim,
                              std::optional<Device> destination) {
  const detail::GatherPlan plan(tensors, dim);
  if (lockstep::detail::all_of(tensors, lockstep::detail::is_channels_last)) {
    std::vector<Tensor> images;
    for (const Tensor& tensor : tensors) {
      images.push_back(lockstep::detail::channels_to_back(tensor));
    }
    const std::size_t behind = lockstep::detail::behind_channels(plan.along);
    return lockstep::detail::channels_to_front(
        gather(images, static_cast<std::int64_t>(behind), destination));
  }
  const profile::RecordFunction range("gather");
  const detail::Transfer transfer(
      detail::gather_stream(tensors, destination.value_or(tensors[0].device())));
  Tensor result = transfer.allocate(plan.shape, tensors[0].dtype());
  plan.copy(transfer, tensors, result);
  transfer.finish(result);
  return result;
}

LOCKSTEP_INLINE Tensor gather_out(const std::vector<Tensor>& tensors, const Tensor& out,
                                  std::int64_t dim) {
  const detail::GatherPlan plan(tensors, dim);
  detail::check_out("gather_out", {out}, 0, plan.shape, tensors[0].dtype(), tensors);
  const detail::OutTransfer into(out, detail::gather_stream(tensors, out.device()));
  plan.copy(into.transfer(), tensors, into.target());
  into.finish();
  return out;
}

}  // namespace lockstep::comm
