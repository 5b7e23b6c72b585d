// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/config.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/socket/socket.hpp>
#include <lockstep/distributed/socket/socket_frame.hpp>
#include <lockstep/distributed/socket/socket_loop.hpp>
#include <lockstep/distributed/watchdog/watchdog_ledger.hpp>
#include <lockstep/distributed/watchdog/watchdog_options.hpp>
#include <lockstep/distributed/watchdog/watchdog_progress.hpp>
#include <lockstep/distributed/watchdog/watchdog_protocol.hpp>
#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/warning.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

// Where rank 0's watchdog is.
struct WatchdogAddress {
  std::string host;
  std::uint16_t port = 0;
  std::uint64_t token = 0;
};

// A rank's side of the watchdog. The first fault sets `faulted`.
//
// Threads: its own thread has the connection; the destructor says goodbye and ends the thread.
// `mutex_` guards what other threads share with that thread, which owns the rest.
class WatchdogClient : lockstep::detail::NonCopyable {
 public:
  WatchdogClient(int rank, int size, const WatchdogAddress& address, const Deadline& deadline,
                 const WatchdogOptions& options, std::function<void()> on_fault,
                 std::atomic<bool>& faulted)
      : rank_(rank),
        size_(size),
        options_(options),
        on_fault_(std::move(on_fault)),
        faulted_(faulted),
        clock_(options.interval),
        loop_(kMaxWatchdogFrame) {
    loop_.add(greet(address, deadline));
    last_frame_ = clock_.now();
  }
  ~WatchdogClient() { leave(); }

  // Starts the thread, which may call `on_fault` at once.
  void start() { loop_.start(*this, options_.interval); }

  // Says goodbye and stops watching. Called by the thread that destroys this.
  void leave() { loop_.join(); }

  // Watches a group until the Progress that is returned has no owner.
  std::shared_ptr<Progress> watch(const std::vector<int>& members) {
    const std::lock_guard lock(mutex_);
    // Counted even if the rest runs out of memory, as the other ranks count it.
    const std::uint32_t before = groups_made_[members]++;
    const auto shared = std::make_shared<SharedProgress>();
    groups_.push_back({{members, before}, next_id_, shared});
    ++next_id_;
    return {&shared->progress,
            [shared](Progress*) noexcept { shared->ended.store(true, std::memory_order_release); }};
  }

  std::size_t groups() const {
    const std::lock_guard lock(mutex_);
    return groups_.size();
  }

  // The faults found, and the collective in which this rank waits, or "".
  std::vector<Fault> faults() const {
    const std::lock_guard lock(mutex_);
    return faults_;
  }
  std::string where() const {
    const std::lock_guard lock(mutex_);
    for (const Watched& watched : groups_) {
      const auto snapshot = watched.shared->progress.snapshot();
      if (!snapshot || !snapshot->inside) continue;
      return describe(snapshot->number, text(snapshot->call)) + name_of(watched);
    }
    return {};
  }

  // This rank takes part in no further collective. Returns at once.
  void finish() {
    const std::lock_guard lock(mutex_);
    finishes_ = true;
    loop_.wake();
  }

  // Returns when a fault is known, the connection has ended, or kLongestGoodbye has passed.
  void abort(std::string reason) {
    std::unique_lock lock(mutex_);
    if (abort_reason_) return;
    if (reason.size() > kMaxWatchdogText) reason.resize(kMaxWatchdogText);
    abort_reason_ = std::move(reason);
    loop_.wake();
    changed_.wait_until(lock, Deadline(kLongestGoodbye).at(),
                        [this] { return alone_ || !faults_.empty(); });
  }

 private:
  friend class SocketLoop;

  struct SharedProgress {
    Progress progress;
    std::atomic<bool> ended{false};  // `progress` has no owner, and is final
  };

  struct Watched {
    WatchdogLedger::GroupKey key;
    std::uint32_t id;  // the group's number in messages
    std::shared_ptr<SharedProgress> shared;
    // Used by the watchdog's thread alone:
    Progress::Snapshot last{};  // where the rank was at the last check
    WatchdogLedger::Time since{0};
    bool announced = false;
    bool reported = false;
    bool ended = false;  // `progress` has no owner, and `last` is final
  };

  static std::string text(const Call& call) { return lockstep::detail::str(call); }
  std::string name_of(const Watched& watched) const {
    return WatchdogLedger::name_of(watched.key, size_);
  }

