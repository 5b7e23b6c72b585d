// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/group/carrier.hpp>
#include <lockstep/distributed/group/communication_thread.hpp>
#include <lockstep/distributed/group/group_watch.hpp>
#include <lockstep/distributed/group/operands.hpp>
#include <lockstep/distributed/watchdog/watchdog_progress.hpp>
#include <lockstep/distributed/work.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

// The tensors that an operation reads, or those that it writes: one for each of `count` parts, or a
// single one in which the parts follow one another.
struct Parts {
  std::span<const Tensor> tensors;
  std::size_t count = 1;
};

// What a group's operations use. Each of them holds it, so that it outlives the handles until the
// last operation has ended.
//
// Threads: the communication thread, or one that runs an operation in its place; `break_off` any.
class GroupLink {
 public:
  GroupLink(std::unique_ptr<Carrier> carrier, CommunicationThread& thread, GroupWatch watch)
      : thread_(thread), watch_(std::move(watch)), carrier_(std::move(carrier)) {}
  GroupLink(const GroupLink&) = delete;
  GroupLink& operator=(const GroupLink&) = delete;
  ~GroupLink();

  const Carrier& carrier() const { return *carrier_; }
  const GroupWatch& watch() const { return watch_; }
  // For a forked child: lets go of the carrier without ending it, since it is the parent's.
  void abandon() noexcept { (void)carrier_.release(); }

  void run(const Call& call, Operands& operands, const Completion& completion) noexcept;

  void start(const Message& message, Operands& operands, const Done& done) noexcept;

  std::unique_ptr<Carrier> split(const std::vector<int>& members);

  // Takes this rank out of all further operations of the group.
  void leave(const std::exception_ptr& error) noexcept { carrier_->leave(error); }
  void break_off(const std::exception_ptr& error) noexcept { carrier_->break_off(error); }

 private:
  // Runs `body`, in which the rank waits for the others. Once a fault is known it throws that:
  // whatever `body` throws then follows from it.
  template <class Body>
  void within(const Call& call, const Body& body) {
    const InCollective here(watch_.progress(), call);
    try {
      watch_.check();
      body();
    } catch (...) {
      watch_.check();
      throw;
    }
  }

  // `failed` is called if the operation fails after it was issued.
  void carry(const Call& call, Operands& operands, const Done& failed);

  CommunicationThread& thread_;
  const GroupWatch watch_;
  std::unique_ptr<Carrier> carrier_;  // set until `abandon`
};

// What the handles on a process group share.
class GroupState {
 public:
  // If it throws, the carrier is still the caller's.
  GroupState(std::unique_ptr<Carrier>&& carrier, std::shared_ptr<CommunicationThread> thread,
             Device device, GroupWatch watch = {});
  GroupState(const GroupState&) = delete;
  GroupState& operator=(const GroupState&) = delete;
  // Does not wait. The carrier is destroyed in turn, as an operation runs: after the group's own
  // operations, and while none of the rank's other groups runs.
  ~GroupState();

  int rank() const { return rank_; }
  int size() const { return size_; }
  Device device() const { return device_; }
  const std::shared_ptr<CommunicationThread>& thread() const { return thread_; }
  const GroupWatch& watch() const { return link_->watch(); }

  // Runs a collective after all that was issued before it.
  Work collective(const Call& call, const Parts& reads, const Parts& writes, Execution execution);

  bool reaches_itself() const { return link_->carrier().reaches_itself(); }
  // Starts a message after all that was issued before it. A send to this rank itself is of a copy,
  // and its Work has ended.
  Work message(const Message& message, const Tensor& tensor);

  // Null on a rank that is not among the members.
  std::shared_ptr<GroupState> split(const std::vector<int>& members);

 private:
  // Runs `body`, which issues an operation that the other ranks come to. Where it throws the rank
  // leaves the group: at once where the carrier can break off what runs, else when what it has
  // issued before has ended.
  template <class Body>
  void issuing(const Body& body) {
    try {
      body();
    } catch (...) {
      leave(std::current_exception());
      throw;
    }
  }
  void leave(const std::exception_ptr& error) noexcept;

  const std::shared_ptr<CommunicationThread> thread_;
  const int rank_;
  const int size_;
  const Device device_;
  std::shared_ptr<GroupLink> link_;  // set until the destructor
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/group/impl/group_state.ipp>
#endif
