// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/bucket.hpp>
#include <lockstep/parallel/distributed_hooks.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <utility>

namespace lockstep::ddp_comm_hooks::detail {

// `hook`, given the bucket in `dtype`; DistributedDataParallel converts its result back.
inline CommHook compressed(const char* wrapper, CommHook hook, Dtype dtype) {
  check<ValueError>(hook != nullptr, wrapper, ": expected a hook, got an empty function");
  return [hook = std::move(hook), dtype](const GradBucket& bucket) {
    return hook(bucket.with_buffer(lockstep::detail::cast(bucket.buffer(), dtype)));
  };
}

}  // namespace lockstep::ddp_comm_hooks::detail

namespace lockstep::ddp_comm_hooks {

LOCKSTEP_INLINE CommHook allreduce_hook(distributed::ProcessGroup group) {
  return [group = std::move(group)](const GradBucket& bucket) {
    return BucketFuture(group.all_reduce(bucket.buffer(), distributed::ReduceOp::avg),
                        bucket.buffer());
  };
}

LOCKSTEP_INLINE CommHook fp16_compress_wrapper(CommHook hook) {
  return detail::compressed("fp16_compress_wrapper", std::move(hook), Dtype::f16);
}

LOCKSTEP_INLINE CommHook bf16_compress_wrapper(CommHook hook) {
  return detail::compressed("bf16_compress_wrapper", std::move(hook), Dtype::bf16);
}

}  // namespace lockstep::ddp_comm_hooks
