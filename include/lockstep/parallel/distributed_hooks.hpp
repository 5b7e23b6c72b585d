// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/parallel/bucket.hpp>

#include <utility>

// Communication hooks for DistributedDataParallel::register_comm_hook.
//
// Each is made for the group of the model. The mean that the ranks get is taken by the group: a sum
// of half-precision gradients is taken in f32 and rounded once, so it does not overflow where its
// terms do not; NCCL, which adds on the GPUs, may round and scale each term in their own dtype.
//
// **Torch counterpart.** torch.distributed.algorithms.ddp_comm_hooks.default_hooks.
// **Example.** model.register_comm_hook(ls::ddp_comm_hooks::bf16_compress_hook(group));
namespace lockstep::ddp_comm_hooks {

// Does what is done without a hook: replaces the buffer by its mean over the ranks.
CommHook allreduce_hook(distributed::ProcessGroup group);

// Wraps a hook, which then reduces the gradients rounded to f16, half the bytes of f32. Those up to
// 2.9e-8 vanish, those from 65520 on become infinite. A ValueError for an empty function.
CommHook fp16_compress_wrapper(CommHook hook);
// The same with bf16, which has the range of f32 and three significant digits.
CommHook bf16_compress_wrapper(CommHook hook);

// The mean over the ranks of gradients rounded to f16, or to bf16.
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