  Descriptor greet(const WatchdogAddress& address, const Deadline& deadline) const {
    // Rank 0 listens before it publishes its address: if nobody does now, it has ended.
    Descriptor socket = [&] {
      try {
        return connect_to(address.host, address.port, deadline, ConnectAttempts::until_refused);
      } catch (const NetworkError& error) {
        lockstep::detail::fail<NetworkError>(
            "Watchdog: ", error.what(),
            " (the host is that of rank 0's MASTER_ADDR or, without one, its own name)");
      }
    }();
    const std::string hello = FrameWriter(ToServer::hello)
                                  .number(address.token)
                                  .number(static_cast<std::int32_t>(rank_))
                                  .number(static_cast<std::int32_t>(size_))
                                  .take();
    std::string answer;
    int error = send_all(socket, hello, deadline);
    if (error == 0) error = receive_frame(socket, answer, kMaxWatchdogFrame, deadline);
    check<NetworkError>(error == 0, "Watchdog: rank 0's at ", endpoint(address.host, address.port),
                        " has not answered: ", std::strerror(error));
    FrameReader reader(answer);
    if (static_cast<FromServer>(reader.number<std::uint8_t>()) == FromServer::refused) {
      throw ValueError("Watchdog: " + reader.text());
    }
    return socket;
  }

  void on_failure(const std::exception& error) {
    const std::exception_ptr thrown = lockstep::detail::thrown_by([&] {
      add_fault({Fault::Kind::died, rank_,
                 lockstep::detail::str("the watchdog of rank ", rank_, " failed: ", error.what())});
    });
    if (thrown && !faulted_.load(std::memory_order_relaxed)) {
      (void)lockstep::detail::thrown_by([&] { set_faults(std::move(fault_without_memory_)); });
    }
    end_connection();
  }

  void on_frame(Connection& connection, std::string_view bytes) {
    last_frame_ = clock_.now();
    FrameReader frame(bytes);
    switch (static_cast<FromServer>(frame.number<std::uint8_t>())) {
      case FromServer::heartbeat:
        ends_ = frame.number<std::uint32_t>();
        break;
      case FromServer::faults:
        set_faults(read_faults(frame));
        connection.send(FrameWriter(ToServer::told).take());
        break;
      case FromServer::last: {
        WatchdogLedger::GroupKey group = read_group(frame);
        collectives_of_rank_0_[std::move(group)] = frame.number<std::uint64_t>();
        break;
      }
      case FromServer::closing:
        closed_ = true;
        break;
      default:
        lockstep::detail::fail<BadFrame>("an unknown message");
    }
  }

  void on_end(Connection&, const std::string& reason) {
    if (!closed_) {
      add_fault({Fault::Kind::died, 0,
                 lockstep::detail::str("rank 0 has died: its connection was lost (", reason, ')')});
    }
    end_connection();
  }

  void on_pass() {
    Connection* const connection = this->connection();
    if (!connection) return;
    std::unique_lock lock(mutex_);
    if (abort_reason_ && !std::exchange(abort_sent_, true)) {
      connection->send(FrameWriter(ToServer::abort).text(*abort_reason_).take());
    }
    const bool finishes = std::exchange(finishes_, false);
    lock.unlock();
    if (!finishes) return;
    send_positions(*connection);
    connection->send(FrameWriter(ToServer::finished).take());
  }

  void on_tick() {
    const WatchdogLedger::Time now = clock_.now();
    update_positions(now);
    Connection* const connection = this->connection();
    if (!connection) return examine_alone(now);
    if (!connection->is_sending()) send_heartbeat(*connection, now);
    if (now - last_frame_ > options_.heartbeat_timeout) {
      add_fault({Fault::Kind::silent, 0,
                 lockstep::detail::str("rank 0 has not answered for ",
                                       Seconds{options_.heartbeat_timeout},
                                       ": it is stopped, or its machine is lost")});
    }
  }

  Connection* connection() {
    return loop_.connections().empty() ? nullptr : &loop_.connections().front();
  }

  // Notes where this rank is in each group, and since when, as exactly as the calls follow one
  // another.
  void update_positions(WatchdogLedger::Time now) {
    const std::lock_guard lock(mutex_);
    for (Watched& watched : groups_) {
      watched.ended = watched.shared->ended.load(std::memory_order_acquire);
      const auto snapshot = watched.shared->progress.snapshot();
      if (!snapshot || *snapshot == watched.last) continue;
      watched.last = *snapshot;
      watched.since = now;
      watched.reported = false;
    }
  }

