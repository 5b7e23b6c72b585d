// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/distributed/socket/socket_frame.hpp>
#include <lockstep/distributed/socket/socket_loop.hpp>
#include <lockstep/distributed/watchdog/watchdog_client.hpp>
#include <lockstep/distributed/watchdog/watchdog_ledger.hpp>
#include <lockstep/distributed/watchdog/watchdog_options.hpp>
#include <lockstep/distributed/watchdog/watchdog_progress.hpp>
#include <lockstep/distributed/watchdog/watchdog_protocol.hpp>
#include <lockstep/error.hpp>
#include <lockstep/warning.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE WatchdogClient::WatchdogClient(int rank, int size, const WatchdogAddress& address,
                                               const Deadline& deadline,
                                               const WatchdogOptions& options,
                                               std::function<void()> on_fault)
    : rank_(rank),
      options_(options),
      on_fault_(std::move(on_fault)),
      clock_(options.interval),
      loop_(kMaxWatchdogFrame) {
  lockstep::detail::check_not_forked();
  loop_.add(greet(size, address, deadline));
  last_frame_ = clock_.now();
  thread_ = std::thread([this] { run(); });
}

LOCKSTEP_INLINE WatchdogClient::~WatchdogClient() {
  // In a forked child there is no such thread.
  if (lockstep::detail::forked()) {
    thread_.detach();
    return;
  }
  leave();
}

LOCKSTEP_INLINE void WatchdogClient::leave() {
  loop_.stop();
  if (thread_.joinable()) thread_.join();
}

LOCKSTEP_INLINE std::shared_ptr<Progress> WatchdogClient::watch(const std::vector<int>& members) {
  const std::lock_guard lock(mutex_);
  // Counted even if there is no memory for the rest: the other ranks count this group, too.
  const std::uint32_t before = made_[members]++;
  const auto shared = std::make_shared<SharedProgress>();
  groups_.push_back({{members, before}, ids_, shared});
  ++ids_;
  return {&shared->progress,
          [shared](Progress*) noexcept { shared->ended.store(true, std::memory_order_release); }};
}

LOCKSTEP_INLINE std::size_t WatchdogClient::groups() const {
  const std::lock_guard lock(mutex_);
  return groups_.size();
}

LOCKSTEP_INLINE std::vector<Fault> WatchdogClient::faults() const {
  const std::lock_guard lock(mutex_);
  return faults_;
}

LOCKSTEP_INLINE std::string WatchdogClient::where() const {
  const std::lock_guard lock(mutex_);
  for (const Watched& watched : groups_) {
    const auto snapshot = watched.shared->progress.snapshot();
    if (snapshot && snapshot->inside) return describe(snapshot->number, text(snapshot->call));
  }
  return {};
}

LOCKSTEP_INLINE void WatchdogClient::finish() {
  const std::lock_guard lock(mutex_);
  finished_ = true;
  loop_.wake();
}

LOCKSTEP_INLINE void WatchdogClient::abort(std::string reason) {
  std::unique_lock lock(mutex_);
  if (abort_reason_) return;
  if (reason.size() > kMaxWatchdogText) reason.resize(kMaxWatchdogText);
  abort_reason_ = std::move(reason);
  loop_.wake();
  changed_.wait_until(lock, Deadline(kLongestGoodbye).at(),
                      [this] { return alone_ || !faults_.empty(); });
}

LOCKSTEP_INLINE Descriptor WatchdogClient::greet(int size, const WatchdogAddress& address,
                                                 const Deadline& deadline) const {
  // Rank 0 listens before it tells its address: if nobody is there, it has ended.
  Descriptor socket =
      connect_to(address.host, address.port, deadline, ConnectAttempts::until_refused);
  const std::string hello = FrameWriter(ToServer::hello)
                                .number(address.token)
                                .number(static_cast<std::int32_t>(rank_))
                                .number(static_cast<std::int32_t>(size))
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

LOCKSTEP_INLINE void WatchdogClient::run() noexcept {
  try {
    loop_.run(*this, options_.interval);
    say_goodbye();
  } catch (const std::exception& error) {
    loop_.connections().clear();
    add_fault({Fault::Kind::died, rank_,
               lockstep::detail::str("the watchdog of rank ", rank_, " failed: ", error.what())});
    end_connection();
  }
}

LOCKSTEP_INLINE void WatchdogClient::on_frame(Connection& connection, std::string_view bytes) {
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
      of_rank_0_[std::move(group)] = frame.number<std::uint64_t>();
      break;
    }
    case FromServer::closing:
      closed_ = true;
      connection.close();
      break;
    default:
      lockstep::detail::fail<BadFrame>("an unknown message");
  }
}

LOCKSTEP_INLINE void WatchdogClient::on_end(Connection&, const std::string& reason) {
  if (!closed_) {
    add_fault({Fault::Kind::died, 0,
               lockstep::detail::str("rank 0 has died: its connection was lost (", reason, ')')});
  }
  end_connection();
}

LOCKSTEP_INLINE void WatchdogClient::on_pass() {
  Connection* const connection = this->connection();
  if (!connection) return;
  send_abort(*connection);
  send_finished(*connection);
}

