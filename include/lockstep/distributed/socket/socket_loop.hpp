// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/socket/socket.hpp>
#include <lockstep/distributed/socket/socket_frame.hpp>

#include <poll.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

// One connection of a SocketLoop, whose thread alone uses it.
class Connection {
 public:
  Connection(int id, Descriptor socket, std::size_t most)
      : id_(id), socket_(std::move(socket)), most_(most) {}

  int id() const { return id_; }

  // The longest frame that the other side may send from here on.
  void set_most(std::size_t most) { most_ = most; }

  // Queues a frame, which is sent when the other side has room. It is lost without an error if it
  // cannot be sent any more: reading tells how a connection has ended.
  void send(std::string frame);
  // True if frames are still queued.
  bool is_sending() const { return !out_.empty(); }

  // Ends the connection when all has been sent.
  void close() { closing_ = true; }

 private:
  friend class SocketLoop;

  // With this much unsent nothing is read from the connection: who takes no answers may not ask
  // more.
  static constexpr std::size_t kMostUnsent = std::size_t{1} << 20;

  short events() const;

  void flush();

  // Reads a bounded part of what has come, so that no connection keeps the thread from the others.
  void receive();

  int id_;
  Descriptor socket_;
  std::size_t most_;
  std::string in_;
  std::string out_;
  int ended_ = 0;  // why nothing more comes, in errno's terms
  bool closing_ = false;
};

// Serves connections in one thread: waits for all of them at once, takes their frames, and sends.
//
// Threads: one thread calls `run` and `finish`, any thread `wake` and `stop`; the rest belongs to
// the former thread, and before it starts, to whoever starts it.
class SocketLoop {
 public:
  // Frames of at most `most` bytes are taken.
  explicit SocketLoop(std::size_t most);

  // Accepts, from here on, whoever connects.
  void listen(Descriptor socket) { listener_ = std::move(socket); }

  Connection& add(Descriptor socket);

  std::vector<Connection>& connections() { return connections_; }
  Connection* find(int id);

  void wake() noexcept;
  void stop() noexcept;
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }

  // Serves until `stop`. Calls
  //   handler.on_frame(connection, frame)     a BadFrame from it ends the connection
  //   handler.on_end(connection, reason)      nothing more comes from it; it is removed afterwards
  //   handler.on_pass()                       after all that has come, and after a wake
  //   handler.on_tick()                       after that, every `tick`, if there is one
  // The handler may send to any connection, but neither add nor remove any.
  template <class Handler>
  void run(Handler& handler, std::optional<std::chrono::milliseconds> tick = {}) {
    const std::chrono::milliseconds pause = tick.value_or(std::chrono::hours(1));
    std::optional<Deadline> next(pause);
    while (!stopped()) {
      wait(next->poll_timeout());
      for (Connection& connection : connections_) serve(connection, handler);
      remove_ended();
      handler.on_pass();
      if (next->passed()) {
        if (tick) handler.on_tick();
        next.emplace(pause);
      }
    }
  }

  // Ends all connections: sends what is left, tells the other sides that no more comes, and waits
  // until they end, too, since a reset connection would lose what was sent. Returns by the
  // deadline.
  void finish(const Deadline& deadline);

 private:
  // For so many milliseconds nobody is accepted when the process has no descriptor left.
  static constexpr int kExhaustedPause = 100;

  // Waits until there is something to do. Accepts, and leaves in `polled_` what each connection can
  // do.
  void wait(int timeout);

  void accept_all();

  template <class Handler>
  void serve(Connection& connection, Handler& handler) {
    const auto index = static_cast<std::size_t>(&connection - connections_.data());
    const short events = polled_[index + 2].revents;
    if (events & ~POLLOUT) connection.receive();
    std::string reason;
    std::size_t at = 0;
    try {
      while (!connection.closing_) {
        const auto frame = next_frame(connection.in_, at, connection.most_);
        if (!frame) break;
        handler.on_frame(connection, *frame);
      }
    } catch (const BadFrame& error) {
      reason = error.what();
      connection.ended_ = EPROTO;
    }
    connection.in_.erase(0, at);
    connection.flush();
    if (connection.closing_ && connection.out_.empty() && connection.ended_ == 0) {
      connection.ended_ = ECONNRESET;
    }
    if (connection.ended_ != 0) {
      if (reason.empty()) reason = std::strerror(connection.ended_);
      handler.on_end(connection, reason);
    }
  }

  void remove_ended();

  std::size_t most_;
  Descriptor wake_;
  Descriptor listener_;
  bool exhausted_ = false;
  std::atomic<bool> stopped_{false};
  std::vector<Connection> connections_;
  std::vector<pollfd> polled_;
  int next_id_ = 0;
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/socket/impl/socket_loop.ipp>
#endif
