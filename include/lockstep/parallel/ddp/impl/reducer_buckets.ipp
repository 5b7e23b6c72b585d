// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/streams.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/parallel/bucket.hpp>
#include <lockstep/parallel/comm/detail/buffers.hpp>
#include <lockstep/parallel/ddp/bucket_assignment.hpp>
#include <lockstep/parallel/ddp/reducer_buckets.hpp>
#include <lockstep/parallel/ddp/reducer_errors.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/memory_format.hpp>
#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE bool same_memory(const Tensor& a, const Tensor& b) {
  return a.impl()->storage == b.impl()->storage && a.impl()->offset == b.impl()->offset &&
         a.dtype() == b.dtype() && a.sizes() == b.sizes() && a.strides() == b.strides();
}

LOCKSTEP_INLINE void copy_gradient(const Tensor& dst, const Tensor& src) {
  if (is_channels_last(dst) && is_channels_last(src)) {
    return copy_into(channels_to_back(dst), channels_to_back(src));
  }
  copy_into(dst, src);
}

LOCKSTEP_INLINE ReducerBuckets::ReducerBuckets(const std::vector<NamedParameter>& parameters,
                                               const std::vector<std::size_t>& size_limits) {
  std::vector<bool> sparse;
  for (const NamedParameter& parameter : parameters) {
    parameters_.push_back(parameter.tensor);
    sparse.push_back(expects_sparse_gradient(parameter.tensor));
    slots_.push_back({.name = parameter.name, .sparse = sparse.back()});
  }
  assignment_ = compute_bucket_assignment_by_size(parameters_, size_limits, sparse);
  std::reverse(assignment_.begin(), assignment_.end());
}

LOCKSTEP_INLINE std::vector<bool> ReducerBuckets::sparse_among(
    const std::vector<std::size_t>& parameters) const {
  std::vector<bool> marks;
  for (const std::size_t i : parameters) marks.push_back(slots_[i].sparse);
  return marks;
}

LOCKSTEP_INLINE std::vector<std::size_t> ReducerBuckets::with_sparse_gradients() const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].sparse) found.push_back(i);
  }
  return found;
}

LOCKSTEP_INLINE std::string ReducerBuckets::names(
    const std::vector<std::size_t>& parameters) const {
  std::string text;
  for (const std::size_t i : parameters) {
    text += (text.empty() ? "" : ", ") + std::to_string(i) + " (" + slots_[i].name + ")";
  }
  return text;
}

LOCKSTEP_INLINE std::vector<std::size_t> ReducerBuckets::bucket_sizes() const {
  std::vector<std::size_t> sizes;
  for (const auto& members : assignment_) {
    std::size_t sum = 0;
    for (const std::size_t i : members) sum += bytes(i);
    sizes.push_back(sum);
  }
  return sizes;
}

LOCKSTEP_INLINE void ReducerBuckets::assign(std::vector<std::vector<std::size_t>> assignment) {
  assignment_ = std::move(assignment);
  buckets_.clear();
  for (GradientSlot& slot : slots_) {
    slot.bucket = kNone;
    slot.view = {};
  }
}

LOCKSTEP_INLINE void ReducerBuckets::prepare() {
  if (buckets_.empty()) allocate();
  for (Bucket& bucket : buckets_) {
    bucket.pending = bucket.members.size();
    bucket.stream.reset();
    bucket.future.reset();
    bucket.mean.reset();
  }
  for (GradientSlot& slot : slots_) slot.given = false;
}

LOCKSTEP_INLINE void ReducerBuckets::join_streams(Bucket& bucket) {
  const Tensor& buffer = bucket.gradients.buffer();
  const Tensor& written = buffer.defined() ? buffer : bucket.gradients.parameters()[0];
  const Stream stream = current_stream(written.device());
  if (bucket.stream && *bucket.stream != stream) stream.wait_stream(*bucket.stream);
  bucket.stream = stream;
}

LOCKSTEP_INLINE void ReducerBuckets::launch(Bucket& bucket, const distributed::ProcessGroup& group,
                                            const CommHook& hook) {
  join_streams(bucket);
  const Tensor& buffer = bucket.gradients.buffer();
  withdraw(bucket);
  if (!buffer.defined()) {
    const Tensor& own = slots_[bucket.members[0]].withdrawn;
    const Tensor& parameter = parameters_[bucket.members[0]];
    bucket.mean.emplace(group,
                        own.defined() ? own : empty_sparse(parameter.sizes(), parameter.options()));
  } else if (hook) {
    bucket.future = hook(bucket.gradients);
  } else {
    bucket.future = BucketFuture(group.all_reduce(buffer, distributed::ReduceOp::avg), buffer);
  }
}

LOCKSTEP_INLINE void ReducerBuckets::wait(Bucket& bucket, double factor) {
  if (bucket.mean) {
    GradientSlot& slot = slots_[bucket.members[0]];
    slot.view = bucket.mean->wait(factor);
    if (!slot.stands_in) slot.withdrawn = slot.view;
    bucket.mean.reset();
    return;
  }
  BucketFuture future = *std::exchange(bucket.future, std::nullopt);
  const Tensor& buffer = bucket.gradients.buffer();
  const Tensor result = future.wait();
  check<ValueError>(result.defined() && result.numel() == buffer.numel(),
                    "DistributedDataParallel: a communication hook gave ",
                    result.defined() ? result.numel() : 0, " elements for bucket ",
                    bucket.gradients.index(), ", which has ", buffer.numel());
  if (!same_memory(result, buffer)) {
    const Tensor flat = packed(result);
    copy_into(buffer, make_view(flat, buffer.sizes(), buffer.strides(), flat.impl()->offset));
  }
  const Stream stream = current_stream(buffer.device());
  if (stream != buffer.impl()->storage->owner()) buffer.record_stream(stream);
}

