// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/default_group.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <vector>

// The operations of a ProcessGroup as functions that return when they have ended, on the default
// group unless another is given.
//
// **Torch counterpart.** torch.distributed's functions of these names, without async_op.
// **Threads and exceptions.** As the operations of ProcessGroup; they throw what Work::wait would.
namespace lockstep::distributed {

void all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::sum,
                const ProcessGroup& group = default_group());

void broadcast(const Tensor& tensor, int root = 0, const ProcessGroup& group = default_group());

void reduce(const Tensor& tensor, int root = 0, ReduceOp op = ReduceOp::sum,
            const ProcessGroup& group = default_group());

void all_gather(const std::vector<Tensor>& outputs, const Tensor& input,
                const ProcessGroup& group = default_group());

void all_gather_into_tensor(const Tensor& output, const Tensor& input,
                            const ProcessGroup& group = default_group());

void reduce_scatter(const Tensor& output, const std::vector<Tensor>& inputs,
                    ReduceOp op = ReduceOp::sum, const ProcessGroup& group = default_group());

void reduce_scatter_tensor(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::sum,
                           const ProcessGroup& group = default_group());

void scatter(const Tensor& output, const std::vector<Tensor>& inputs = {}, int root = 0,
             const ProcessGroup& group = default_group());

void gather(const Tensor& input, const std::vector<Tensor>& outputs = {}, int root = 0,
            const ProcessGroup& group = default_group());

inline void barrier(const ProcessGroup& group = default_group()) {
  (void)group.blocking().barrier();
}

void send(const Tensor& tensor, int to, int tag = 0, const ProcessGroup& group = default_group());

void recv(const Tensor& tensor, int from, int tag = 0, const ProcessGroup& group = default_group());

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/impl/collectives.ipp>
#endif
