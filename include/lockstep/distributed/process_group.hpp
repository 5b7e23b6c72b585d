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

// One rank's handle on a group of ranks (threads or processes) that exchange tensors. All ranks
// call the same operations in the same order.
//
// An operation returns at once and runs in the background, after those that this rank issued
// before; the Work that it returns waits for it. The operations of `blocking()` return when they
// have ended, and cost less. Tensors may be on any device and have any strides. Results are written
// into the tensors that are passed, parameters included, and nothing is recorded for backward. Sums
// are taken in the order of the ranks, half precision in f32 and rounded once, so that the same
// ranks give the same bits in every run; only NCCL has its own order. A tensor that is written must
// not share memory with another tensor of the call, except that a rank's own part of a list or of a
// whole tensor may be the tensor on the other side.
//
// **Torch counterpart.** torch.distributed's functions with async_op, and c10d::ProcessGroup.
// **Devices and streams.** An operation runs after what is on the current streams of its tensors'
// devices. After `Work::wait` the waiting thread's current streams may use the results; until then
// the tensors belong to the operation. Data goes directly from GPU to GPU, on a stream of the
// group's own: by NCCL if the program includes lockstep/nccl.hpp and the GPUs are distinct, else,
// between threads, by copies and additions. It goes through host memory if a rank is on the host or
// MPI connects the ranks.
// **Threads and exceptions.** Several threads of a rank may issue operations, but their order, over
// all groups of the rank together, must be the same on all ranks: a rank's groups share one thread.
// Arguments that are wrong by themselves throw a ShapeError, DtypeError, DeviceError or ValueError
// at once, and nothing is issued. All other errors come from the Work: a ValueError on every rank
// if the calls do not match, a RankGone if a rank has ended, or between processes a WatchdogError.
// RankGone says what the other ranks see if an operation fails on one rank alone.
//
// Over MPI, calls that do not match fail on all ranks, in that collective or in the group's next
// one, if the numbers of bytes differ, and give wrong numbers otherwise; with
// LOCKSTEP_DISTRIBUTED_DEBUG=DETAIL in the environment the ranks compare their calls. NCCL between
// processes compares nothing: calls that do not match give wrong numbers, or hang until the
// watchdog's time limit.
//
// An issued operation runs even if the last handle on the group is gone; but a message that the
// other rank has not asked for by then may end with an Error.
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

  // The same group, with operations that return when they have ended, and throw their errors.
  ProcessGroup blocking() const { return {state_, detail::Execution::blocking}; }
  // The same group, for a caller that has nothing else to do: a collective on host memory runs in
  // the calling thread if all operations issued before have ended, which saves two switches between
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
  // The same into one tensor, which holds the inputs' elements one after another, by rank.
  Work all_gather_into_tensor(const Tensor& output, const Tensor& input) const;

  // Writes the reduction of all ranks' inputs[r] to rank r's `output`. All have the same shape.
  //
  // **Torch counterpart.** torch.distributed.reduce_scatter, which allows another shape for each r.
  Work reduce_scatter(const Tensor& output, const std::vector<Tensor>& inputs,
                      ReduceOp op = ReduceOp::sum) const;
  // The same for one tensor that holds the inputs' elements one after another, by rank.
  Work reduce_scatter_tensor(const Tensor& output, const Tensor& input,
                             ReduceOp op = ReduceOp::sum) const;

  // Copies the root's inputs[r] to rank r's `output`. The other ranks pass an empty list.
  Work scatter(const Tensor& output, const std::vector<Tensor>& inputs = {}, int root = 0) const;

  // Copies rank r's `input` to the root's outputs[r]. The other ranks pass an empty list.
  Work gather(const Tensor& input, const std::vector<Tensor>& outputs = {}, int root = 0) const;

  // Ends when all ranks have issued it.
  Work barrier() const;

  // Sends `tensor` to another rank, which calls `recv` with the same dtype, number of elements and
  // tag, and gets the elements in its `tensor`. Later operations do not wait until a message is
  // taken.
  //
  // Shapes are never compared. Among threads another dtype or number of elements is a ValueError on
  // both sides. MPI counts only bytes: another number of them is a ValueError of the receiver, and
  // another dtype of as many bytes goes unnoticed. NCCL compares nothing.
  //
  // A rank may send to itself, except over NCCL. Such a send ends as soon as the tensor is copied,
  // so the same thread can receive it next; a wait for a `recv` issued before it never ends.
  //
  // Over MPI a tag above MPI's greatest is a ValueError from the Work. A message that the other
  // rank does not ask for within the watchdog's `collective_timeout`, perhaps because it has ended,
  // ends with an Error, as do all other messages of the group from then on. Memory that MPI may
  // still use is then never freed.
  Work send(const Tensor& tensor, int to, int tag = 0) const {
    return message("send", tensor, to, tag, true);
  }
  Work recv(const Tensor& tensor, int from, int tag = 0) const;

  // Makes a group of some of the ranks, numbered in the order given, and returns it; undefined on
  // the other ranks. Every rank of this group calls it with the same list, and it returns when all
  // have.
  //
  // **Torch counterpart.** torch.distributed.new_group.
  // **Threads and exceptions.** As waiting for a collective; a ValueError if the lists differ. The
  // groups of a rank share its communication thread.
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
