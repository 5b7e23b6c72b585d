// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/distributed/work.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::distributed {

namespace detail {
class GroupState;  // distributed/group/group_state.hpp
struct Parts;
}  // namespace detail

// One rank's handle on a group of ranks, each a thread or a process, which exchange tensors by
// calling the same operations in the same order.
//
// An operation is issued and takes place in the background, after those that this rank issued
// before; the Work that comes back tells when. `blocking()` gives a handle whose operations have
// ended when they return, and cost less. Tensors may be on any device and of any strides; those
// that are written change in place, parameters too, and no operation is recorded for backward. The
// same world gives the same bits in every run: sums are taken in the order of the ranks, half
// precision in f32 and rounded once. (NCCL has sums of its own.) What is written shares memory with
// no other tensor of the call, except that a rank's own part of a list or of a whole tensor may be
// the tensor on its other side.
//
// **Torch counterpart.** torch.distributed's functions with async_op, and c10d::ProcessGroup.
// **Devices and streams.** An operation comes after what is on the current stream of its tensors'
// devices; after `Work::wait` its results may be used on the waiting thread's. Until then its
// tensors belong to it. Between GPUs data goes from one to the other, as work of a stream of the
// group's own, beside what the current streams do: by NCCL, with lockstep/nccl.hpp in the program
// and distinct GPUs, by copies and adds where the ranks are threads. Where a rank is on the host,
// or MPI connects them, it goes through host memory.
// **Threads and exceptions.** Several threads of a rank may issue operations, but their order, over
// all groups of the rank together, must be the same on all ranks: a rank's groups share one thread.
// If this rank's arguments are wrong by themselves, the call throws a ShapeError, DtypeError,
// DeviceError or ValueError at once, and nothing is issued. All other errors come from the Work: a
// ValueError on every rank if the calls do not match, a RankGone if a rank has ended, between
// processes a WatchdogError. Over MPI ranks notice calls that do not match by the number of bytes
// that arrive, and tell the others, which then fail in that collective or the group's next one;
// another operation or dtype of the same number of bytes gives wrong numbers, unless
// LOCKSTEP_DISTRIBUTED_DEBUG=DETAIL is in the environment, which has the ranks compare their calls.
// With NCCL between processes nothing compares them: they give wrong numbers, or none until the
// watchdog's time limit. An operation that was issued takes place even if the last handle on the
// group has gone; but a message that the other rank has not come to by then may end with an Error.
// What an operation that fails on one rank alone means to the others: distributed::RankGone.
//
// **Example.**
//   distributed::run(devices(), [](distributed::ProcessGroup group) {
//     Tensor total = full({3}, group.rank() + 1.0, {.device = group.device()});
//     group.all_reduce(total).wait();   // on every rank: 1 + 2 + …
//   });
class ProcessGroup {
 public:
  // No group: the value of `new_group` on ranks that are not in it.
  ProcessGroup() = default;
  explicit ProcessGroup(std::shared_ptr<detail::GroupState> state) : state_(std::move(state)) {}

  bool defined() const { return state_ != nullptr; }
  explicit operator bool() const { return defined(); }
  int rank() const;
  int size() const;
  // The device that this rank computes on: the one that `run` or nccl::process_group was given for
  // it; cpu for a process over MPI.
  Device device() const;

  // The same group. Its operations return when they have ended, and throw what went wrong.
  ProcessGroup blocking() const { return {state_, detail::Execution::blocking}; }
  // The same group, for a caller that has nothing else to do: its collectives on host memory run in
  // the calling thread if no issued operation is unfinished, which spares two hand-overs between
  // threads. Errors still come from the Work.
  ProcessGroup inline_if_idle() const { return {state_, detail::Execution::inline_if_idle}; }

