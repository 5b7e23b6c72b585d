// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/work.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

// What DistributedDataParallel reduces at a time, and how a communication hook does it.
namespace lockstep {

// The gradients of several parameters of one dtype, side by side in one flat buffer. All ranks have
// the same buckets, each with its own values. Copies share the buffer.
//
// **Torch counterpart.** torch.distributed.GradBucket.
class GradBucket {
 public:
  GradBucket(std::size_t index, bool is_last, Tensor buffer, std::vector<Tensor> parameters,
             std::vector<std::int64_t> offsets)
      : index_(index),
        is_last_(is_last),
        buffer_(std::move(buffer)),
        parameters_(std::move(parameters)),
        offsets_(std::move(offsets)) {}

  // Buckets are reduced in the order of their indices.
  std::size_t index() const { return index_; }
  bool is_last() const { return is_last_; }
  // One dimension; gaps between the gradients, for alignment, are zero.
  const Tensor& buffer() const { return buffer_; }
  const std::vector<Tensor>& parameters() const { return parameters_; }
  std::size_t size() const { return parameters_.size(); }

  // The gradient of parameters()[i], as a view of the buffer in that parameter's shape: in
  // channels_last if the parameter is, else contiguous. An IndexError if there is no such
  // parameter.
  Tensor gradient(std::size_t i) const;
  std::vector<Tensor> gradients() const;

  // The same bucket with another buffer, for a hook that wraps another. A ShapeError unless the
  // buffer is contiguous and has as many elements.
  GradBucket with_buffer(Tensor buffer) const;

 private:
  std::size_t index_;
  bool is_last_;
  Tensor buffer_;
  std::vector<Tensor> parameters_;
  std::vector<std::int64_t> offsets_;  // in elements
};

// What a communication hook returns: the buffer's future value, as a tensor of as many elements as
// the buffer. Another dtype is converted.
//
// **Torch counterpart.** torch.futures.Future of a tensor.
// **Threads and exceptions.** The thread that called backward calls `wait` at its end, once per
// bucket, in order; that runs the steps of `then`.
class BucketFuture {
 public:
  // A future with its result.
  BucketFuture(Tensor result) : result_(std::move(result)) {}
  // A future whose result is ready once `work` has ended.
  BucketFuture(distributed::Work work, Tensor result)
      : work_(std::move(work)), result_(std::move(result)) {}

  // A future of `step`'s result for this one's. A step may issue collectives and wait for them; all
  // ranks run the same steps in the same order.
  BucketFuture then(std::function<Tensor(const Tensor&)> step) &&;

  Tensor wait();

 private:
  distributed::Work work_;
  Tensor result_;
  std::vector<std::function<Tensor(const Tensor&)>> steps_;
};

// Reduces a full bucket: starts the reduction and returns, so that backward goes on. The thread
// that runs backward calls it for the same buckets in the same order on every rank. Its result must
// already be the mean; nothing divides it afterwards.
using CommHook = std::function<BucketFuture(const GradBucket& bucket)>;

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/impl/bucket.ipp>
#endif
