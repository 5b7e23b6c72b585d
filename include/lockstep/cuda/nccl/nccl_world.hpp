// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/nccl/calls.hpp>
#include <lockstep/cuda/nccl/communicator.hpp>
#include <lockstep/cuda/nccl/nccl_collectives.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/thread/world_collectives.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include <nccl.h>

namespace lockstep::cuda {

// The collectives of ranks that are threads on distinct GPUs: rank 0's thread makes NCCL's calls
// for all of them, with the communicators of NcclCollectives. So no rank can wait in NCCL for one
// that does not come.
class NcclWorld final : public distributed::detail::WorldCollectives {
 public:
  static NcclWorld& instance() {
    static NcclWorld& world = *new NcclWorld;
    return world;
  }

  bool serves(std::span<const Device> devices) override {
    return NcclCollectives::instance().serves(devices);
  }

  void run(const distributed::detail::Call& call,
           std::span<const distributed::detail::GpuPart> parts) override {
    const int size = static_cast<int>(parts.size());
    std::vector<lockstep::detail::StreamState*> streams;
    std::deque<NcclPart> calls;
    for (int rank = 0; rank < size; ++rank) {
      const auto& part = parts[static_cast<std::size_t>(rank)];
      streams.push_back(&part.stream.state());
      calls.emplace_back(part.stream, rank, size, call, part.inputs, part.outputs);
    }
    NcclCollectives::instance().run(streams, [&](const Communicator& communicator, std::size_t rank,
                                                 ncclComm_t comm, cudaStream_t stream) {
      calls[rank].issue(comm, stream, communicator.devices());
    });
    for (const NcclPart& part : calls) part.finish();
  }

 private:
  NcclWorld() = default;
};

}  // namespace lockstep::cuda
