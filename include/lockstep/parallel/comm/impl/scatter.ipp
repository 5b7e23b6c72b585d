// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/comm/detail/transfer.hpp>
#include <lockstep/parallel/comm/out.hpp>
#include <lockstep/parallel/comm/scatter.hpp>
#include <lockstep/parallel/split.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/memory_format.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::comm::detail {

// Throws unless `streams` is empty or has one entry per device, each nothing or a stream of that
// device.
inline void check_streams(const std::vector<std::optional<Stream>>& streams,
                          const std::vector<Device>& devices) {
  if (streams.empty()) return;
  check<ValueError>(streams.size() == devices.size(),
                    "Expected devices and streams to be of same length, but got ", devices.size(),
                    " devices and ", streams.size(), " streams");
  for (std::size_t i = 0; i < streams.size(); ++i) {
    if (!streams[i]) continue;
    check<DeviceError>(streams[i]->device() == devices[i],
                       "Expected the device associated with the stream at index ", i, " (was ",
                       streams[i]->device(), ") to match the device supplied at that index (",
                       devices[i], ")");
  }
}

}  // namespace lockstep::comm::detail

namespace lockstep::comm {

LOCKSTEP_INLINE std::vector<Tensor> scatter(const Tensor& tensor,
                                            const std::vector<Device>& devices,
                                            const std::vector<std::int64_t>& chunk_sizes,
                                            std::int64_t dim,
                                            const std::vector<std::optional<Stream>>& streams) {
  check<ValueError>(!devices.empty(), "Expected at least one device to scatter to");
  check<ShapeError>(tensor.dim() > 0, "chunk expects at least a 1-dimensional tensor");
  const std::size_t along = wrap_dim(dim, tensor.sizes().size());
  if (lockstep::detail::is_channels_last(tensor)) {
    const auto behind = static_cast<std::int64_t>(lockstep::detail::behind_channels(along));
    std::vector<Tensor> chunks =
        scatter(lockstep::detail::channels_to_back(tensor), devices, chunk_sizes, behind, streams);
    for (Tensor& chunk : chunks) chunk = lockstep::detail::channels_to_front(chunk);
    return chunks;
  }
  std::vector<std::int64_t> by_rule;
  if (chunk_sizes.empty()) {
    by_rule = split_sizes(tensor.sizes()[along], devices.size());
  } else {
    lockstep::detail::check_chunk_sizes(tensor.sizes()[along], devices.size(), chunk_sizes);
  }
  const std::vector<std::int64_t>& sizes = chunk_sizes.empty() ? by_rule : chunk_sizes;
  detail::check_streams(streams, devices);

  const profile::RecordFunction range("scatter");
  const lockstep::detail::Packed contiguous(tensor);
  const Tensor& source = contiguous;
  std::vector<Tensor> chunks;
  std::vector<detail::Transfer> transfers;
  detail::CopiesTogether together;
  chunks.reserve(sizes.size());
  transfers.reserve(sizes.size());
  std::int64_t start = 0;
  for (std::size_t i = 0; i < sizes.size(); start += sizes[i], ++i) {
    if (devices[i] == tensor.device()) {
      chunks.push_back(lockstep::detail::part_of(tensor, along, start, sizes[i]));
      continue;
    }
    Shape shape = tensor.sizes();
    shape[along] = sizes[i];
    const bool stream_given = !streams.empty() && streams[i];
    const detail::Transfer& transfer =
        transfers.emplace_back(stream_given ? *streams[i] : copy_stream(devices[i]));
    chunks.push_back(transfer.allocate(shape, tensor.dtype()));
    transfer.copy(chunks[i], source,
                  detail::slice_of(source.sizes(), source.dtype(), along, start, sizes[i]),
                  together);
  }
  together.issue();
  // The compute streams start to wait only now, after all copies have been issued.
  auto transfer = transfers.begin();
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (devices[i] != tensor.device()) (transfer++)->finish(chunks[i]);
  }
  return chunks;
}

LOCKSTEP_INLINE std::vector<Tensor> scatter_out(const Tensor& tensor,
                                                const std::vector<Tensor>& outs, std::int64_t dim) {
  check<ValueError>(!outs.empty(), "Expected at least one output tensor to scatter to");
  check<ShapeError>(tensor.dim() > 0, "chunk expects at least a 1-dimensional tensor");
  const std::size_t along = wrap_dim(dim, tensor.sizes().size());
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < outs.size(); ++i) {
    Shape expected = tensor.sizes();
    if (outs[i].defined() && outs[i].dim() == tensor.dim()) {
      expected[along] = outs[i].sizes()[along];
    }
    detail::check_out("scatter_out", outs, i, expected, tensor.dtype(), {&tensor, 1});
    sizes.push_back(expected[along]);
  }
  lockstep::detail::check_chunk_sizes(tensor.sizes()[along], outs.size(), sizes);

  const Tensor source = lockstep::detail::packed(tensor);
  std::vector<detail::OutTransfer> transfers;
  detail::CopiesTogether together;
  std::int64_t start = 0;
  for (std::size_t i = 0; i < outs.size(); start += sizes[i], ++i) {
    const detail::OutTransfer& into = transfers.emplace_back(outs[i]);
    into.transfer().copy(into.target(), source,
                         detail::slice_of(source.sizes(), source.dtype(), along, start, sizes[i]),
                         together);
  }
  together.issue();
  for (const detail::OutTransfer& into : transfers) into.finish();
  return outs;
}

}  // namespace lockstep::comm
