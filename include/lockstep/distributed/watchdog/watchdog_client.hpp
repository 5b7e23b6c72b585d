// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/socket/socket.hpp>
#include <lockstep/distributed/socket/socket_loop.hpp>
#include <lockstep/distributed/watchdog/watchdog_ledger.hpp>
#include <lockstep/distributed/watchdog/watchdog_options.hpp>
#include <lockstep/distributed/watchdog/watchdog_progress.hpp>
#include <lockstep/distributed/watchdog/watchdog_protocol.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace lockstep::distributed::detail {

// Where rank 0's watchdog is.
struct WatchdogAddress {
  std::string host;
  std::uint16_t port = 0;
  std::uint64_t token = 0;
};

// A rank's side of the watchdog.
//
// Threads: a thread of its own has the connection; it ends in the destructor, which says goodbye
// first. `mutex_` guards what other threads share with it.
class WatchdogClient {
 public:
  WatchdogClient(int rank, int size, const WatchdogAddress& address, const Deadline& deadline,
                 const WatchdogOptions& options, std::function<void()> on_fault);
  WatchdogClient(const WatchdogClient&) = delete;
  WatchdogClient& operator=(const WatchdogClient&) = delete;
  ~WatchdogClient();

  // Says goodbye, and watches no more. Called by the thread that destroys it.
  void leave();

  // Watches a group until the Progress that is returned has no owner.
  std::shared_ptr<Progress> watch(const std::vector<int>& members);

  // How many it watches.
  std::size_t groups() const;

  bool faulted() const noexcept { return faulted_.load(std::memory_order_acquire); }
  const std::atomic<bool>& fault_flag() const { return faulted_; }

  // The faults found, and the collective in which this rank waits, or "".
  std::vector<Fault> faults() const;
  std::string where() const;

  // This rank comes to no collective any more. Returns at once.
  void finish();

  // Returns when a fault is known, the connection has ended, or kLongestGoodbye has passed.
  void abort(std::string reason);

 private:
  friend class SocketLoop;

  struct SharedProgress {
    Progress progress;
    std::atomic<bool> ended{false};  // `progress` has no owner: nothing will change in it
  };

  struct Watched {
    WatchdogLedger::GroupKey key;
    std::uint32_t id;  // for rank 0's watchdog
    std::shared_ptr<SharedProgress> shared;
    // Used by the watchdog's thread alone:
    Progress::Snapshot last{};  // where the rank was at the last look
    WatchdogLedger::Time since{0};
    bool announced = false;
    bool told = false;
    bool ended = false;  // `progress` has no owner: `last` is the rank's last position
  };

  static std::string text(const Call& call) { return lockstep::detail::str(call); }

  Descriptor greet(int size, const WatchdogAddress& address, const Deadline& deadline) const;

  void run() noexcept;

  void on_frame(Connection& connection, std::string_view bytes);

  void on_end(Connection&, const std::string& reason);

  void on_pass();

  void on_tick();

  Connection* connection();

  // Notes where this rank is in each group, and since when: as exact as the time between two calls.
  void look(WatchdogLedger::Time now);

  void send_heartbeat(Connection& connection, WatchdogLedger::Time now);

  void send_abort(Connection& connection);

  void send_finished(Connection& connection);

  // Looks for what one rank can see by itself, once rank 0 has ended in good order.
  void look_alone(WatchdogLedger::Time now);

  void say_goodbye();

  // Adds a fault that this rank has found itself, unless there is one: what it finds later follows
  // from that.
  void add_fault(Fault fault);
  void set_faults(std::vector<Fault> faults);
  void end_connection();

  const int rank_;
  const WatchdogOptions options_;
  const std::function<void()> on_fault_;  // called by `thread_`, once

  mutable std::mutex mutex_;  // guards all up to the next empty line
  std::condition_variable changed_;
  std::vector<Watched> groups_;  // whose end rank 0 has not been told
  std::uint32_t ids_ = 0;
  std::map<std::vector<int>, std::uint32_t> made_;  // how many groups of the same ranks
  std::vector<Fault> faults_;
  std::optional<std::string> abort_reason_;
  bool abort_sent_ = false;
  bool finished_ = false;
  bool finished_sent_ = false;
  bool alone_ = false;  // there is no connection any more

  std::atomic<bool> faulted_{false};  // true from the first fault on; publishes nothing

  ListeningClock clock_;
  WatchdogLedger::Time last_frame_{0};  // when a frame of rank 0's came last
  std::uint32_t ends_ = 0;              // how many ranks have ended, by rank 0's last heartbeat
  bool closed_ = false;                 // rank 0 has ended in good order, after these collectives:
  std::map<WatchdogLedger::GroupKey, std::uint64_t> of_rank_0_;
  SocketLoop loop_;
  std::thread thread_;  // runs `run` until `loop_` is stopped; owns what `mutex_` does not guard
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/watchdog/impl/watchdog_client.ipp>
#endif
