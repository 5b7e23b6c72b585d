// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/group/group_checks.hpp>
#include <lockstep/distributed/group/group_state.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/distributed/work.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <vector>

namespace lockstep::distributed {

LOCKSTEP_INLINE int ProcessGroup::rank() const { return state().rank(); }

LOCKSTEP_INLINE int ProcessGroup::size() const { return state().size(); }

LOCKSTEP_INLINE Device ProcessGroup::device() const { return state().device(); }

LOCKSTEP_INLINE Work ProcessGroup::all_reduce(const Tensor& tensor, ReduceOp op) const {
  return issue("all_reduce", detail::Collective::all_reduce, tensor, op, 0, {{&tensor, 1}},
               {{&tensor, 1}});
}

LOCKSTEP_INLINE Work ProcessGroup::broadcast(const Tensor& tensor, int root) const {
  detail::check_rank("broadcast", root, size());
  detail::check_written("broadcast", tensor);  // on all ranks alike
  detail::Parts reads;
  detail::Parts writes;
  (rank() == root ? reads : writes).tensors = {&tensor, 1};
  return issue("broadcast", detail::Collective::broadcast, tensor, {}, root, reads, writes);
}

LOCKSTEP_INLINE Work ProcessGroup::reduce(const Tensor& tensor, int root, ReduceOp op) const {
  detail::check_rank("reduce", root, size());
  detail::Parts result;
  if (rank() == root) result.tensors = {&tensor, 1};
  return issue("reduce", detail::Collective::reduce, tensor, op, root, {{&tensor, 1}}, result);
}

LOCKSTEP_INLINE Work ProcessGroup::all_gather(const std::vector<Tensor>& outputs,
                                              const Tensor& input) const {
  detail::check_list("all_gather", "outputs", outputs, input, size());
  return issue("all_gather", detail::Collective::all_gather, input, {}, 0, {{&input, 1}},
               {outputs, ranks()});
}

LOCKSTEP_INLINE Work ProcessGroup::all_gather_into_tensor(const Tensor& output,
                                                          const Tensor& input) const {
  detail::check_whole("all_gather_into_tensor", "output", output, "input", input, size());
  return issue("all_gather_into_tensor", detail::Collective::all_gather, input, {}, 0,
               {{&input, 1}}, {{&output, 1}, ranks()});
}

LOCKSTEP_INLINE Work ProcessGroup::reduce_scatter(const Tensor& output,
                                                  const std::vector<Tensor>& inputs,
                                                  ReduceOp op) const {
  detail::check_list("reduce_scatter", "inputs", inputs, output, size());
  return issue("reduce_scatter", detail::Collective::reduce_scatter, output, op, 0,
               {inputs, ranks()}, {{&output, 1}});
}

LOCKSTEP_INLINE Work ProcessGroup::reduce_scatter_tensor(const Tensor& output, const Tensor& input,
                                                         ReduceOp op) const {
  detail::check_whole("reduce_scatter_tensor", "input", input, "output", output, size());
  return issue("reduce_scatter_tensor", detail::Collective::reduce_scatter, output, op, 0,
               {{&input, 1}, ranks()}, {{&output, 1}});
}

LOCKSTEP_INLINE Work ProcessGroup::scatter(const Tensor& output, const std::vector<Tensor>& inputs,
                                           int root) const {
  detail::check_root_list("scatter", "inputs", inputs, output, root, rank(), size());
  return issue("scatter", detail::Collective::scatter, output, {}, root, {inputs, ranks()},
               {{&output, 1}});
}

LOCKSTEP_INLINE Work ProcessGroup::gather(const Tensor& input, const std::vector<Tensor>& outputs,
                                          int root) const {
  detail::check_root_list("gather", "outputs", outputs, input, root, rank(), size());
  return issue("gather", detail::Collective::gather, input, {}, root, {{&input, 1}},
               {outputs, ranks()});
}

LOCKSTEP_INLINE Work ProcessGroup::barrier() const {
  return state().collective({}, {}, {}, execution_);
}

LOCKSTEP_INLINE Work ProcessGroup::recv(const Tensor& tensor, int from, int tag) const {
  detail::check_written("recv", tensor);
  return message("recv", tensor, from, tag, false);
}

LOCKSTEP_INLINE ProcessGroup ProcessGroup::new_group(const std::vector<int>& members) const {
  detail::check_members("new_group", members, size());
  return ProcessGroup(state().split(members));
}

LOCKSTEP_INLINE detail::GroupState& ProcessGroup::state() const {
  check<ValueError>(state_ != nullptr, "the process group is undefined: this rank is not in it");
  return *state_;
}

LOCKSTEP_INLINE Work ProcessGroup::issue(const char* operation, detail::Collective collective,
                                         const Tensor& part, ReduceOp op, int root,
                                         const detail::Parts& reads,
                                         const detail::Parts& writes) const {
  for (const Tensor& tensor : writes.tensors) detail::check_written(operation, tensor);
  for (const Tensor& tensor : reads.tensors) detail::check_dense(operation, tensor);
  if (detail::reduces(collective)) detail::check_reducible(operation, part, op);
  detail::check_outputs_apart(operation, writes.tensors);
  detail::check_in_place(operation, reads, writes, rank());
  const detail::Call call{.collective = collective,
                          .dtype = part.dtype(),
                          .op = op,
                          .root = root,
                          .count = static_cast<std::size_t>(part.numel())};
  return state().collective(call, reads, writes, execution_);
}

LOCKSTEP_INLINE Work ProcessGroup::message(const char* operation, const Tensor& tensor, int peer,
                                           int tag, bool sends) const {
  detail::check_rank(operation, peer, size());
  check<ValueError>(peer != rank() || state().reaches_itself(), operation, ": rank ", peer,
                    " cannot do so with itself over NCCL");
  check<ValueError>(tag >= 0, operation, ": expected a tag of at least 0, got ", tag);
  detail::check_dense(operation, tensor);
  const Work work = state().message({.peer = peer,
                                     .tag = tag,
                                     .dtype = tensor.dtype(),
                                     .count = static_cast<std::size_t>(tensor.numel()),
                                     .sends = sends},
                                    tensor);
  if (execution_ == detail::Execution::blocking) work.wait();
  return work;
}

}  // namespace lockstep::distributed
