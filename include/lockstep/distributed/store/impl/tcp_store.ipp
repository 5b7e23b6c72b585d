// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/socket/socket.hpp>
#include <lockstep/distributed/socket/socket_frame.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/distributed/store/store_values.hpp>
#include <lockstep/distributed/store/tcp_store.hpp>
#include <lockstep/distributed/store/tcp_store_server.hpp>
#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

// The client side of a TCPStore; in the server's process it owns the server, too.
//
// Threads: any thread may call any member. Each call has a connection to itself.
class TCPStoreClient : lockstep::detail::NonCopyable {
 public:
  TCPStoreClient(std::string host, std::uint16_t port, bool is_server, const Deadline& deadline)
      : host_(std::move(host)), port_(port) {
    check<ValueError>(!host_.empty(), "TCPStore: the host's name is empty");
    check<ValueError>(is_server || port != 0, "TCPStore: a client must be told the port");
    if (is_server) {
      server_ = std::make_unique<TCPStoreServer>(port);
      port_ = server_->port();
    }
    keep(connect(deadline, ConnectAttempts::until_deadline));
  }

  const std::string& host() const { return host_; }
  std::uint16_t port() const { return port_; }
  std::string name() const { return "TCPStore at " + endpoint(host_, port_); }

  // Nothing if the keys that the call waits for have no values by the deadline.
  std::optional<StoreAnswer> answer(const StoreCall& call, const Deadline& deadline) {
    const std::string request = frame_of(call);
    check<ValueError>(request.size() <= kMaxStoreFrame, name(),
                      ": too many keys at once: ", request.size(), " bytes");
    Descriptor connection = take(deadline);
    const std::string reply = converse(connection, request, deadline, call.waits());
    keep(std::move(connection));
    FrameReader reader(reply);
    const auto state = static_cast<StoreReply>(reader.number<std::uint8_t>());
    if (state == StoreReply::late) return std::nullopt;
    StoreAnswer result{.value = reader.text()};
    if (state != StoreReply::done) throw ValueError(result.value);
    result.number = reader.number<std::int64_t>();
    return result;
  }

 private:
  // Sends a request and returns the reply. If anything fails the connection is not used again: a
  // late reply must not be taken for the next request's.
  std::string converse(const Descriptor& connection, const std::string& request,
                       const Deadline& deadline, bool waits, bool greets = false) const {
    int error = send_all(connection, request, answer_by(deadline));
    if (error == 0 && waits && !await(connection, POLLIN, deadline)) {
      error = send_all(connection, frame_of({StoreRequest::cancel}), answer_by(deadline));
    }
    std::string reply;
    if (error == 0) {
      error = receive_frame(connection, reply, kMaxStoreFrame, answer_by(deadline));
    }
    if (error == 0 && reply.empty()) error = EPROTO;
    check<StoreError>(
        error == 0, name(),
        error == ETIMEDOUT ? " does not answer"
        : greets
            ? ": what listens there has refused the connection: it is not a TCPStore, or one of "
              "another version of lockstep, or has just ended"
            : ": the connection was lost, as when the process that has the server ends",
        ": ", std::strerror(error));
    return reply;
  }

  // When the server must have answered: at the call's deadline, but at least five seconds from now,
  // since the deadline is for the keys that the call waits for.
  static Deadline answer_by(const Deadline& deadline) {
    constexpr std::chrono::milliseconds kLeast{5000};
    return Deadline(std::max(kLeast, std::chrono::milliseconds(deadline.poll_timeout())));
  }

  Descriptor connect(const Deadline& deadline, ConnectAttempts attempts) const {
    // A server in the same process is reached by number, whatever the host is called: some
    // containers do not know the name localhost.
    Descriptor connection = connect_to(server_ ? "127.0.0.1" : host_, port_, deadline, attempts);
    converse(connection, FrameWriter(StoreRequest::hello).text(kStoreGreeting).take(), deadline,
             false, true);
    return connection;
  }

  // Returns an idle connection or a new one; `keep` makes one idle.
  Descriptor take(const Deadline& deadline) {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        Descriptor connection = std::move(idle_.back());
        idle_.pop_back();
        return connection;
      }
    }
    return connect(answer_by(deadline), ConnectAttempts::once);
  }
  void keep(Descriptor connection) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(connection));
  }

  const std::string host_;
  std::uint16_t port_;
  std::unique_ptr<TCPStoreServer> server_;
  std::mutex mutex_;  // guards idle_
  std::vector<Descriptor> idle_;
};

}  // namespace lockstep::distributed::detail

namespace lockstep::distributed {

LOCKSTEP_INLINE TCPStore::TCPStore(std::string host, const TCPStoreOptions& options)
    : Store(options.timeout),
      client_(std::make_unique<detail::TCPStoreClient>(
          std::move(host), options.port, options.is_server, detail::Deadline(options.timeout))) {}

LOCKSTEP_INLINE TCPStore::~TCPStore() = default;

LOCKSTEP_INLINE const std::string& TCPStore::host() const { return client_->host(); }

LOCKSTEP_INLINE std::uint16_t TCPStore::port() const { return client_->port(); }

LOCKSTEP_INLINE std::string TCPStore::name() const { return client_->name(); }

LOCKSTEP_INLINE std::optional<detail::StoreAnswer> TCPStore::answer(
    const detail::StoreCall& call, const detail::Deadline& deadline) {
  return client_->answer(call, deadline);
}

}  // namespace lockstep::distributed
