// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/gpu_scratch.hpp>
#include <lockstep/cuda/nccl/error.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/distributed/thread/reduce_on_gpu.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/dtype.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <iterator>
#include <optional>
#include <span>

#include <nccl.h>

// The collectives of process groups, as calls of NCCL.
namespace lockstep::cuda {

inline ncclDataType_t nccl_type(Dtype dtype) {
  constexpr ncclDataType_t kTypes[] = {ncclFloat32, ncclFloat64, ncclFloat16, ncclBfloat16,
                                       ncclInt64,   ncclInt32,   ncclUint8,   ncclUint8};
  static_assert(std::size(kTypes) == static_cast<std::size_t>(Dtype::boolean) + 1);
  return kTypes[static_cast<unsigned char>(dtype)];
}

// Booleans are bytes that are 0 or 1: "or" is their maximum, "and" their minimum.
inline ncclRedOp_t nccl_op(distributed::ReduceOp op, Dtype dtype) {
  constexpr ncclRedOp_t kOps[] = {ncclSum, ncclAvg, ncclProd, ncclMin, ncclMax};
  constexpr ncclRedOp_t kOfBooleans[] = {ncclMax, ncclAvg, ncclMin, ncclMin, ncclMax};
  static_assert(std::size(kOps) == static_cast<std::size_t>(distributed::ReduceOp::max) + 1);
  return (dtype == Dtype::boolean ? kOfBooleans : kOps)[static_cast<unsigned char>(op)];
}

// One rank's part of a collective: makes NCCL's calls for the rank. NCCL wants the parts of an
// all_gather or a reduce_scatter in one piece; where they are not, this copies them on the rank's
// stream before the calls or after.
class NcclPart {
 public:
  using Call = distributed::detail::Call;
  using Collective = distributed::detail::Collective;

  // `stream`: of the rank's GPU. The copies before the calls are issued to it at once.
  NcclPart(const Stream& stream, int rank, int size, const Call& call,
           std::span<const void* const> inputs, std::span<void* const> outputs)
      : stream_(stream), rank_(rank), size_(size), call_(call), inputs_(inputs), outputs_(outputs) {
    if (call.collective == Collective::all_gather && !follow_one_another(outputs)) gather_pieces();
    if (call.collective == Collective::reduce_scatter && !follow_one_another(inputs)) {
      gather_pieces();
      for (int r = 0; r < size_; ++r) copy(piece(r), inputs_[at(r)]);
    }
    // The root's own part: NCCL carries only what goes to or comes from other ranks.
    if (rank == call.root && call.collective == Collective::scatter) {
      copy(outputs_[0], inputs_[at(rank)]);
    }
    if (rank == call.root && call.collective == Collective::gather) {
      copy(outputs_[at(rank)], inputs_[0]);
    }
  }

  // Makes the calls, within a group, on `on`: NCCL's stream, which has waited for the rank's.
  // Messages name `devices`.
  void issue(ncclComm_t comm, cudaStream_t on, std::span<const Device> devices) const {
    const auto check = [&](ncclResult_t status, const char* name) {
      check_nccl(status, name, devices, comm);
    };
    const ncclDataType_t type = nccl_type(call_.dtype);
    const ncclRedOp_t op = nccl_op(call_.op, call_.dtype);
    const std::size_t count = call_.count;
    const int root = call_.root;
    switch (call_.collective) {
      case Collective::all_reduce:
        return check(ncclAllReduce(inputs_[0], outputs_[0], count, type, op, comm, on),
                     "ncclAllReduce");
      case Collective::broadcast: {
        void* const data = outputs_.empty() ? const_cast<void*>(inputs_[0]) : outputs_[0];
        return check(ncclBroadcast(data, data, count, type, root, comm, on), "ncclBroadcast");
      }
      case Collective::reduce: {
        void* const total = outputs_.empty() ? nullptr : outputs_[0];
        return check(ncclReduce(inputs_[0], total, count, type, op, root, comm, on), "ncclReduce");
      }
      case Collective::all_gather: {
        void* const all = pieces_ ? piece(0) : outputs_[0];
        return check(ncclAllGather(inputs_[0], all, count, type, comm, on), "ncclAllGather");
      }
      case Collective::reduce_scatter: {
        const void* const all = pieces_ ? piece(0) : inputs_[0];
        return check(ncclReduceScatter(all, outputs_[0], count, type, op, comm, on),
                     "ncclReduceScatter");
      }
      case Collective::scatter:
        if (rank_ != root) {
          return check(ncclRecv(outputs_[0], count, type, root, comm, on), "ncclRecv");
        }
        for (int r = 0; r < size_; ++r) {
          if (r != root) check(ncclSend(inputs_[at(r)], count, type, r, comm, on), "ncclSend");
        }
        return;
      case Collective::gather:
        if (rank_ != root) {
          return check(ncclSend(inputs_[0], count, type, root, comm, on), "ncclSend");
        }
        for (int r = 0; r < size_; ++r) {
          if (r != root) check(ncclRecv(outputs_[at(r)], count, type, r, comm, on), "ncclRecv");
        }
        return;
      case Collective::barrier:
      case Collective::new_group:
        return;
    }
  }

  // Issues the copies after the calls. Called when the rank's stream has been made to wait for the
  // calls.
  void finish() const {
    if (!pieces_ || call_.collective != Collective::all_gather) return;
    for (int r = 0; r < size_; ++r) copy(outputs_[at(r)], piece(r));
  }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  template <class Pointer>
  bool follow_one_another(std::span<Pointer> parts) const {
    for (std::size_t i = 1; i < parts.size(); ++i) {
      if (static_cast<const std::byte*>(parts[0]) + i * call_.bytes() != parts[i]) return false;
    }
    return true;
  }

  void gather_pieces() { pieces_.emplace(stream_.state(), call_.bytes() * at(size_)); }
  void* piece(int rank) const {
    return static_cast<std::byte*>(pieces_->data()) + at(rank) * call_.bytes();
  }
  void copy(void* to, const void* from) const {
    const Device gpu = stream_.device();
    distributed::detail::copy_between({gpu, to}, {gpu, const_cast<void*>(from)}, call_.bytes(),
                                      stream_);
  }

  const Stream stream_;
  const int rank_;
  const int size_;
  const Call call_;
  const std::span<const void* const> inputs_;
  const std::span<void* const> outputs_;
  std::optional<lockstep::detail::GpuScratch> pieces_;
};

}  // namespace lockstep::cuda
