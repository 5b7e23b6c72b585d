// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/comm/transfer.hpp>
#include <lockstep/parallel/split.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::comm {

// Splits a tensor along `dim` and puts chunk i on devices[i].
//
// `chunk_sizes`, one for each device, must sum to the tensor's size along `dim`; without it torch's
// chunk rule decides, and there may be fewer chunks than devices. A chunk for the device that the
// tensor is on already is a view of it.
//
// **Torch counterpart.** torch.nn.parallel.comm.scatter.
// **Devices and streams.** Each chunk is copied on its device's background copy stream; the
// device's current stream waits for that, and the chunk is recorded on it. The source is recorded
// on the copy streams. The caller is not blocked.
// **Backward.** None: see functions.hpp.
// **Threads and exceptions.** ValueError without devices or for sizes that do not fit; IndexError
// for a dim out of range; ShapeError for a tensor without dimensions.
inline std::vector<Tensor> scatter(const Tensor& tensor, const std::vector<Device>& devices,
                                   std::vector<std::int64_t> chunk_sizes = {},
                                   std::int64_t dim = 0) {
  check<ValueError>(!devices.empty(), "Expected at least one device to scatter to");
  check<ShapeError>(tensor.dim() > 0, "chunk expects at least a 1-dimensional tensor");
  const std::size_t along = wrap_dim(dim, tensor.sizes().size());
  const std::int64_t rows = tensor.sizes()[along];
  if (chunk_sizes.empty()) {
    chunk_sizes = split_sizes(rows, devices.size());
  } else {
    check<ValueError>(chunk_sizes.size() == devices.size(),
                      "Expected devices and chunk_sizes to be of same length, but got ",
                      devices.size(), " devices and ", chunk_sizes.size(), " chunk sizes");
    std::int64_t total = 0;
    for (const std::int64_t size : chunk_sizes) {
      check<ValueError>(size >= 0, "expected non-negative chunk sizes, got ", size);
      total += size;
    }
    check<ValueError>(total == rows, "expected chunk sizes to sum to ", rows,
                      ", the tensor's size along dim ", along, ", but they sum to ", total);
  }

  const Tensor source = lockstep::detail::packed(tensor);
  std::vector<Tensor> chunks;
  std::vector<detail::Transfer> transfers;
  chunks.reserve(chunk_sizes.size());
  std::int64_t start = 0;
  for (std::size_t i = 0; i < chunk_sizes.size(); start += chunk_sizes[i], ++i) {
    Shape shape = tensor.sizes();
    shape[along] = chunk_sizes[i];
    if (devices[i] == tensor.device()) {
      const std::int64_t offset = tensor.impl()->offset + start * tensor.strides()[along];
      chunks.push_back(lockstep::detail::make_view(tensor, shape, tensor.strides(), offset));
      continue;
    }
    const detail::Transfer& transfer = transfers.emplace_back(devices[i]);
    chunks.push_back(transfer.allocate(shape, tensor.dtype()));
    transfer.copy_out(
        chunks[i], source,
        detail::slice_of(source.sizes(), source.dtype(), along, start, chunk_sizes[i]));
  }
  // Only now, when every device's copy is under way, does anybody wait.
  auto transfer = transfers.begin();
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (devices[i] != tensor.device()) (transfer++)->finish(chunks[i]);
  }
  return chunks;
}

}  // namespace lockstep::comm
