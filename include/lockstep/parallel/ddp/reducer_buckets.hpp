// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/parallel/bucket.hpp>
#include <lockstep/parallel/comm/detail/buffers.hpp>
#include <lockstep/parallel/ddp/reducer_sparse.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

// Whether two tensors show the same memory in the same layout.
bool same_memory(const Tensor& a, const Tensor& b);

// copy_into, in one piece for images in channels_last as well.
void copy_gradient(const Tensor& dst, const Tensor& src);

// The parameters of a Reducer, and the buckets that their gradients lie in. A sparse gradient has a
// bucket of its own, which has no buffer.
//
// Threads: one at a time.
class ReducerBuckets {
 public:
  struct Bucket {
    GradBucket gradients;                     // without a buffer if the gradient is sparse
    std::vector<std::size_t> members;         // the parameters' numbers
    std::size_t pending = 0;                  // how many gradients this pass still has to bring
    std::optional<Stream> stream = {};        // where the buffer was last written in this pass
    std::optional<BucketFuture> future = {};  // once it has been launched in this pass
    std::optional<SparseMean> mean = {};      // in place of `future`, if the gradient is sparse
  };

  // The first buckets go from the last parameters to the first, as gradients will come.
  ReducerBuckets(const std::vector<NamedParameter>& parameters,
                 const std::vector<std::size_t>& size_limits);

  std::size_t size() const { return parameters_.size(); }
  const Tensor& parameter(std::size_t i) const { return parameters_[i]; }
  std::size_t bytes(std::size_t i) const { return comm::detail::bytes_of(parameters_[i]); }
  std::vector<Bucket>& buckets() { return buckets_; }
  // Null if the parameter's gradients are in no bucket.
  Bucket* bucket_of(std::size_t i) {
    return slots_[i].bucket == kNone ? nullptr : &buckets_[slots_[i].bucket];
  }

  // Which of these parameters had the mark of sparse gradients when this was made.
  std::vector<bool> sparse_among(const std::vector<std::size_t>& parameters) const;
  std::vector<std::size_t> with_sparse_gradients() const;

  // How messages name parameters: 1 (fc.weight), 3 (fc2.weight)
  std::string names(const std::vector<std::size_t>& parameters) const;

  // The gradients' bytes in each bucket, without the gaps.
  std::vector<std::size_t> bucket_sizes() const;

  // Sets which gradients share a bucket from the next `prepare` on; they stay where they are until
  // then.
  void assign(std::vector<std::vector<std::size_t>> assignment);

  // Prepares a pass. The buffers are made, with zeros in the gaps, when they are first needed.
  void prepare();

  // Has the current stream come after whatever has been written to the bucket in this pass.
  static void join_streams(Bucket& bucket);

  // Starts the reduction of a full bucket, by the hook if there is one.
  void launch(Bucket& bucket, const distributed::ProcessGroup& group, const CommHook& hook);

  // Waits for a bucket that has been launched, until its buffer holds the result, and for a sparse
  // gradient's result, which is multiplied by `factor`.
  void wait(Bucket& bucket, double factor);

  // The same for all, even if one has failed; then throws the first error. The results are
  // multiplied by `factor`.
  void wait_for_all(double factor);

  // Takes the gradients of a bucket away while it is being reduced: what adds to them meanwhile,
  // which is an error, touches memory of its own.
  void withdraw(const Bucket& bucket);
  // Gives the gradients back, once all buckets have been waited for.
  void give_back();

  // Gives up the gradients in full buckets, which may have been launched and be written to still.
  void drop_full() noexcept;

  // The memory of the parameter's gradient in its bucket, for the current stream to write the
  // gradient there. Undefined after the first call in a pass, and for a sparse gradient.
  Tensor gradient_slot(std::size_t i);

  // Makes the parameter's `grad` a part of the bucket, zero if it is frozen and has none; true if
  // it had to be copied there.
  bool take_gradient(std::size_t i);

  // Puts into the bucket what stands for a gradient that did not come: the one from before, which
  // other ranks add theirs to, or zero.
  void stand_in(std::size_t i);

  // Ends what `stand_in` began: the gradient becomes what has come from the other ranks, or stays
  // what it was, to the bit, if no rank has brought one.
  void settle(std::size_t i, bool used_anywhere);

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  // Where a parameter's gradient is.
  struct GradientSlot {
    std::string name;
    bool sparse;  // it gets sparse gradients
    std::size_t bucket = kNone;
    Tensor view = {};        // of the bucket's buffer; the mean, if the gradient is sparse
    Tensor kept = {};        // what was there before `stand_in`
    Tensor withdrawn = {};   // the gradient, between `withdraw` and `give_back`
    bool stands_in = false;  // no gradient has come in this pass
    bool given = false;      // `gradient_slot` has returned `view` in this pass
  };

  void allocate();

  // Whether the parameter gets sparse gradients. Throws if `grad` is of the other kind.
  bool is_sparse(std::size_t i, const Tensor& grad) const;

  void check_unchanged(std::size_t i, const Tensor& grad) const;

  std::vector<std::vector<std::size_t>> assignment_;
  std::vector<Tensor> parameters_;
  std::vector<GradientSlot> slots_;  // one for each
  std::vector<Bucket> buckets_;      // empty until the first pass with this assignment
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/ddp/impl/reducer_buckets.ipp>
#endif