LOCKSTEP_INLINE void ReducerBuckets::wait_for_all(double factor) {
  std::exception_ptr error;
  const auto each = [&](const auto& step) {
    for (Bucket& bucket : buckets_) {
      try {
        step(bucket);
      } catch (...) {
        if (!error) error = std::current_exception();
      }
    }
  };
  each([](Bucket& bucket) {
    if (bucket.mean) bucket.mean->exchange();
  });
  each([&](Bucket& bucket) { wait(bucket, factor); });
  if (error) std::rethrow_exception(error);
  if (factor == 1) return;
  for (const Bucket& bucket : buckets_) {
    if (bucket.gradients.buffer().defined()) bucket.gradients.buffer().mul_(factor);
  }
}

LOCKSTEP_INLINE void ReducerBuckets::withdraw(const Bucket& bucket) {
  for (const std::size_t i : bucket.members) {
    slots_[i].withdrawn = parameters_[i].grad();
    parameters_[i].set_grad({});
  }
}

LOCKSTEP_INLINE void ReducerBuckets::give_back() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Tensor grad = std::exchange(slots_[i].withdrawn, {});
    if (grad.defined()) parameters_[i].set_grad(std::move(grad));
  }
}

LOCKSTEP_INLINE void ReducerBuckets::drop_full() noexcept {
  for (const Bucket& bucket : buckets_) {
    if (bucket.pending > 0) continue;
    for (const std::size_t i : bucket.members) parameters_[i].set_grad({});
  }
  for (GradientSlot& slot : slots_) slot.withdrawn = {};
}

LOCKSTEP_INLINE Tensor ReducerBuckets::gradient_slot(std::size_t i) {
  Bucket* const bucket = bucket_of(i);
  if (!bucket || slots_[i].sparse || std::exchange(slots_[i].given, true)) return {};
  join_streams(*bucket);
  const Tensor& view = slots_[i].view;
  if (*bucket->stream != view.impl()->storage->owner()) view.record_stream(*bucket->stream);
  return view;
}

LOCKSTEP_INLINE bool ReducerBuckets::take_gradient(std::size_t i) {
  const Tensor& view = slots_[i].view;
  const Tensor grad = parameters_[i].grad();
  slots_[i].stands_in = false;
  if (is_sparse(i, grad)) return false;
  if (!grad.defined() && !parameters_[i].requires_grad()) {
    parameters_[i].set_grad(view.zero_());
    return false;
  }
  check_unchanged(i, grad);
  const bool elsewhere = !same_memory(grad, view);
  if (elsewhere) copy_gradient(view, grad);
  if (!grad.is_same(view)) parameters_[i].set_grad(view);
  return elsewhere;
}

LOCKSTEP_INLINE void ReducerBuckets::stand_in(std::size_t i) {
  GradientSlot& slot = slots_[i];
  const Tensor grad = parameters_[i].grad();
  slot.stands_in = true;
  if (is_sparse(i, grad)) return;
  if (!grad.defined()) {
    slot.view.zero_();
    return;
  }
  check_unchanged(i, grad);
  if (same_memory(grad, slot.view)) {
    slot.kept = empty_in_layout_of(grad);
    copy_gradient(slot.kept, grad);
  } else {
    copy_gradient(slot.view, grad);
  }
}

LOCKSTEP_INLINE void ReducerBuckets::settle(std::size_t i, bool used_anywhere) {
  GradientSlot& slot = slots_[i];
  const Tensor kept = std::exchange(slot.kept, {});
  if (used_anywhere) {
    parameters_[i].set_grad(slot.view);
  } else if (kept.defined()) {
    copy_gradient(slot.view, kept);
  }
}

LOCKSTEP_INLINE void ReducerBuckets::allocate() {
  for (std::size_t b = 0; b < assignment_.size(); ++b) {
    const std::vector<std::size_t>& members = assignment_[b];
    const bool last = b + 1 == assignment_.size();
    std::vector<Tensor> own;
    for (const std::size_t i : members) own.push_back(parameters_[i]);
    if (slots_[members[0]].sparse) {
      slots_[members[0]].bucket = b;
      buckets_.push_back(
          {.gradients = {b, last, Tensor(), std::move(own), {0}}, .members = members});
      continue;
    }
    const comm::detail::FlatLayout layout(parameters_, members);
    Tensor buffer = zeros({layout.total}, parameters_[members[0]].options());
    buckets_.push_back({.gradients = {b, last, std::move(buffer), std::move(own), layout.offsets},
                        .members = members});
    for (std::size_t m = 0; m < members.size(); ++m) {
      slots_[members[m]].bucket = b;
      slots_[members[m]].view = buckets_[b].gradients.gradient(m);
    }
  }
}

LOCKSTEP_INLINE bool ReducerBuckets::is_sparse(std::size_t i, const Tensor& grad) const {
  const bool sparse = slots_[i].sparse;
  if (grad.defined() && grad.is_sparse() != sparse) fail_other_layout(sparse, names({i}));
  return sparse;
}

LOCKSTEP_INLINE void ReducerBuckets::check_unchanged(std::size_t i, const Tensor& grad) const {
  const Tensor& view = slots_[i].view;
  if (grad.defined() && grad.sizes() == view.sizes() && grad.dtype() == view.dtype() &&
      grad.device() == view.device()) {
    return;
  }
  fail<ModuleError>("DistributedDataParallel: parameter ", names({i}), " was of shape ",
                    view.sizes(), " and ", view.dtype(), " on ", view.device(),
                    " when its bucket was made, and is of shape ", parameters_[i].sizes(), " and ",
                    parameters_[i].dtype(), " on ", parameters_[i].device(), " now");
}

}  // namespace lockstep::detail
