// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/collectives.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <vector>

namespace lockstep::distributed {

LOCKSTEP_INLINE void all_reduce(const Tensor& tensor, ReduceOp op, const ProcessGroup& group) {
  (void)group.blocking().all_reduce(tensor, op);
}

LOCKSTEP_INLINE void broadcast(const Tensor& tensor, int root, const ProcessGroup& group) {
  (void)group.blocking().broadcast(tensor, root);
}

LOCKSTEP_INLINE void reduce(const Tensor& tensor, int root, ReduceOp op,
                            const ProcessGroup& group) {
  (void)group.blocking().reduce(tensor, root, op);
}

LOCKSTEP_INLINE void all_gather(const std::vector<Tensor>& outputs, const Tensor& input,
                                const ProcessGroup& group) {
  (void)group.blocking().all_gather(outputs, input);
}

LOCKSTEP_INLINE void all_gather_into_tensor(const Tensor& output, const Tensor& input,
                                            const ProcessGroup& group) {
  (void)group.blocking().all_gather_into_tensor(output, input);
}

LOCKSTEP_INLINE void reduce_scatter(const Tensor& output, const std::vector<Tensor>& inputs,
                                    ReduceOp op, const ProcessGroup& group) {
  (void)group.blocking().reduce_scatter(output, inputs, op);
}

LOCKSTEP_INLINE void reduce_scatter_tensor(const Tensor& output, const Tensor& input, ReduceOp op,
                                           const ProcessGroup& group) {
  (void)group.blocking().reduce_scatter_tensor(output, input, op);
}

LOCKSTEP_INLINE void scatter(const Tensor& output, const std::vector<Tensor>& inputs, int root,
                             const ProcessGroup& group) {
  (void)group.blocking().scatter(output, inputs, root);
}

LOCKSTEP_INLINE void gather(const Tensor& input, const std::vector<Tensor>& outputs, int root,
                            const ProcessGroup& group) {
  (void)group.blocking().gather(input, outputs, root);
}

LOCKSTEP_INLINE void send(const Tensor& tensor, int to, int tag, const ProcessGroup& group) {
  (void)group.blocking().send(tensor, to, tag);
}

LOCKSTEP_INLINE void recv(const Tensor& tensor, int from, int tag, const ProcessGroup& group) {
  (void)group.blocking().recv(tensor, from, tag);
}

}  // namespace lockstep::distributed
