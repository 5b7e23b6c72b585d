// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/backend/threads/shared_shares.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/functions.hpp>
#include <lockstep/parallel/replica_error.hpp>
#include <lockstep/parallel/replica_group.hpp>
#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/current_replica.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE Tensor ReplicaGroup::all_reduce(std::size_t index, const Tensor& mine) {
  std::unique_lock lock(mutex_);
  inputs_.resize(size_);
  inputs_[index] = {mine, stream_of(mine), autograd_state()};
  if (++arrived_ == size_) {
    complete();
  } else {
    wait(lock, index);
  }
  if (error_) std::rethrow_exception(error_);
  const ReplicaTensor& result = outputs_[index];
  if (result.stream) wait_and_record(*stream_of(result.tensor), result);
  return result.tensor;
}

LOCKSTEP_INLINE void ReplicaGroup::leave(std::atomic<bool>& mark) {
  mark.store(true);
  if (waiting_.load() == 0) return;
  const std::lock_guard lock(mutex_);
  meeting_.notify_all();
}

LOCKSTEP_INLINE std::optional<Stream> ReplicaGroup::stream_of(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  return current_stream(tensor.device());
}

LOCKSTEP_INLINE void ReplicaGroup::wait_and_record(const Stream& stream,
                                                   const ReplicaTensor& result) {
  if (stream == *result.stream) return;
  stream.wait_stream(*result.stream);
  result.tensor.record_stream(stream);
}

LOCKSTEP_INLINE void ReplicaGroup::complete() {
  error_ = thrown_by([this] { outputs_ = sums(inputs_); });
  inputs_.assign(size_, ReplicaTensor());
  arrived_ = 0;
  ++round_;
  meeting_.notify_all();
}

LOCKSTEP_INLINE void ReplicaGroup::wait(std::unique_lock<std::mutex>& lock, std::size_t index) {
  const std::size_t round = round_;
  make_first_helper_urgent();
  waiting_.fetch_add(1);
  meeting_.wait(lock, [&] { return round_ != round || any_ended_(); });
  waiting_.fetch_sub(1);
  if (round_ != round) return;
  inputs_[index] = ReplicaTensor();
  --arrived_;
  throw ReplicaReleased(str("replica ", index, " waits for the others, but one of them has ended"));
}

LOCKSTEP_INLINE std::vector<ReplicaGroup::ReplicaTensor> ReplicaGroup::sums(
    const std::vector<ReplicaTensor>& inputs) {
  // The modes that all replicas together ask for, not those of whichever comes last.
  const auto records = [](const ReplicaTensor& replica) { return replica.state.records(); };
  const auto infers = [](const ReplicaTensor& replica) { return replica.state.inference; };
  AutogradState state = autograd_state();
  state.grad = any_of(inputs, records);
  state.inference = all_of(inputs, infers);
  const AutogradStateScope modes(state);
  const auto seen_by = [&](const ReplicaTensor& replica, const Tensor& tensor) {
    return state.grad && !records(replica) ? tensor.detach() : tensor;
  };
  std::vector<Device> devices;
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& tensor = inputs[i].tensor;
    check<ValueError>(tensor.defined() == inputs[0].tensor.defined(),
                      "replicas meet, but only one of replica 0 and replica ", i,
                      " brings a tensor");
    if (!tensor.defined()) continue;
    wait_and_record(*stream_of(tensor), inputs[i]);
    devices.push_back(tensor.device());
    tensors.push_back(seen_by(inputs[i], tensor));
  }
  if (devices.empty()) return inputs;
  const std::vector<Tensor> total =
      lockstep::apply(functions::ReduceAddCoalesced{devices, devices[0]}, tensors);
  std::vector<ReplicaTensor> results;
  for (const Tensor& sum : lockstep::apply(functions::Broadcast{devices}, total)) {
    results.push_back({seen_by(inputs[results.size()], sum), stream_of(sum)});
  }
  return results;
}

// What CurrentReplica gives the layers in nn, which do not include this header.
inline Tensor sum_over_replicas(const Tensor& tensor) {
  return current_replica.group->all_reduce(current_replica.index, tensor);
}

LOCKSTEP_INLINE ReplicaScope::ReplicaScope(ReplicaGroup& group, std::size_t index,
                                           std::atomic<bool>& mark)
    : before_(current_replica), mark_(mark) {
  current_replica = {&group, index, group.synchronized() ? sum_over_replicas : nullptr};
}

}  // namespace lockstep::detail

namespace lockstep::replicas {

LOCKSTEP_INLINE std::size_t count() {
  const detail::ReplicaGroup* group = detail::current_replica.group;
  return group ? group->size() : 1;
}

LOCKSTEP_INLINE bool synchronized() {
  const detail::ReplicaGroup* group = detail::current_replica.group;
  return group && group->synchronized();
}

LOCKSTEP_INLINE Tensor all_reduce(const Tensor& tensor) {
  return detail::current_replica.group ? detail::sum_over_replicas(tensor) : tensor;
}

LOCKSTEP_INLINE void barrier() {
  if (detail::current_replica.group) (void)detail::sum_over_replicas(Tensor());
}

}  // namespace lockstep::replicas
