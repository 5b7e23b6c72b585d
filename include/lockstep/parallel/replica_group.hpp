// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/current_replica.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/creation.hpp>
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
// Threads: one a replica. `mutex_` guards everything but the atomics: a replica that ends first
// sets its mark and then looks for waiting ones, a replica that waits first counts itself and then
// looks for ended ones, so that one of the two always sees the other. The marks are not in here,
// but where their replicas write anyway: a line that all of them wrote would go from core to core.
class ReplicaGroup {
 public:
  // Whether some replica has set its mark.
  struct Ended {
    bool (*any)(const void* marks, std::size_t size);
    const void* marks;
  };

  ReplicaGroup(std::size_t size, bool synchronized, Ended ended)
      : synchronized_(synchronized), ended_(ended), size_(size) {}

  std::size_t size() const { return size_; }
  bool synchronized() const { return synchronized_; }

  // Blocks until every replica has come here with a tensor (or every one without), and returns the
  // sum of all, on this replica's device.
  Tensor all_reduce(std::size_t index, const Tensor& mine);

  // A replica has ended, in whatever way: nobody need wait for it any more.
  void leave(std::atomic<bool>& mark);

 private:
  // A tensor, and what was current where it was made: the stream of its device, and the modes.
  struct Place {
    Tensor tensor = {};
    std::optional<Stream> stream = {};
    AutogradState state = {};
  };

  static std::optional<Stream> stream_of(const Tensor& tensor);

  // From here on `stream` may use the tensor: replicas may have set streams of their own.
  static void follow(const Stream& stream, const Place& place);

  // The results of a round stay until the next one is complete, which no replica can be without.
  void complete();

  void wait(std::unique_lock<std::mutex>& lock, std::size_t index);

  static std::vector<Place> sums(const std::vector<Place>& inputs);

  // In front: what every replica reads, which ends ApplyJob's first 128 bytes.
  std::atomic<std::uint32_t> waiting_{0};
  const bool synchronized_;

  const Ended ended_;
  const std::size_t size_;
  std::mutex mutex_;
  std::condition_variable meeting_;
  std::vector<Place> inputs_;
  std::vector<Place> outputs_;
  std::exception_ptr error_;
  std::size_t arrived_ = 0;
  std::size_t round_ = 0;
};

// Makes the calling thread a replica of a group until destroyed, and then sets its mark.
class ReplicaScope {
 public:
  ReplicaScope(ReplicaGroup& group, std::size_t index, std::atomic<bool>& mark);
  ReplicaScope(const ReplicaScope&) = delete;
  ReplicaScope& operator=(const ReplicaScope&) = delete;
  ~ReplicaScope() { std::exchange(current_replica, before_).group->leave(mark_); }

 private:
  const CurrentReplica before_;
  std::atomic<bool>& mark_;
};

// While a module runs alone where several might have run: it has no others to meet, and is no part
// of a group that it runs within.
class LoneReplicaScope {
 public:
  LoneReplicaScope() : before_(std::exchange(current_replica, CurrentReplica{})) {}
  LoneReplicaScope(const LoneReplicaScope&) = delete;
  LoneReplicaScope& operator=(const LoneReplicaScope&) = delete;
  ~LoneReplicaScope() { current_replica = before_; }

 private:
  const CurrentReplica before_;
};

}  // namespace detail

// For a module's forward: the replicas that run with this one. Outside of parallel_apply, and where
// there is one chunk only, that is one replica, for which nothing here does anything; so a layer
// that uses this needs no other code for one device. A DataParallel with one device or none adds
// nothing to its module: within a replica of another, its module is that replica.
namespace replicas {

std::size_t count();
inline std::size_t index() { return detail::current_replica.index; }

// Whether statistics of the batch are to be taken over all replicas: DataParallel was given
// ReplicaBuffers::synchronized.
bool synchronized();

// The sum of every replica's `tensor`, for each on its own device; waits until all have called.
//
// **Torch counterpart.** torch.distributed.nn.functional.all_reduce, among replicas.
// **Devices and streams.** As functions::ReduceAddCoalesced and Broadcast, on the current streams
// of the replica that comes last, after what is on the others'; each replica's current stream waits
// for its result.
// **Backward.** Each replica's gradient is the sum of those of all results, to any order. A replica
// that records nothing (NoGradGuard, inference mode) neither gets a gradient through its `tensor`
// nor passes one on through its result; for the others it is a constant.
// **Threads and exceptions.** Each replica calls it equally often, with equal shapes: a ShapeError
// or DtypeError otherwise, in all of them. If a replica ends or throws instead, those that wait for
// it are released with a ReplicaReleased.
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
