// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/cores.hpp>
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/socket/socket.hpp>
#include <lockstep/distributed/socket/socket_frame.hpp>
#include <lockstep/error.hpp>

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

// One connection of a SocketLoop, whose thread alone uses it.
class Connection {
 public:
  Connection(Descriptor socket, std::size_t most) : socket_(std::move(socket)), most_(most) {}

  // Unique among the loop's present connections.
  int id() const { return socket_.get(); }

  // The longest frame that the other side may send.
  std::size_t most() const { return most_; }
  void set_most(std::size_t most) { most_ = most; }

  // Queues a frame, which is sent when the other side has room. If it cannot be sent, the
  // connection ends, as reading it tells both sides.
  void send(std::string frame) {
    if (out_.empty()) {
      out_ = std::move(frame);
    } else {
      out_ += frame;
    }
    flush();
  }
  bool is_sending() const { return !out_.empty(); }

  // Ends the connection once everything is sent.
  void close() { closing_ = true; }

 private:
  friend class SocketLoop;

  // With this much unsent nothing is read from the connection: a peer that takes no answers may not
  // ask more.
  static constexpr std::size_t kMostUnsent = std::size_t{1} << 20;

  short events() const {
    const int reads = !closing_ && out_.size() < kMostUnsent ? POLLIN | POLLRDHUP : 0;
    const int sends = out_.empty() ? 0 : POLLOUT;
    return static_cast<short>(reads | sends);
  }

  void flush() {
    std::size_t sent = 0;
    while (sent < out_.size()) {
      const Transfer transfer = send_some(socket_, std::string_view(out_).substr(sent));
      if (transfer.error != 0) {
        ::shutdown(socket_.get(), SHUT_RDWR);
        sent = out_.size();
      } else if (transfer.bytes == 0) {
        break;
      }
      sent += transfer.bytes;
    }
    out_.erase(0, sent);
  }

  // Reads a bounded amount, so that no connection keeps the thread from the others. If `events`,
  // poll's, say that the other side has ended, it reads everything, so that the end is noticed in
  // this pass, however much was sent.
  void receive(short events) {
    std::array<char, std::size_t{1} << 16> part;
    const bool all = (events & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
    Transfer got;
    do {
      got = receive_some(socket_, part);
      in_.append(part.data(), got.bytes);
    } while (all && got.bytes > 0);
    if (got.error != 0) ended_ = got.error;
  }

  Descriptor socket_;
  std::size_t most_;
  std::string in_;
  std::string out_;
  int ended_ = 0;  // the errno that says why nothing more comes
  bool closing_ = false;
};

// Serves connections in its own thread: waits for all of them at once, receives their frames, and
// sends.
//
// Threads: any thread may call `wake`, and any but the loop's `join`. The rest belongs to the
// loop's thread, and before it starts to whoever starts it.
class SocketLoop {
 public:
  // Accepts frames of at most `most` bytes.
  explicit SocketLoop(std::size_t most)
      : most_(most), wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    lockstep::detail::check_not_forked();
    check<NetworkError>(!!wake_, "cannot make an eventfd: ", std::strerror(errno));
  }

  // Starts to accept connections, and returns the port: see listen_on.
  std::uint16_t listen(std::uint16_t port) {
    Listener listener = listen_on(port);
    listener_ = std::move(listener.socket);
    return listener.port;
  }

  Connection& add(Descriptor socket) { return connections_.emplace_back(std::move(socket), most_); }

  std::vector<Connection>& connections() { return connections_; }
  Connection* find(int id) {
    const auto found = lockstep::detail::find_if(
        connections_, [id](const Connection& one) { return one.id() == id; });
    return found == connections_.end() ? nullptr : &*found;
  }

  void wake() noexcept {
    const std::uint64_t one = 1;
    // Fails only if the counter is full, and then the thread wakes up anyway.
    [[maybe_unused]] const ssize_t ignored = ::write(wake_.get(), &one, sizeof one);
  }

