// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/function_ref.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/current_replica.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {

namespace detail {

// The replicas that one parallel_apply runs at once, and where they meet inside forward.
//
// Threads: one per replica. `mutex_` guards everything but the atomics. A replica that ends sets
// its mark and then checks whether any waits; one that waits counts itself in `waiting_` and then
// checks whether any has ended: so one of the two sees the other. Marks lie where their replicas
// write anyway, not on one cache line that all would write.
class ReplicaGroup {
 public:
  // `any_ended` tells whether any replica has set its mark, and must outlive the group.
  ReplicaGroup(std::size_t size, bool synchronized, FunctionRef<bool()> any_ended)
      : synchronized_(synchronized), any_ended_(any_ended), size_(size) {}

  std::size_t size() const { return size_; }
  bool synchronized() const { return synchronized_; }

  // Blocks until every replica has called this and returns the sum of their tensors, on this
  // replica's device. With undefined tensors it is a barrier. Throws as replicas::all_reduce does.
  Tensor all_reduce(std::size_t index, const Tensor& mine);

  // Called when a replica has returned or thrown: sets its mark and wakes waiting replicas, which
  // then throw.
  void leave(std::atomic<bool>& mark);

 private:
  // A replica's tensor, with the stream of its device and the autograd modes that were current
  // there.
  struct ReplicaTensor {
    Tensor tensor = {};
    std::optional<Stream> stream = {};
    AutogradState state = {};
  };

  static std::optional<Stream> stream_of(const Tensor& tensor);

  // Makes `stream` wait for the tensor's, and records the tensor on it. They differ if a replica
  // has set a stream of its own.
  static void wait_and_record(const Stream& stream, const ReplicaTensor& result);

  // The last replica to arrive calls this: it makes the results or keeps the error, and wakes the
  // others. They read the results before the next round is complete, since that needs all of them.
  void complete();

  void wait(std::unique_lock<std::mutex>& lock, std::size_t index);

  static std::vector<ReplicaTensor> sums(const std::vector<ReplicaTensor>& inputs);

  // These two come first because every replica reads them: they end ApplyJob's first 128 bytes.
  std::atomic<std::uint32_t> waiting_{0};
  const bool synchronized_;

  const FunctionRef<bool()> any_ended_;
  const std::size_t size_;
  std::mutex mutex_;
  std::condition_variable meeting_;
  std::vector<ReplicaTensor> inputs_;
  std::vector<ReplicaTensor> outputs_;
  std::exception_ptr error_;
  std::size_t arrived_ = 0;
  std::size_t round_ = 0;
};

// Makes the calling thread replica `index` of a group; its end sets that replica's mark.
class ReplicaScope : NonCopyable {
 public:
  ReplicaScope(ReplicaGroup& group, std::size_t index, std::atomic<bool>& mark);
  ~ReplicaScope() { std::exchange(current_replica, before_).group->leave(mark_); }

 private:
  const CurrentReplica before_;
  std::atomic<bool>& mark_;
};

}  // namespace detail

// What a module's forward may ask of the replicas that run with it. Where there is only one
// replica, all_reduce returns its tensor and barrier returns at once, so layers need no other code
// for one device. A DataParallel with one device or none starts no replicas: called in another
// DataParallel's replica, its module is part of that one.
namespace replicas {

std::size_t count();
inline std::size_t index() { return detail::current_replica.index; }

// True if statistics of the batch should be taken over all replicas, that is, if the DataParallel
// was given ReplicaBuffers::synchronized.
bool synchronized();

// Waits until every replica has called it, and returns the sum of their tensors, to each on its own
// tensor's device.
//
// **Torch counterpart.** torch.distributed.nn.functional.all_reduce, among replicas.
// **Devices and streams.** As functions::ReduceAddCoalesced and Broadcast, on the current streams
// of the replica that comes last, which wait for the others'; each replica's current stream waits
// for its result.
// **Backward.** Each replica's gradient is the sum of the gradients of all results, to any order. A
// replica that records nothing (NoGradGuard, inference mode) gets and passes on no gradient; to the
// others its tensor is a constant.
// **Threads and exceptions.** Every replica calls it equally often, on the thread that runs its
// forward. All of them get a ShapeError or DtypeError if tensors differ, and a ValueError if some
// call `barrier` instead. If a replica ends or throws instead, those that wait for it get a
// ReplicaReleased.
Tensor all_reduce(const Tensor& tensor);

// Waits until all replicas have called it.
//
// **Torch counterpart.** torch.distributed.barrier, among replicas.
// **Threads and exceptions.** As all_reduce.
void barrier();

}  // namespace replicas

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/impl/replica_group.ipp>
#endif