LOCKSTEP_INLINE void WatchdogClient::on_tick() {
  const WatchdogLedger::Time now = clock_.now();
  look(now);
  Connection* const connection = this->connection();
  if (!connection) return look_alone(now);
  if (!connection->is_sending()) send_heartbeat(*connection, now);
  if (now - last_frame_ > options_.heartbeat_timeout) {
    add_fault(
        {Fault::Kind::silent, 0,
         lockstep::detail::str("rank 0 has not answered for ", Seconds{options_.heartbeat_timeout},
                               ": it is stopped, or its machine is lost")});
  }
}

LOCKSTEP_INLINE Connection* WatchdogClient::connection() {
  return loop_.connections().empty() ? nullptr : &loop_.connections().front();
}

LOCKSTEP_INLINE void WatchdogClient::look(WatchdogLedger::Time now) {
  const std::lock_guard lock(mutex_);
  for (Watched& watched : groups_) {
    watched.ended = watched.shared->ended.load(std::memory_order_acquire);
    const auto snapshot = watched.shared->progress.snapshot();
    if (!snapshot || *snapshot == watched.last) continue;
    watched.last = *snapshot;
    watched.since = now;
    watched.told = false;
  }
}

LOCKSTEP_INLINE void WatchdogClient::send_heartbeat(Connection& connection,
                                                    WatchdogLedger::Time now) {
  const std::lock_guard lock(mutex_);
  std::string frames;
  std::vector<Watched*> changed;
  for (Watched& watched : groups_) {
    if (!std::exchange(watched.announced, true)) {
      FrameWriter group(ToServer::group);
      write(group, watched.key);
      frames += group.take();
    }
    if (!std::exchange(watched.told, true)) changed.push_back(&watched);
  }
  // Sends at least one, which says that this rank lives.
  std::size_t sent = 0;
  do {
    const std::size_t end = std::min(changed.size(), sent + kMaxPositions);
    FrameWriter heartbeat(ToServer::heartbeat);
    heartbeat.number(static_cast<std::uint32_t>(end - sent));
    for (; sent < end; ++sent) {
      const Watched& watched = *changed[sent];
      const Progress::Snapshot& last = watched.last;
      write(heartbeat, watched.id,
            {last.number, last.inside, now - watched.since, last.inside ? text(last.call) : ""});
    }
    heartbeat.number(sent == changed.size() ? ends_ : 0);
    frames += heartbeat.take();
  } while (sent < changed.size());
  std::erase_if(groups_, [&](const Watched& watched) {
    if (!watched.ended) return false;
    frames += FrameWriter(ToServer::leave_group).number(watched.id).take();
    return true;
  });
  connection.send(std::move(frames));
}

LOCKSTEP_INLINE void WatchdogClient::send_abort(Connection& connection) {
  const std::lock_guard lock(mutex_);
  if (!abort_reason_ || std::exchange(abort_sent_, true)) return;
  connection.send(FrameWriter(ToServer::abort).text(*abort_reason_).take());
}

LOCKSTEP_INLINE void WatchdogClient::send_finished(Connection& connection) {
  {
    const std::lock_guard lock(mutex_);
    if (!finished_ || std::exchange(finished_sent_, true)) return;
  }
  const WatchdogLedger::Time now = clock_.now();
  look(now);
  send_heartbeat(connection, now);
  connection.send(FrameWriter(ToServer::finished).take());
}

LOCKSTEP_INLINE void WatchdogClient::look_alone(WatchdogLedger::Time now) {
  std::optional<Fault> found;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(groups_, [](const Watched& watched) { return watched.ended; });
    for (const Watched& watched : groups_) {
      if (!watched.last.inside) continue;
      const std::vector<int>& ranks = watched.key.first;
      const auto known = of_rank_0_.find(watched.key);
      const std::uint64_t last_of_rank_0 = known == of_rank_0_.end() ? 0 : known->second;
      if (std::find(ranks.begin(), ranks.end(), 0) != ranks.end() &&
          watched.last.number > last_of_rank_0) {
        found = {Fault::Kind::left, 0, "rank 0 has ended" + after(last_of_rank_0)};
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

LOCKSTEP_INLINE void WatchdogClient::say_goodbye() {
  if (Connection* const connection = this->connection()) {
    const WatchdogLedger::Time now = clock_.now();
    send_abort(*connection);
    look(now);
    send_heartbeat(*connection, now);
    connection->send(FrameWriter(ToServer::goodbye).take());
    loop_.finish(Deadline(kLongestGoodbye));
  }
  end_connection();
}

LOCKSTEP_INLINE void WatchdogClient::add_fault(Fault fault) {
  if (!faulted()) set_faults({std::move(fault)});
}

LOCKSTEP_INLINE void WatchdogClient::set_faults(std::vector<Fault> faults) {
  {
    const std::lock_guard lock(mutex_);
    faults_ = std::move(faults);
  }
  changed_.notify_all();
  if (faulted_.exchange(true, std::memory_order_acq_rel) || !on_fault_) return;
  try {
    on_fault_();
  } catch (const std::exception& error) {
    warn(lockstep::detail::str("what a watchdog called threw: ", error.what()));
  }
}

LOCKSTEP_INLINE void WatchdogClient::end_connection() {
  {
    const std::lock_guard lock(mutex_);
    alone_ = true;
  }
  changed_.notify_all();
}

}  // namespace lockstep::distributed::detail
