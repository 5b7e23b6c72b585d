// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/socket/socket_frame.hpp>
#include <lockstep/distributed/socket/socket_loop.hpp>
#include <lockstep/distributed/watchdog/watchdog_ledger.hpp>
#include <lockstep/distributed/watchdog/watchdog_options.hpp>
#include <lockstep/distributed/watchdog/watchdog_protocol.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <thread>

namespace lockstep::distributed::detail {

// The watchdogs of all ranks report to this one, in the process of rank 0, which tells them what is
// wrong. Rank 0 reports to it like any other.
//
// Threads: a thread of its own does everything, and ends in the destructor, which first tells the
// others that this was a good end.
class WatchdogServer {
 public:
  WatchdogServer(int size, std::uint64_t token, std::chrono::milliseconds join_timeout,
                 const WatchdogOptions& options);
  WatchdogServer(const WatchdogServer&) = delete;
  WatchdogServer& operator=(const WatchdogServer&) = delete;
  ~WatchdogServer();

  std::uint16_t port() const { return port_; }

 private:
  friend class SocketLoop;

  // What is known of a connection that has said hello.
  struct Client {
    int rank;
    std::map<std::uint32_t, WatchdogLedger::GroupKey> groups{};  // by their numbers
    std::uint32_t announced = 0;                                 // how many groups it has announced
    bool ended = false;                                          // said goodbye, or was lost
  };

  void run() noexcept;

  void on_frame(Connection& connection, std::string_view bytes);

  void welcome(Connection& connection, FrameReader& frame);

  // Throws BadFrame unless the group's ranks are different ones of the world, the client's among
  // them.
  void read_new_group(Client& client, FrameReader& frame) const;

  static const WatchdogLedger::GroupKey& group_of(const Client& client, std::uint32_t number);

  void leave_group(Client& client, std::uint32_t number);

  void read_heartbeat(Client& client, FrameReader& frame);

  void on_end(Connection& connection, const std::string& reason);

  void on_tick();
  void on_pass() { tell(); }

  // Tells all clients of new faults, and rank 0 last: it may end its process because of them, and
  // the others would only learn that it did.
  void tell();

  void close();

  const std::uint64_t token_;
  const std::chrono::milliseconds interval_;
  WatchdogLedger ledger_;
  ListeningClock clock_;
  std::map<int, Client> clients_;  // by connection
  std::size_t told_ = 0;           // of the ledger's faults
  SocketLoop loop_;
  std::uint16_t port_ = 0;
  std::thread thread_;  // runs `run` until `loop_` is stopped; all above is its own
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/watchdog/impl/watchdog_server.ipp>
#endif
