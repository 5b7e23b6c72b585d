// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/current_replica.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/backend/shared_shares.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/functions.hpp>
#include <lockstep/parallel/replica_error.hpp>
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
  Tensor all_reduce(std::size_t index, const Tensor& mine) {
    std::unique_lock lock(mutex_);
    inputs_.resize(size_);
    inputs_[index] = {mine, stream_of(mine)};
    if (++arrived_ == size_) {
      complete();
    } else {
      wait(lock, index);
    }
    if (error_) std::rethrow_exception(error_);
    const Place& result = outputs_[index];
    if (result.stream) follow(*stream_of(result.tensor), result);
    return result.tensor;
  }

  // A replica has ended, in whatever way: nobody need wait for it any more.
  void leave(std::atomic<bool>& mark) {
    mark.store(true);
    if (waiting_.load() == 0) return;
    const std::lock_guard lock(mutex_);
    meeting_.notify_all();
  }

 private:
  // A tensor, and the stream of its device that was current where it was made.
  struct Place {
    Tensor tensor = {};
    std::optional<Stream> stream = {};
  };

  static std::optional<Stream> stream_of(const Tensor& tensor) {
    if (!tensor.defined()) return {};
    return current_stream(tensor.device());
  }

  // From here on `stream` may use the tensor: replicas may have set streams of their own.
  static void follow(const Stream& stream, const Place& place) {
    if (stream == *place.stream) return;
    stream.wait_stream(*place.stream);
    place.tensor.record_stream(stream);
  }

  // The results of a round stay until the next one is complete, which no replica can be without.
  void complete() {
    error_ = nullptr;
    try {
      outputs_ = sums(inputs_);
    } catch (...) {
      error_ = std::current_exception();
    }
    inputs_.assign(size_, Place());
    arrived_ = 0;
    ++round_;
    meeting_.notify_all();
  }

  void wait(std::unique_lock<std::mutex>& lock, std::size_t index) {
    const std::size_t round = round_;
    call_expected_crew();
    waiting_.fetch_add(1);
    meeting_.wait(lock, [&] { return round_ != round || ended_.any(ended_.marks, size_); });
    waiting_.fetch_sub(1);
    if (round_ != round) return;
    inputs_[index] = Place();
    --arrived_;
    throw ReplicaReleased(
        str("replica ", index, " waits for the others, but one of them has ended"));
  }

  static std::vector<Place> sums(const std::vector<Place>& inputs) {
    std::vector<Device> devices;
    std::vector<Tensor> tensors;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Tensor& tensor = inputs[i].tensor;
      check<ValueError>(tensor.defined() == inputs[0].tensor.defined(),
                        "replicas meet, but only one of replica 0 and replica ", i,
                        " brings a tensor");
      if (!tensor.defined()) continue;
      follow(*stream_of(tensor), inputs[i]);
      devices.push_back(tensor.device());
      tensors.push_back(tensor);
    }
    if (devices.empty()) return inputs;
    const std::vector<Tensor> total =
        lockstep::apply(functions::ReduceAddCoalesced{devices, devices[0]}, tensors);
    std::vector<Place> results;
    for (Tensor& sum : lockstep::apply(functions::Broadcast{devices}, total)) {
      results.push_back({sum, stream_of(sum)});
    }
    return results;
  }

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

// replicas::all_reduce as a function of its own, for the layers of nn.
inline Tensor sum_over_replicas(const Tensor& tensor) {
  return current_replica.group->all_reduce(current_replica.index, tensor);
}

// Makes the calling thread a replica of a group until destroyed, and then sets its mark.
class ReplicaScope {
 public:
  ReplicaScope(ReplicaGroup& group, std::size_t index, std::atomic<bool>& mark)
      : before_(current_replica), mark_(mark) {
    current_replica = {&group, index, group.synchronized() ? sum_over_replicas : nullptr};
  }
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

inline std::size_t count() {
  const detail::ReplicaGroup* group = detail::current_replica.group;
  return group ? group->size() : 1;
}
inline std::size_t index() { return detail::current_replica.index; }

// Whether statistics of the batch are to be taken over all replicas: DataParallel was given
// ReplicaBuffers::synchronized.
inline bool synchronized() {
  const detail::ReplicaGroup* group = detail::current_replica.group;
  return group && group->synchronized();
}

// The sum of every replica's `tensor`, for each on its own device; waits until all have called.
//
// **Torch counterpart.** torch.distributed.nn.functional.all_reduce, among replicas.
// **Devices and streams.** As functions::ReduceAddCoalesced and Broadcast, on the current streams
// of the replica that comes last, after what is on the others'; each replica's current stream waits
// for its result.
// **Backward.** Each replica's gradient is the sum of those of all results, to any order.
// **Threads and exceptions.** Each replica calls it equally often, with equal shapes: a ShapeError
// or DtypeError otherwise, in all of them. If a replica ends or throws instead, those that wait for
// it are released with a ReplicaReleased.
inline Tensor all_reduce(const Tensor& tensor) {
  return detail::current_replica.group ? detail::sum_over_replicas(tensor) : tensor;
}

// Waits until all replicas have called it.
//
// **Torch counterpart.** torch.distributed.barrier, among replicas.
// **Threads and exceptions.** As all_reduce.
inline void barrier() {
  if (detail::current_replica.group) (void)detail::sum_over_replicas(Tensor());
}

}  // namespace replicas

}  // namespace lockstep
