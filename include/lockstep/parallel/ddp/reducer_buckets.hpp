// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/streams.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/parallel/bucket.hpp>
#include <lockstep/parallel/comm/detail/buffers.hpp>
#include <lockstep/parallel/ddp/bucket_assignment.hpp>
#include <lockstep/parallel/ddp/reducer_sparse.hpp>
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

// copy_into, as one piece even if both tensors are in channels_last.
inline void copy_gradient(const Tensor& dst, const Tensor& src) {
  if (is_channels_last(dst) && is_channels_last(src)) {
    return copy_into(channels_to_back(dst), channels_to_back(src));
  }
  copy_into(dst, src);
}

// The parameters of a Reducer, and the buckets that hold their gradients. A sparse gradient has a
// bucket of its own without a buffer.
//
// Threads: one at a time.
class ReducerBuckets {
 public:
  struct Bucket {
    GradBucket gradients;                     // without a buffer if the gradient is sparse
    std::vector<std::size_t> members;         // the parameters' numbers
    std::size_t pending = 0;                  // gradients of this pass still to come
    std::optional<Stream> stream = {};        // that last wrote the buffer in this pass
    std::optional<BucketFuture> future = {};  // set once launched in this pass
    std::optional<SparseMean> mean = {};      // in place of `future`, for a sparse gradient
  };

