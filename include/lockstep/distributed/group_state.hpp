// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/call.hpp>
#include <lockstep/distributed/carrier.hpp>
#include <lockstep/distributed/communication_thread.hpp>
#include <lockstep/distributed/group_watch.hpp>
#include <lockstep/distributed/operands.hpp>
#include <lockstep/distributed/watchdog_progress.hpp>
#include <lockstep/distributed/work.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

// The tensors that one side of an operation has: as many as there are parts, or one that all parts
// follow one another in.
struct Parts {
  std::span<const Tensor> tensors;
  std::size_t count = 1;
};

// What a group's operations use. It outlives the handles until the last operation has ended.
//
// Threads: the communication thread alone, or whoever runs in its place.
class GroupLink {
 public:
  GroupLink(std::unique_ptr<Carrier> carrier, CommunicationThread& thread, GroupWatch watch)
      : thread_(thread), watch_(std::move(watch)), carrier_(std::move(carrier)) {}
  GroupLink(const GroupLink&) = delete;
  GroupLink& operator=(const GroupLink&) = delete;
  ~GroupLink();

  const Carrier& carrier() const { return *carrier_; }
  const GroupWatch& watch() const { return watch_; }
  // In a forked child: the carrier's other side is the parent's.
  void abandon() noexcept { (void)carrier_.release(); }

  void run(const Call& call, Operands& operands, const Completion& completion) noexcept;

  void start(const Message& message, Operands& operands, bool sends, const Done& done) noexcept;

  std::unique_ptr<Carrier> split(const std::vector<int>& members);

  // This rank comes to no operation of the group any more.
  void leave(const std::exception_ptr& error) noexcept { carrier_->leave(error); }
  void break_off(const std::exception_ptr& error) noexcept { carrier_->break_off(error); }

 private:
  // Runs `body`, in which the rank waits for the others. What it throws once a fault is known comes
  // of that.
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

  // `failed` is told of what goes wrong later.
  void carry(const Call& call, Operands& operands, const Done& failed);

  void issue(const Message& message, const Operands& operands, bool sends, Done done);

  CommunicationThread& thread_;
  const GroupWatch watch_;
  std::unique_ptr<Carrier> carrier_;  // set until the end
};

// What is behind the handles of a process group.
class GroupState {
 public:
  // Where it throws, the carrier is still the caller's.
  GroupState(std::unique_ptr<Carrier>&& carrier, std::shared_ptr<CommunicationThread> thread,
             Device device, GroupWatch watch = {});
  GroupState(const GroupState&) = delete;
  GroupState& operator=(const GroupState&) = delete;
  // Waits for nothing. A carrier ends where it runs: in turn with the operations of the rank's
  // other groups, and after its own.
  ~GroupState();

  int rank() const { return rank_; }
  int size() const { return size_; }
  Device device() const { return device_; }
  const std::shared_ptr<CommunicationThread>& thread() const { return thread_; }
  const GroupWatch& watch() const { return link_->watch(); }

  // Runs a collective after all that was issued before it.
  Work collective(const Call& call, const Parts& reads, const Parts& writes, Issue issue);

  bool reaches_itself() const { return link_->carrier().reaches_itself(); }
  // Starts a message after all that was issued before it. One from this rank to itself is sent from
  // a copy, and has ended for the sender.
  Work message(const Message& message, const Tensor& tensor, bool sends);

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
  std::shared_ptr<GroupLink> link_;  // set until the end
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/group_state.ipp>
#endif
