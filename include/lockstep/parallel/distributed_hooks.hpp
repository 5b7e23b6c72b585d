// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/process_group.hpp>
#include <lockstep/parallel/bucket.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <utility>

// Communication hooks for DistributedDataParallel::register_comm_hook.
//
// Each is made for the group of the model. The mean that the ranks get is taken by the group: a sum
// of half-precision gradients is taken in f32 and rounded once, so it does not overflow where its
// terms do not.
//
// **Torch counterpart.** torch.distributed.algorithms.ddp_comm_hooks.default_hooks.
// **Example.** model.register_comm_hook(ls::ddp_comm_hooks::bf16_compress_hook(group));
namespace lockstep::ddp_comm_hooks {

// What is done without a hook: the buffer becomes its mean over the ranks.
inline CommHook allreduce_hook(distributed::ProcessGroup group) {
  return [group = std::move(group)](const GradBucket& bucket) {
    return BucketFuture(group.all_reduce(bucket.buffer(), distributed::ReduceOp::avg),
                        bucket.buffer());
  };
}

namespace detail {

// `hook` with a bucket of `dtype`; its result is converted back.
inline CommHook compressed(CommHook hook, Dtype dtype) {
  return [hook = std::move(hook), dtype](const GradBucket& bucket) {
    return hook(bucket.with_buffer(lockstep::detail::cast(bucket.buffer(), dtype)));
  };
}

}  // namespace detail

// Another hook, for which the gradients are rounded to f16: half the bytes of f32. Gradients below
// 6e-8 vanish, above 65504 they are infinite.
inline CommHook fp16_compress_wrapper(CommHook hook) {
  return detail::compressed(std::move(hook), Dtype::f16);
}
// The same with bf16, which has the range of f32 and three significant digits.
inline CommHook bf16_compress_wrapper(CommHook hook) {
  return detail::compressed(std::move(hook), Dtype::bf16);
}

// The mean over the ranks of gradients rounded to f16, or to bf16.
inline CommHook fp16_compress_hook(distributed::ProcessGroup group) {
  return fp16_compress_wrapper(allreduce_hook(std::move(group)));
}
inline CommHook bf16_compress_hook(distributed::ProcessGroup group) {
  return bf16_compress_wrapper(allreduce_hook(std::move(group)));
}

}  // namespace lockstep::ddp_comm_hooks
