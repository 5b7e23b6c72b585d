// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/socket/socket.hpp>
#include <lockstep/distributed/socket/socket_frame.hpp>
#include <lockstep/distributed/socket/socket_loop.hpp>
#include <lockstep/distributed/watchdog/watchdog_ledger.hpp>
#include <lockstep/distributed/watchdog/watchdog_options.hpp>
#include <lockstep/distributed/watchdog/watchdog_protocol.hpp>
#include <lockstep/non_copyable.hpp>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

// The server in rank 0's process to which the watchdogs of all ranks report, rank 0's included, and
// which tells them of faults.
//
// Threads: its own thread does everything. The destructor tells the others that this is a normal
// end, and ends the thread.
class WatchdogServer : lockstep::detail::NonCopyable {
 public:
  WatchdogServer(int size, std::uint64_t token, std::chrono::milliseconds join_timeout,
                 const WatchdogOptions& options)
      : token_(token),
        ledger_(size, join_timeout, options),
        clock_(options.interval),
        loop_(kMaxHello),
        port_(loop_.listen(0)) {
    loop_.start(*this, options.interval);
  }
  ~WatchdogServer() { loop_.join(); }

  std::uint16_t port() const { return port_; }

 private:
  friend class SocketLoop;

  // What is known about a connection that has said hello.
  struct Client {
    int rank;
    std::map<std::uint32_t, WatchdogLedger::GroupKey> groups{};  // by their numbers
    std::uint32_t announced = 0;                                 // how many groups it has announced
    bool ended = false;                                          // said goodbye, or was lost
  };

  void on_frame(Connection& connection, std::string_view bytes) {
    FrameReader frame(bytes);
    const auto message = static_cast<ToServer>(frame.number<std::uint8_t>());
    const auto found = clients_.find(connection.id());
    if (found == clients_.end()) {
      check<BadFrame>(message == ToServer::hello, "no greeting");
      return welcome(connection, frame);
    }
    Client& client = found->second;
    if (client.ended) return;
    ledger_.note_frame(client.rank, clock_.now());
    switch (message) {
      case ToServer::group:
        read_new_group(client, frame);
        break;
      case ToServer::position: {
        const WatchdogLedger::GroupKey& group = group_of(client, frame.number<std::uint32_t>());
        ledger_.report(client.rank, group, read_position(frame), clock_.now());
        break;
      }
      case ToServer::heartbeat:
        ledger_.find_left(client.rank, frame.number<std::uint32_t>());
        // One at a time is enough: it says only that this thread lives, and how many have ended.
        if (!connection.is_sending()) {
          connection.send(FrameWriter(FromServer::heartbeat).number(ledger_.ends()).take());
        }
        break;
      case ToServer::leave_group: {
        const auto number = frame.number<std::uint32_t>();
        ledger_.leave_group(client.rank, group_of(client, number));
        client.groups.erase(number);
        break;
      }
      case ToServer::abort:
        ledger_.abort(client.rank, frame.text());
        break;
      case ToServer::told:
        ledger_.note_told(client.rank);
        break;
      case ToServer::finished:
        ledger_.finish(client.rank);
        break;
      case ToServer::goodbye:
        client.ended = true;
        ledger_.leave(client.rank);
        connection.close();
        break;
      default:
        lockstep::detail::fail<BadFrame>("an unknown message");
    }
    frame.end();
  }

  void welcome(Connection& connection, FrameReader& frame) {
    const bool known = frame.number<std::uint64_t>() == token_;
    const int rank = frame.number<std::int32_t>();
    const int size = frame.number<std::int32_t>();
    std::string reason;
    if (!known) {
      reason =
          "the value of key 'watchdog' in the store is of another run, whose token it has: each "
          "run needs a store, or a PrefixStore, of its own";
    } else if (size != ledger_.size()) {
      reason = lockstep::detail::str("rank ", rank, " says that there are ", size,
                                     " ranks, rank 0 that there are ", ledger_.size());
    } else if (rank < 0 || rank >= size) {
      reason = lockstep::detail::str("there is no rank ", rank, " among ", size);
    } else if (ledger_.has_joined(rank)) {
      reason = lockstep::detail::str("two processes say that they are rank ", rank);
    }
    if (!reason.empty()) {
      connection.send(FrameWriter(FromServer::refused).text(reason).take());
      connection.close();
      return;
    }
    ledger_.note_frame(rank, clock_.now());
    clients_.emplace(connection.id(), Client{rank});
    connection.set_most(kMaxWatchdogFrame);
    connection.send(FrameWriter(FromServer::welcome).take());
    if (faults_told_ > 0) connection.send(write_faults(ledger_.faults()));
  }

  // Throws BadFrame unless the group's ranks are distinct, ranks of the world, and include the
  // client's.
  void read_new_group(Client& client, FrameReader& frame) const {
    WatchdogLedger::GroupKey group = read_group(frame);
    const std::vector<int>& ranks = group.first;
    const std::set<int> different(ranks.begin(), ranks.end());
    check<BadFrame>(different.contains(client.rank) && different.size() == ranks.size() &&
                        *different.begin() >= 0 && *different.rbegin() < ledger_.size(),
                    "an impossible group");
    client.groups.emplace(client.announced++, std::move(group));
  }

  static const WatchdogLedger::GroupKey& group_of(const Client& client, std::uint32_t number) {
    const auto found = client.groups.find(number);
    check<BadFrame>(found != client.groups.end(), "an unknown group");
    return found->second;
  }

  void on_end(Connection& connection, const std::string& reason) {
    const auto found = clients_.find(connection.id());
    if (found == clients_.end()) return;
    if (!found->second.ended) ledger_.lose(found->second.rank, reason);
    clients_.erase(found);
  }

  void on_tick() {
    ledger_.examine(clock_.now());
    tell();
  }
  void on_pass() { tell(); }

  // Tells all clients of new faults, rank 0 last: it may end its process because of them, and the
  // others would only learn that it did.
  void tell() {
    if (faults_told_ == ledger_.faults().size()) return;
    faults_told_ = ledger_.faults().size();
    const std::string frame = write_faults(ledger_.faults());
    Connection* of_rank_0 = nullptr;
    for (Connection& connection : loop_.connections()) {
      const auto found = clients_.find(connection.id());
      if (found == clients_.end() || found->second.ended) continue;
      if (found->second.rank == 0) {
        of_rank_0 = &connection;
      } else {
        connection.send(frame);
      }
    }
    if (of_rank_0) of_rank_0->send(frame);
  }

  // Out of memory: the clients find that rank 0 is lost.
  void on_failure(const std::exception&) {}

  void on_stop() {
    std::string frames;
    for (const auto& [group, number] : ledger_.numbers(0)) {
      FrameWriter last(FromServer::last);
      write(last, group);
      frames += last.number(number).take();
    }
    frames += FrameWriter(FromServer::closing).take();
    for (Connection& connection : loop_.connections()) {
      if (clients_.contains(connection.id())) connection.send(frames);
    }
    loop_.finish(Deadline(kLongestGoodbye));
  }

  const std::uint64_t token_;
  WatchdogLedger ledger_;
  ListeningClock clock_;
  std::map<int, Client> clients_;  // by connection
  std::size_t faults_told_ = 0;    // of the ledger's faults
  SocketLoop loop_;
  const std::uint16_t port_;
};

}  // namespace lockstep::distributed::detail
