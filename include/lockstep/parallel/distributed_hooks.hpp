// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/parallel/bucket.hpp>

#include <utility>

// Communication hooks for DistributedDataParallel::register_comm_hook.
//
// Each is made for the model's group, which takes the mean. Between threads and processes,
// half-precision gradients are summed in f32 and rounded once, so that the sum does not overflow;
// NCCL may round and scale each term in the gradients' own dtype.
//
// **Torch counterpart.** torch.distributed.algorithms.ddp_comm_hooks.default_hooks.
// **Example.** model.register_comm_hook(ls::ddp_comm_hooks::bf16_compress_hook(group));
namespace lockstep::ddp_comm_hooks {

// Replaces the buffer by its mean over the ranks, as happens without a hook.
CommHook allreduce_hook(distributed::ProcessGroup group);

// Wraps a hook so that it reduces the gradients rounded to f16, half the bytes of f32. Values up to
// 2.9e-8 become zero, those from 65520 on infinite. A ValueError for an empty function.
CommHook fp16_compress_wrapper(CommHook hook);
// The same with bf16, which has the range of f32 and three significant digits.
CommHook bf16_compress_wrapper(CommHook hook);

// Averages gradients rounded to f16, or to bf16.
inline CommHook fp16_compress_hook(distributed::ProcessGroup group) {
  return fp16_compress_wrapper(allreduce_hook(std::move(group)));
}
inline CommHook bf16_compress_hook(distributed::ProcessGroup group) {
  return bf16_compress_wrapper(allreduce_hook(std::move(group)));
}

}  // namespace lockstep::ddp_comm_hooks

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/impl/distributed_hooks.ipp>
#endif
