// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/default_group.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <vector>

// The operations of a ProcessGroup as functions that block until the operation has ended. They use
// the default group unless they are given another.
//
// **Torch counterpart.** torch.distributed's functions of these names, without async_op. Ranks are
// numbered within the group; torch numbers them within the world.
// **Threads and exceptions.** As the operations of ProcessGroup, and what Work::wait throws.
namespace lockstep::distributed {

inline void all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::sum,
                       const ProcessGroup& group = default_group()) {
  (void)group.blocking().all_reduce(tensor, op);
}

inline void broadcast(const Tensor& tensor, int root = 0,
                      const ProcessGroup& group = default_group()) {
  (void)group.blocking().broadcast(tensor, root);
}

inline void reduce(const Tensor& tensor, int root = 0, ReduceOp op = ReduceOp::sum,
                   const ProcessGroup& group = default_group()) {
  (void)group.blocking().reduce(tensor, root, op);
}

inline void all_gather(const std::vector<Tensor>& outputs, const Tensor& input,
                       const ProcessGroup& group = default_group()) {
  (void)group.blocking().all_gather(outputs, input);
}

inline void all_gather_into_tensor(const Tensor& output, const Tensor& input,
                                   const ProcessGroup& group = default_group()) {
  (void)group.blocking().all_gather_into_tensor(output, input);
}

inline void reduce_scatter(const Tensor& output, const std::vector<Tensor>& inputs,
                           ReduceOp op = ReduceOp::sum,
                           const ProcessGroup& group = default_group()) {
  (void)group.blocking().reduce_scatter(output, inputs, op);
}

inline void reduce_scatter_tensor(const Tensor& output, const Tensor& input,
                                  ReduceOp op = ReduceOp::sum,
                                  const ProcessGroup& group = default_group()) {
  (void)group.blocking().reduce_scatter_tensor(output, input, op);
}

inline void scatter(const Tensor& output, const std::vector<Tensor>& inputs = {}, int root = 0,
                    const ProcessGroup& group = default_group()) {
  (void)group.blocking().scatter(output, inputs, root);
}

inline void gather(const Tensor& input, const std::vector<Tensor>& outputs = {}, int root = 0,
                   const ProcessGroup& group = default_group()) {
  (void)group.blocking().gather(input, outputs, root);
}

inline void barrier(const ProcessGroup& group = default_group()) {
  (void)group.blocking().barrier();
}

inline void send(const Tensor& tensor, int to, int tag = 0,
                 const ProcessGroup& group = default_group()) {
  (void)group.blocking().send(tensor, to, tag);
}

inline void recv(const Tensor& tensor, int from, int tag = 0,
                 const ProcessGroup& group = default_group()) {
  (void)group.blocking().recv(tensor, from, tag);
}

}  // namespace lockstep::distributed
