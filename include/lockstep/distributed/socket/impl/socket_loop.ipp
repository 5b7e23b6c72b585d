// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/socket/socket.hpp>
#include <lockstep/distributed/socket/socket_loop.hpp>

#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE void Connection::send(std::string frame) {
  if (out_.empty()) {
    out_ = std::move(frame);
  } else {
    out_ += frame;
  }
  flush();
}

LOCKSTEP_INLINE short Connection::events() const {
  const bool reads = !closing_ && out_.size() < kMostUnsent;
  return static_cast<short>((reads ? POLLIN : 0) | (out_.empty() ? 0 : POLLOUT));
}

LOCKSTEP_INLINE void Connection::flush() {
  std::size_t sent = 0;
  while (sent < out_.size()) {
    const Transfer transfer = send_some(socket_, std::string_view(out_).substr(sent));
    if (transfer.error != 0) {
      sent = out_.size();
    } else if (transfer.bytes == 0) {
      break;
    }
    sent += transfer.bytes;
  }
  out_.erase(0, sent);
}

LOCKSTEP_INLINE void Connection::receive() {
  std::array<char, std::size_t{1} << 16> part;
  const Transfer got = receive_some(socket_, part);
  in_.append(part.data(), got.bytes);
  if (got.error != 0) ended_ = got.error;
}

LOCKSTEP_INLINE SocketLoop::SocketLoop(std::size_t most)
    : most_(most), wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  check<NetworkError>(!!wake_, "cannot make an eventfd: ", std::strerror(errno));
}

LOCKSTEP_INLINE Connection& SocketLoop::add(Descriptor socket) {
  return connections_.emplace_back(next_id_++, std::move(socket), most_);
}

LOCKSTEP_INLINE Connection* SocketLoop::find(int id) {
  const auto found = std::find_if(connections_.begin(), connections_.end(),
                                  [id](const Connection& one) { return one.id() == id; });
  return found == connections_.end() ? nullptr : &*found;
}

LOCKSTEP_INLINE void SocketLoop::wake() noexcept {
  const std::uint64_t one = 1;
  // Can only fail if the counter is full, and then the thread wakes up anyway.
  [[maybe_unused]] const ssize_t ignored = ::write(wake_.get(), &one, sizeof one);
}

LOCKSTEP_INLINE void SocketLoop::stop() noexcept {
  stopped_.store(true, std::memory_order_release);
  wake();
}

LOCKSTEP_INLINE void SocketLoop::finish(const Deadline& deadline) {
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

LOCKSTEP_INLINE void SocketLoop::wait(int timeout) {
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

LOCKSTEP_INLINE void SocketLoop::accept_all() {
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

LOCKSTEP_INLINE void SocketLoop::remove_ended() {
  std::erase_if(connections_, [](const Connection& connection) { return connection.ended_ != 0; });
}

}  // namespace lockstep::distributed::detail
