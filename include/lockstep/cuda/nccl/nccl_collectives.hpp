// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/cuda/nccl/calls.hpp>
#include <lockstep/cuda/nccl/communicator.hpp>
#include <lockstep/cuda/nccl/own_stream.hpp>
#include <lockstep/cuda/runtime/cuda_event.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/cuda/runtime/logical_devices.hpp>
#include <lockstep/cuda/runtime/other_gpus.hpp>
#include <lockstep/cuda/runtime/peer_access.hpp>
#include <lockstep/cuda/runtime/per_device.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/thread/gpu_collectives.hpp>
#include <lockstep/never_destroyed.hpp>

#include <bitset>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <nccl.h>

namespace lockstep::cuda {

// Makes collectives between distinct GPUs of a process by NCCL, with one Communicator for each list
// of devices, made at its first use.
//
// All ranks of a collective wait for one another on their GPUs. So between the start of one rank
// and that of the next, no other work may come onto the streams for which a rank would wait:
// another thread could issue just that to the streams that a call names. Therefore NCCL has a
// stream of its own on each GPU, which waits for the named one before and for which that one waits
// afterwards; and all calls of a process are made one at a time, in the same order on all GPUs.
class NcclCollectives final : public distributed::detail::GpuCollectives {
 public:
  static NcclCollectives& instance() {
    return lockstep::detail::never_destroyed<NcclCollectives>();
  }

  // False if two of the devices are one GPU, which NCCL refuses; and if copies between GPUs have
  // been found broken, as what NCCL sends would not arrive either.
  bool serves(std::span<const Device> devices) override {
    if (devices.size() < 2) return false;
    std::bitset<lockstep::detail::kMaxCudaDevices> taken;
    for (const Device& device : devices) {
      if (!device.is_cuda()) return false;
      const auto gpu = static_cast<std::size_t>(gpu_of(device));
      if (taken.test(gpu)) return false;
      taken.set(gpu);
    }
    // Which finds out, and enables peer access: NCCL reads and writes the memory of the process's
    // other GPUs directly.
    for (const Device& reader : devices) {
      for (const Device& owner : devices) {
        (void)PeerAccess::instance().can_access(reader, owner);
      }
    }
    return !PeerAccess::instance().found_broken();
  }

  // The calling thread makes the calls of all ranks, so that none can wait in NCCL for one that
  // does not come.
  void run(std::span<const distributed::detail::GpuCall> calls) override {
    std::vector<StreamState*> streams;
    std::deque<NcclPart> parts;  // by rank, then by call
    for (std::size_t rank = 0; rank < calls[0].parts.size(); ++rank) {
      streams.push_back(&calls[0].parts[rank].stream.state());
      for (const auto& [call, of_ranks] : calls) {
        parts.emplace_back(Stream(*streams[rank]), static_cast<int>(rank),
                           static_cast<int>(of_ranks.size()), call, of_ranks[rank].inputs,
                           of_ranks[rank].outputs);
      }
    }
    make(streams, parts);
    for (const NcclPart& part : parts) part.finish();
  }

 private:
  using StreamState = lockstep::detail::StreamState;

  friend NcclCollectives& lockstep::detail::never_destroyed<NcclCollectives>();

  NcclCollectives() = default;

  // Makes the calls of the ranks' parts, as many for each rank, as work of `named`.
  void make(std::span<StreamState* const> named, const std::deque<NcclPart>& parts) {
    lockstep::detail::check_not_forked();
    const std::size_t calls = parts.size() / named.size();
    const std::lock_guard lock(mutex_);
    Communicator& communicator = communicator_of(named);
    std::vector<CudaStream*> own;
    for (StreamState* stream : named) {
      const Device gpu(DeviceType::cuda, gpu_of(stream->device()));  // the first on it
      own.push_back(&per_device<OwnStream>(gpu).get());
      Stream(*own.back()).wait_stream(Stream(*stream));
    }
    std::vector<lockstep::detail::EventPtr> ends(named.size());
    std::vector<OtherGpus::Point> points;
    points.reserve(named.size());
    communicator.group([&](std::size_t rank, ncclComm_t comm) {
      for (std::size_t i = rank * calls; i < (rank + 1) * calls; ++i) {
        parts[i].issue(comm, own[rank]->lend_handle(), communicator.devices());
      }
    });
    std::exception_ptr error;
    const auto for_each_rank = [&](const auto& step) {
      for (std::size_t rank = 0; rank < named.size(); ++rank) {
        try {
          step(rank);
        } catch (...) {
          error = std::current_exception();
          wait_for(*own[rank]);
        }
      }
    };
    for_each_rank([&](std::size_t rank) {
      if (own[rank]->idle()) return;
      ends[rank] = own[rank]->record();
      communicator.set_end(rank, ends[rank]);
      points.push_back(static_cast<const CudaEvent&>(*ends[rank]).point(ends[rank]));
    });
    // Before a rank's stream waits; a rank for which it cannot be noted waits here for NCCL.
    bool noted = false;
    for_each_rank([&](std::size_t rank) {
      if (!noted) OtherGpus::rely(communicator.devices(), points);
      noted = true;
      if (ends[rank]) named[rank]->wait(ends[rank]);
    });
    if (error) std::rethrow_exception(error);
  }

  // Blocks until NCCL's stream has ended its work, where the named stream cannot be made to wait:
  // until then NCCL uses the ranks' memory.
  static void wait_for(CudaStream& own) noexcept {
    try {
      own.synchronize();
    } catch (...) {
      (void)cudaGetLastError();  // the GPU has failed, or its results are lost
    }
  }

  Communicator& communicator_of(std::span<StreamState* const> streams) {
    std::vector<Device> devices;
    for (const StreamState* stream : streams) devices.push_back(stream->device());
    for (const auto& made : communicators_) {
      if (made->devices() == devices) return *made;
    }
    return *communicators_.emplace_back(std::make_unique<Communicator>(std::move(devices)));
  }

  std::mutex mutex_;  // held during every call of NCCL; guards the list
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

}  // namespace lockstep::cuda