  // The first buckets go from the last parameters to the first, the order in which gradients come.
  ReducerBuckets(const std::vector<NamedParameter>& parameters,
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

  std::size_t size() const { return parameters_.size(); }
  const Tensor& parameter(std::size_t i) const { return parameters_[i]; }
  std::size_t bytes(std::size_t i) const { return bytes_of(parameters_[i]); }
  std::vector<Bucket>& buckets() { return buckets_; }
  // Null if no bucket holds the parameter's gradients.
  Bucket* bucket_of(std::size_t i) {
    return slots_[i].bucket == kNone ? nullptr : &buckets_[slots_[i].bucket];
  }

  // Whether the parameter was marked for sparse gradients when this was made.
  bool is_sparse(std::size_t i) const { return slots_[i].sparse; }

  // How messages name parameters: 1 (fc.weight), 3 (fc2.weight)
  std::string names(const std::vector<std::size_t>& parameters) const {
    std::string text;
    for (const std::size_t i : parameters) {
      text += (text.empty() ? "" : ", ") + std::to_string(i) + " (" + slots_[i].name + ")";
    }
    return text;
  }

  // The bytes of the gradients in each bucket, without gaps.
  std::vector<std::size_t> bucket_sizes() const {
    std::vector<std::size_t> sizes;
    for (const auto& members : assignment_) {
      std::size_t sum = 0;
      for (const std::size_t i : members) sum += bytes(i);
      sizes.push_back(sum);
    }
    return sizes;
  }

  // Sets which gradients share a bucket from the next `prepare` on. Until then they stay where they
  // are.
  void assign(std::vector<std::vector<std::size_t>> assignment) {
    assignment_ = std::move(assignment);
    buckets_.clear();
    for (GradientSlot& slot : slots_) {
      slot.bucket = kNone;
      slot.view = {};
    }
  }

  // Prepares a pass. The first one allocates the buffers, with zeros in the gaps.
  void prepare() {
    if (buckets_.empty()) allocate();
    for (Bucket& bucket : buckets_) {
      bucket.pending = bucket.members.size();
      bucket.stream.reset();
      bucket.future.reset();
      bucket.mean.reset();
    }
    for (GradientSlot& slot : slots_) slot.slot_given = false;
  }

  // Makes the current stream the bucket's: it waits for what this pass has written to the bucket.
  static void move_to_current_stream(Bucket& bucket) {
    const Tensor& buffer = bucket.gradients.buffer();
    const Tensor& written = buffer.defined() ? buffer : bucket.gradients.parameters()[0];
    const Stream stream = current_stream(written.device());
    if (bucket.stream && *bucket.stream != stream) stream.wait_stream(*bucket.stream);
    bucket.stream = stream;
  }

  void launch(Bucket& bucket, const distributed::ProcessGroup& group, const CommHook& hook) {
    move_to_current_stream(bucket);
    const Tensor& buffer = bucket.gradients.buffer();
    withdraw(bucket);
    if (!buffer.defined()) {
      const Tensor& own = slots_[bucket.members[0]].withdrawn;
      const Tensor& parameter = parameters_[bucket.members[0]];
      bucket.mean.emplace(
          group, own.defined() ? own : empty_sparse(parameter.sizes(), parameter.options()));
    } else if (hook) {
      bucket.future = hook(bucket.gradients);
    } else {
      bucket.future = BucketFuture(group.all_reduce(buffer, distributed::ReduceOp::avg), buffer);
    }
  }

  // Waits until the buffer of a launched bucket holds the result, or for a sparse gradient's
  // result, multiplied by `factor`.
  void wait(Bucket& bucket, double factor) {
    if (bucket.mean) {
      GradientSlot& slot = slots_[bucket.members[0]];
      slot.view = bucket.mean->wait(factor);
      if (!slot.is_substitute) slot.withdrawn = slot.view;
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

  // Waits for all buckets, even if one fails, multiplies the results by `factor`, and throws the
  // first error.
  void wait_for_all(double factor) {
    const std::exception_ptr before = first_thrown_by(buckets_, [](Bucket& bucket) {
      if (bucket.mean) bucket.mean->exchange();
    });
    const std::exception_ptr error =
        first_thrown_by(buckets_, [&](Bucket& bucket) { wait(bucket, factor); });
    if (before || error) std::rethrow_exception(before ? before : error);
    if (factor == 1) return;
    for (const Bucket& bucket : buckets_) {
      if (bucket.gradients.buffer().defined()) bucket.gradients.buffer().mul_(factor);
    }
  }

  // Takes a bucket's gradients away from the parameters while it is reduced, so that whatever adds
  // to them meanwhile, which is an error, writes to other memory.
  void withdraw(const Bucket& bucket) {
    for (const std::size_t i : bucket.members) {
      const bool trained = !slots_[i].is_substitute && parameters_[i].requires_grad();
      if (trained) check_present(i, parameters_[i].grad());
    }
    for (const std::size_t i : bucket.members) {
      slots_[i].withdrawn = parameters_[i].grad();
      parameters_[i].set_grad({});
    }
  }
  // Gives the gradients back, after all buckets have been waited for.
  void give_back() {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      Tensor grad = std::exchange(slots_[i].withdrawn, {});
      if (grad.defined()) parameters_[i].set_grad(std::move(grad));
    }
  }

  // Drops the gradients in full buckets, which may have been launched and may still be written to.
  void drop_full() noexcept {
    for (const Bucket& bucket : buckets_) {
      if (bucket.pending > 0) continue;
      for (const std::size_t i : bucket.members) parameters_[i].set_grad({});
    }
    for (GradientSlot& slot : slots_) slot.withdrawn = {};
  }

  // The memory of the parameter's gradient in its bucket, for the current stream to write the
  // gradient there. Undefined for later calls in the same pass and for a sparse gradient.
  Tensor gradient_slot(std::size_t i) {
    Bucket* const bucket = bucket_of(i);
    if (!bucket || slots_[i].sparse || std::exchange(slots_[i].slot_given, true)) return {};
    move_to_current_stream(*bucket);
    const Tensor& view = part_of_bucket(i);
    if (*bucket->stream != view.impl()->storage->owner()) view.record_stream(*bucket->stream);
    return view;
  }

  // Makes the parameter's `grad` a view of the bucket, zero if it is frozen and has none. Returns
  // whether the gradient had to be copied there.
  bool take_gradient(std::size_t i) {
    const Tensor& view = part_of_bucket(i);
    const Tensor grad = parameters_[i].grad();
    slots_[i].is_substitute = false;
    if (parameters_[i].requires_grad()) check_present(i, grad);
    if (is_sparse(i, grad)) return false;
    if (!grad.defined()) {
      parameters_[i].set_grad(view.zero_());
      return false;
    }
    check_unchanged(i, grad);
    const bool elsewhere = !same_memory(grad, view);
    if (elsewhere) copy_gradient(view, grad);
    if (!grad.is_same(view)) parameters_[i].set_grad(view);
    return elsewhere;
  }

  // Puts a substitute for a missing gradient into the bucket: the previous gradient, to which other
  // ranks add theirs, or zero.
  void put_substitute(std::size_t i) {
    GradientSlot& slot = slots_[i];
    const Tensor grad = parameters_[i].grad();
    slot.is_substitute = true;
    if (is_sparse(i, grad)) return;
    (void)part_of_bucket(i);
    if (!grad.defined()) {
      slot.view.zero_();
      return;
    }
    check_unchanged(i, grad);
    if (same_memory(grad, slot.view)) {
      slot.previous = empty_in_layout_of(grad);
      copy_gradient(slot.previous, grad);
    } else {
      copy_gradient(slot.view, grad);
    }
  }

  // Ends what `put_substitute` began: sets the gradient to the other ranks' result, or restores the
  // previous one, to the bit, if no rank has a gradient.
  void resolve_substitute(std::size_t i, bool used_anywhere) {
    GradientSlot& slot = slots_[i];
    const Tensor previous = std::exchange(slot.previous, {});
    if (used_anywhere) {
      parameters_[i].set_grad(part_of_bucket(i));
    } else if (previous.defined()) {
      copy_gradient(slot.view, previous);
    }
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  struct GradientSlot {
    std::string name;
    bool sparse;  // it gets sparse gradients
    std::size_t bucket = kNone;
    Tensor view = {};            // of the bucket's buffer; the mean, if the gradient is sparse
    Tensor previous = {};        // the gradient before `put_substitute`
    Tensor withdrawn = {};       // the gradient, between `withdraw` and `give_back`
    bool is_substitute = false;  // no gradient has come in this pass
    bool slot_given = false;     // `gradient_slot` has returned `view` in this pass
  };

  void allocate() {
    for (std::size_t b = 0; b < assignment_.size(); ++b) {
      const std::vector<std::size_t>& members = assignment_[b];
      const bool last = b + 1 == assignment_.size();
      std::vector<Tensor> own;
      for (const std::size_t i : members) own.push_back(parameters_[i]);
      const bool sparse = slots_[members[0]].sparse;
      const comm::detail::FlatLayout layout(parameters_, members);
      Tensor buffer = sparse ? Tensor() : zeros({layout.total}, own[0].options());
      buckets_.push_back({.gradients = {b, last, std::move(buffer), std::move(own), layout.offsets},
                          .members = members});
      for (std::size_t m = 0; m < members.size(); ++m) {
        slots_[members[m]].bucket = b;
        if (!sparse) slots_[members[m]].view = buckets_[b].gradients.gradient(m);
      }
    }
  }

  // The gradient's view of the bucket. The user has it as `grad`, so it is made anew if set_data
  // has replaced its memory.
  const Tensor& part_of_bucket(std::size_t i) {
    GradientSlot& slot = slots_[i];
    if (slot.sparse || slot.bucket == kNone) return slot.view;
    const Bucket& bucket = buckets_[slot.bucket];
    if (slot.view.impl()->storage != bucket.gradients.buffer().impl()->storage) {
      const auto at = std::find(bucket.members.begin(), bucket.members.end(), i);
      slot.view = bucket.gradients.gradient(static_cast<std::size_t>(at - bucket.members.begin()));
    }
    return slot.view;
  }

  // Whether the parameter gets sparse gradients. Throws if `grad` is not of that kind.
  bool is_sparse(std::size_t i, const Tensor& grad) const {
    const bool sparse = slots_[i].sparse;
    if (!grad.defined() || grad.is_sparse() == sparse) return sparse;
    fail<ModuleError>("DistributedDataParallel: Expected variable to have ",
                      sparse ? "sparse" : "dense", " gradient: parameter ", names({i}),
                      sparse ? " is marked by expect_sparse_gradient, and got a dense one"
                             : " is not marked by expect_sparse_gradient, and got a sparse one: "
                               "mark it on every rank before the DistributedDataParallel is made");
  }

  // Throws if another hook of the parameter has taken its gradient away.
  void check_present(std::size_t i, const Tensor& grad) const {
    check<ModuleError>(grad.defined(), "DistributedDataParallel: the gradient of parameter ",
                       names({i}),
                       " was taken away within backward, before the ranks had its mean: a hook of "
                       "the parameter must not do that");
  }

  void check_unchanged(std::size_t i, const Tensor& grad) const {
    const Tensor& view = slots_[i].view;
    if (grad.sizes() == view.sizes() && grad.dtype() == view.dtype() &&
        grad.device() == view.device()) {
      return;
    }
    fail<ModuleError>("DistributedDataParallel: parameter ", names({i}), " was of shape ",
                      view.sizes(), " and ", view.dtype(), " on ", view.device(),
                      " when its bucket was made, and is of shape ", parameters_[i].sizes(),
                      " and ", parameters_[i].dtype(), " on ", parameters_[i].device(), " now");
  }

  std::vector<std::vector<std::size_t>> assignment_;
  std::vector<Tensor> parameters_;
  std::vector<GradientSlot> slots_;  // one for each
  std::vector<Bucket> buckets_;      // empty until the first pass with this assignment
};

}  // namespace lockstep::detail