  // Starts the thread, which serves until `join`. It calls
  //   handler.on_frame(connection, frame)     a BadFrame from it ends the connection
  //   handler.on_end(connection, reason)      it has ended; it is removed afterwards
  //   handler.on_pass()                       after all frames that have come, and after a wake
  //   handler.on_tick()                       after that, every `tick`
  //   handler.on_stop()                       at the end; it may call `finish`
  //   handler.on_failure(error)               if any of this throws; the connections are closed
  // The handler may send to any connection, but neither add nor remove any.
  template <class Handler>
  void start(Handler& handler, std::chrono::milliseconds tick = std::chrono::hours(1)) {
    const auto serve = [this, &handler, tick]() noexcept {
      try {
        run(handler, tick);
        handler.on_stop();
      } catch (const std::exception& error) {
        listener_.reset();
        connections_.clear();
        handler.on_failure(error);
      }
    };
    thread_ = lockstep::detail::start_thread("no thread for sockets", serve);
  }

  // Ends the thread. The handler's destructor must begin with it. In a forked child there is no
  // such thread to wait for.
  void join() {
    if (!thread_.joinable()) return;
    if (lockstep::detail::forked()) return thread_.detach();
    stopped_.store(true, std::memory_order_release);
    wake();
    thread_.join();
  }

  // Ends all connections: sends what is left, shuts down its side, and waits until the others end
  // as well, since a reset connection would lose what was sent. Returns by the deadline.
  void finish(const Deadline& deadline) {
    listener_.reset();
    std::array<char, 4096> ignored;
    while (true) {
      polled_.clear();
      for (Connection& connection : connections_) {
        connection.flush();
        if (!connection.is_sending()) ::shutdown(connection.socket_.get(), SHUT_WR);
        const int out = connection.is_sending() ? POLLOUT : 0;
        polled_.push_back({connection.socket_.get(), static_cast<short>(POLLIN | out), 0});
      }
      if (connections_.empty() || deadline.passed()) break;
      ::poll(polled_.data(), polled_.size(), deadline.poll_timeout());
      for (Connection& connection : connections_) {
        connection.ended_ = receive_some(connection.socket_, ignored).error;
      }
      remove_ended();
    }
    connections_.clear();
  }

 private:
  // How many milliseconds to wait before accepting again when the process has no descriptor left.
  static constexpr int kExhaustedPause = 100;

  // Waits until there is something to do. Accepts connections, and leaves in `polled_` what each
  // connection can do.
  void wait(int timeout) {
    polled_.clear();
    polled_.push_back({wake_.get(), POLLIN, 0});
    polled_.push_back({exhausted_ ? -1 : listener_.get(), POLLIN, 0});
    for (const Connection& connection : connections_) {
      polled_.push_back({connection.socket_.get(), connection.events(), 0});
    }
    if (exhausted_) timeout = std::min(timeout, kExhaustedPause);
    exhausted_ = false;
    if (::poll(polled_.data(), polled_.size(), timeout) < 0) {
      for (pollfd& entry : polled_) entry.revents = 0;
    }
    if (polled_[0].revents != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t ignored = ::read(wake_.get(), &count, sizeof count);
    }
    if (polled_[1].revents != 0) accept_all();
    // Connections that were just accepted were not polled: they are marked as readable.
    polled_.resize(connections_.size() + 2, pollfd{-1, 0, POLLIN});
  }

  template <class Handler>
  void run(Handler& handler, std::chrono::milliseconds tick) {
    Deadline next(tick);
    while (!stopped_.load(std::memory_order_acquire)) {
      wait(next.poll_timeout());
      for (Connection& connection : connections_) serve(connection, handler);
      remove_ended();
      handler.on_pass();
      if (next.passed()) {
        handler.on_tick();
        next = Deadline(tick);
      }
    }
  }

  void accept_all() {
    while (true) {
      Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) {
        exhausted_ = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        if (errno == EINTR || errno == ECONNABORTED) continue;
        return;
      }
      send_at_once(socket);
      add(std::move(socket));
    }
  }

  template <class Handler>
  void serve(Connection& connection, Handler& handler) {
    const auto index = static_cast<std::size_t>(&connection - connections_.data());
    const short events = polled_[index + 2].revents;
    if (events & ~POLLOUT) connection.receive(events);
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

  void remove_ended() {
    std::erase_if(connections_,
                  [](const Connection& connection) { return connection.ended_ != 0; });
  }

  std::size_t most_;
  Descriptor wake_;
  Descriptor listener_;
  bool exhausted_ = false;
  std::atomic<bool> stopped_{false};
  std::vector<Connection> connections_;
  std::vector<pollfd> polled_;
  std::thread thread_;
};

}  // namespace lockstep::distributed::detail
