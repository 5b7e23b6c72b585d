// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/socket/socket_frame.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/distributed/store/tcp_store.hpp>
#include <lockstep/distributed/store/tcp_store_server.hpp>
#include <lockstep/error.hpp>

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace lockstep::distributed {

LOCKSTEP_INLINE TCPStore::TCPStore(std::string host, const TCPStoreOptions& options)
    : Store(options.timeout), host_(std::move(host)), port_(options.port) {
  lockstep::check<ValueError>(!host_.empty(), "TCPStore: the host's name is empty");
  lockstep::check<ValueError>(options.is_server || port_ != 0,
                              "TCPStore: a client must be told the port");
  if (options.is_server) {
    server_ = std::make_unique<detail::TCPStoreServer>(options.port);
    port_ = server_->port();
  }
  const detail::Deadline deadline(options.timeout);
  keep(connect(deadline, detail::ConnectAttempts::until_deadline));
}

LOCKSTEP_INLINE TCPStore::~TCPStore() = default;

LOCKSTEP_INLINE detail::StoreAnswer TCPStore::answer(detail::StoreCall call,
                                                     const detail::Deadline& deadline) {
  const std::string request = detail::frame_of(call);
  lockstep::check<ValueError>(request.size() <= detail::kMaxStoreFrame, name(),
                              ": too many keys at once: ", request.size(), " bytes");
  detail::Descriptor connection = take(deadline);
  const std::string reply = converse(connection, request, deadline, call.waits());
  keep(std::move(connection));
  detail::FrameReader reader(reply);
  const auto state = static_cast<detail::StoreReply>(reader.number<std::uint8_t>());
  if (state == detail::StoreReply::late) fail_late(call.keys, deadline);
  detail::StoreAnswer result{.value = reader.text()};
  if (state != detail::StoreReply::done) throw ValueError(result.value);
  result.number = reader.number<std::int64_t>();
  return result;
}

LOCKSTEP_INLINE std::string TCPStore::converse(const detail::Descriptor& connection,
                                               const std::string& request,
                                               const detail::Deadline& deadline, bool waits) const {
  int error = detail::send_all(connection, request, answer_by(deadline));
  if (error == 0 && waits && !detail::await(connection, POLLIN, deadline)) {
    error = detail::send_all(connection, detail::frame_of({detail::StoreRequest::cancel}),
                             answer_by(deadline));
  }
  std::string reply;
  if (error == 0) {
    error = detail::receive_frame(connection, reply, detail::kMaxStoreFrame, answer_by(deadline));
  }
  if (error == 0 && reply.empty()) error = EPROTO;
  lockstep::check<StoreError>(
      error == 0, name(),
      error == ETIMEDOUT
          ? " does not answer"
          : ": the connection was lost, as when the process that has the server ends",
      ": ", std::strerror(error));
  return reply;
}

LOCKSTEP_INLINE detail::Deadline TCPStore::answer_by(const detail::Deadline& deadline) {
  constexpr std::chrono::milliseconds kLeast{5000};
  return detail::Deadline(std::max(kLeast, std::chrono::milliseconds(deadline.poll_timeout())));
}

LOCKSTEP_INLINE detail::Descriptor TCPStore::connect(const detail::Deadline& deadline,
                                                     detail::ConnectAttempts attempts) const {
  // The server in the same process is reached whatever the host is called, and without the name
  // localhost, which some containers lack.
  detail::Descriptor connection =
      detail::connect_to(server_ ? "127.0.0.1" : host_, port_, deadline, attempts);
  converse(connection,
           detail::FrameWriter(detail::StoreRequest::hello).text(detail::kStoreGreeting).take(),
           deadline, false);
  return connection;
}

LOCKSTEP_INLINE detail::Descriptor TCPStore::take(const detail::Deadline& deadline) {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      detail::Descriptor connection = std::move(idle_.back());
      idle_.pop_back();
      return connection;
    }
  }
  return connect(answer_by(deadline), detail::ConnectAttempts::once);
}

LOCKSTEP_INLINE void TCPStore::keep(detail::Descriptor connection) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(connection));
}

}  // namespace lockstep::distributed