  // Replaces `tensor` on every rank by the reduction over all ranks.
  Work all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::sum) const;

  // Replaces `tensor` on every rank by the root's.
  Work broadcast(const Tensor& tensor, int root = 0) const;

  // Replaces `tensor` on the root by the reduction over all ranks; the others keep theirs.
  Work reduce(const Tensor& tensor, int root = 0, ReduceOp op = ReduceOp::sum) const;

  // Copies rank r's `input` to outputs[r], on every rank.
  Work all_gather(const std::vector<Tensor>& outputs, const Tensor& input) const;
  // The same into one tensor, in which the inputs' elements follow one another by rank.
  Work all_gather_into_tensor(const Tensor& output, const Tensor& input) const;

  // Writes the reduction of all ranks' inputs[r] to rank r's `output`, of the same shape for all r.
  //
  // **Torch counterpart.** torch.distributed.reduce_scatter, where each r may have another shape.
  Work reduce_scatter(const Tensor& output, const std::vector<Tensor>& inputs,
                      ReduceOp op = ReduceOp::sum) const;
  // The same for inputs whose elements follow one another by rank in one tensor.
  Work reduce_scatter_tensor(const Tensor& output, const Tensor& input,
                             ReduceOp op = ReduceOp::sum) const;

  // Copies the root's inputs[r] to rank r's `output`. The other ranks pass an empty list.
  Work scatter(const Tensor& output, const std::vector<Tensor>& inputs = {}, int root = 0) const;

  // Copies rank r's `input` to the root's outputs[r]. The other ranks pass an empty list.
  Work gather(const Tensor& input, const std::vector<Tensor>& outputs = {}, int root = 0) const;

  // Ends when all ranks have issued it.
  Work barrier() const;

  // Sends `tensor` to another rank, which calls `recv` with the same dtype, number of elements and
  // tag; `recv` writes them to its `tensor`. Later operations do not wait for a message to be
  // taken.
  //
  // Shapes are never compared. Dtypes and numbers of elements are among threads, where another one
  // is a ValueError on both sides; over MPI the bytes alone are counted, and another number of them
  // is a ValueError of the receiver: the bytes of another dtype are taken as they are. NCCL
  // compares nothing.
  //
  // A rank may send to itself, except over NCCL. Such a send has ended once the tensor is copied,
  // so that the same thread can receive it next; a `recv` that is waited for has to come after it.
  //
  // Over MPI a tag above MPI's greatest is a ValueError from the Work. A message that the other
  // rank does not come to within the watchdog's `collective_timeout`, perhaps because it has ended,
  // ends with an Error, and so do all other messages of the group, present and later ones. Its
  // tensor's memory is never freed if MPI may use it.
  Work send(const Tensor& tensor, int to, int tag = 0) const {
    return message("send", tensor, to, tag, true);
  }
  Work recv(const Tensor& tensor, int from, int tag = 0) const;

  // A group of some of the ranks, numbered in the order given; undefined on the others. Every rank
  // of this group calls it, with the same list, and it returns when all have. The groups of a rank
  // share its communication thread.
  //
  // **Torch counterpart.** torch.distributed.new_group.
  // **Threads and exceptions.** Throws what the Work of a collective would; a ValueError if the
  // lists differ.
  ProcessGroup new_group(const std::vector<int>& members) const;

  const std::shared_ptr<detail::GroupState>& impl() const { return state_; }

 private:
  ProcessGroup(std::shared_ptr<detail::GroupState> state, detail::Execution execution)
      : state_(std::move(state)), execution_(execution) {}

  detail::GroupState& state() const;
  std::size_t ranks() const { return static_cast<std::size_t>(size()); }

  Work issue(const char* operation, detail::Collective collective, const Tensor& part, ReduceOp op,
             int root, const detail::Parts& reads, const detail::Parts& writes) const;

  Work message(const char* operation, const Tensor& tensor, int peer, int tag, bool sends) const;

  std::shared_ptr<detail::GroupState> state_;
  detail::Execution execution_ = detail::Execution::queued;
};

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/impl/process_group.ipp>
#endif