  void send_heartbeat(Connection& connection, WatchdogLedger::Time now) {
    const std::lock_guard lock(mutex_);
    std::string frames;
    for (Watched& watched : groups_) {
      if (!std::exchange(watched.announced, true)) {
        FrameWriter group(ToServer::group);
        write(group, watched.key);
        frames += group.take();
      }
      if (!std::exchange(watched.reported, true)) {
        const Progress::Snapshot& last = watched.last;
        FrameWriter position(ToServer::position);
        write(position.number(watched.id),
              {last.number, last.inside, now - watched.since, last.inside ? text(last.call) : ""});
        frames += position.take();
      }
    }
    frames += FrameWriter(ToServer::heartbeat).number(ends_).take();
    std::erase_if(groups_, [&](const Watched& watched) {
      if (!watched.ended) return false;
      frames += FrameWriter(ToServer::leave_group).number(watched.id).take();
      return true;
    });
    connection.send(std::move(frames));
  }

  // Sends an extra heartbeat, with where the rank is now.
  void send_positions(Connection& connection) {
    const WatchdogLedger::Time now = clock_.now();
    update_positions(now);
    send_heartbeat(connection, now);
  }

  // Looks for the faults that a rank can see by itself, after rank 0 has said goodbye.
  void examine_alone(WatchdogLedger::Time now) {
    std::optional<Fault> found;
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(groups_, [](const Watched& watched) { return watched.ended; });
      for (const Watched& watched : groups_) {
        if (!watched.last.inside) continue;
        const std::vector<int>& ranks = watched.key.first;
        const auto known = collectives_of_rank_0_.find(watched.key);
        const std::uint64_t last_of_rank_0 =
            known == collectives_of_rank_0_.end() ? 0 : known->second;
        if (lockstep::detail::find(ranks, 0) != ranks.end() &&
            watched.last.number > last_of_rank_0) {
          found = {Fault::Kind::left, 0,
                   "rank 0 has ended" + after(last_of_rank_0) + name_of(watched)};
        } else if (now - watched.since > options_.collective_timeout) {
          found = {Fault::Kind::stuck, -1,
                   lockstep::detail::str("rank ", rank_, " has waited for ",
                                         Seconds{options_.collective_timeout},
                                         ", and rank 0, which would know for whom, has ended")};
        }
      }
    }
    if (found) add_fault(*std::move(found));
  }

  void on_stop() {
    if (Connection* const connection = this->connection()) {
      on_pass();  // for what other threads have asked since the last pass
      send_positions(*connection);
      connection->send(FrameWriter(ToServer::goodbye).take());
      loop_.finish(Deadline(kLongestGoodbye));
    }
    end_connection();
  }

  // Adds a fault that this rank has found itself, unless one is known: then it is a consequence.
  void add_fault(Fault fault) {
    if (!faulted_.load(std::memory_order_relaxed)) set_faults({std::move(fault)});
  }
  void set_faults(std::vector<Fault> faults) {
    bool known = false;
    {
      const std::lock_guard lock(mutex_);
      faults_ = std::move(faults);
      known = faulted_.exchange(true, std::memory_order_acq_rel);
    }
    changed_.notify_all();
    if (known || !on_fault_) return;
    try {
      on_fault_();
    } catch (const std::exception& error) {
      warn(lockstep::detail::str("what a watchdog called threw: ", error.what()));
    }
  }
  void end_connection() {
    {
      const std::lock_guard lock(mutex_);
      alone_ = true;
    }
    changed_.notify_all();
  }

  const int rank_;
  const int size_;
  const WatchdogOptions options_;
  const std::function<void()> on_fault_;  // called once, by the thread
  std::atomic<bool>& faulted_;            // written by the thread alone
  // Reported if the thread has no memory to say why it has failed. Only the thread reads it.
  std::vector<Fault> fault_without_memory_{
      {Fault::Kind::died, rank_, "the watchdog of a rank has failed for want of memory"}};

  mutable std::mutex mutex_;  // guards all up to the next empty line
  std::condition_variable changed_;
  std::vector<Watched> groups_;  // those whose end has not been reported to rank 0
  std::uint32_t next_id_ = 0;
  std::map<std::vector<int>, std::uint32_t> groups_made_;  // how many groups of the same ranks
  std::vector<Fault> faults_;
  std::optional<std::string> abort_reason_;
  bool abort_sent_ = false;
  bool finishes_ = false;  // `finish` was called, and rank 0 has not been told yet
  bool alone_ = false;     // the connection has ended

  ListeningClock clock_;
  WatchdogLedger::Time last_frame_{0};  // when a frame of rank 0's came last
  std::uint32_t ends_ = 0;              // how many ranks have ended, by rank 0's last heartbeat
  bool closed_ = false;                 // rank 0 has said goodbye
  std::map<WatchdogLedger::GroupKey, std::uint64_t> collectives_of_rank_0_;  // its last collective
  SocketLoop loop_;
};

}  // namespace lockstep::distributed::detail
