// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/distributed/socket/socket.hpp>
#include <lockstep/distributed/socket/socket_loop.hpp>
#include <lockstep/distributed/store/tcp_store_server.hpp>
#include <lockstep/error.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE TCPStoreServer::TCPStoreServer(std::uint16_t port) : loop_(kMaxGreeting) {
  lockstep::detail::check_not_forked();
  Listener listener = listen_on(port);
  port_ = listener.port;
  loop_.listen(std::move(listener.socket));
  thread_ = std::thread([this] { run(); });
}

LOCKSTEP_INLINE TCPStoreServer::~TCPStoreServer() {
  // In a forked child there is no such thread.
  if (lockstep::detail::forked()) {
    thread_.detach();
    return;
  }
  loop_.stop();
  thread_.join();
}

LOCKSTEP_INLINE void TCPStoreServer::run() noexcept {
  try {
    loop_.run(*this);
  } catch (const std::exception&) {
    // Out of memory: the clients find their connections closed.
    loop_.connections().clear();
  }
}

LOCKSTEP_INLINE void TCPStoreServer::on_frame(Connection& connection, std::string_view frame) {
  FrameReader reader(frame);
  const auto request = static_cast<StoreRequest>(reader.number<std::uint8_t>());
  const bool greeted =
      std::find(greeted_.begin(), greeted_.end(), connection.id()) != greeted_.end();
  check<BadFrame>(greeted == (request != StoreRequest::hello), "no greeting");
  try {
    answer(connection, request, reader);
  } catch (const ValueError& error) {
    connection.send(FrameWriter(StoreReply::invalid).text(error.what()).take());
  }
}

LOCKSTEP_INLINE void TCPStoreServer::answer(Connection& connection, StoreRequest request,
                                            FrameReader& reader) {
  FrameWriter reply(StoreReply::done);
  switch (request) {
    case StoreRequest::hello:
      check<BadFrame>(reader.text() == kStoreGreeting, "another greeting");
      greeted_.push_back(connection.id());
      connection.set_most(kMaxStoreFrame);
      break;
    case StoreRequest::set: {
      const std::string key = reader.text();
      values_.set(key, reader.text());
      break;
    }
    case StoreRequest::get:
    case StoreRequest::wait: {
      const bool wants_value = request == StoreRequest::get;
      std::vector<std::string> awaited = keys(reader);
      reader.end();
      check<BadFrame>(!wants_value || awaited.size() == 1, "a value of not one key");
      waiting_.push_back({connection.id(), std::move(awaited), wants_value});
      return answer_waiting();
    }
    case StoreRequest::check:
      reply.number<std::int64_t>(values_.has_all(keys(reader)));
      break;
    case StoreRequest::add: {
      const std::string key = reader.text();
      reply.number(values_.add(key, reader.number<std::int64_t>()));
      break;
    }
    case StoreRequest::erase:
      reply.number<std::int64_t>(values_.erase(reader.text()));
      break;
    case StoreRequest::count:
      reply.number(values_.size());
      break;
    case StoreRequest::cancel: {
      reader.end();
      const auto canceled = std::erase_if(
          waiting_, [&](const Waiting& waiting) { return waiting.connection == connection.id(); });
      if (canceled > 0) connection.send(FrameWriter(StoreReply::late).take());
      return;
    }
    default:
      lockstep::detail::fail<BadFrame>("an unknown request");
  }
  reader.end();
  connection.send(reply.take());
  if (request == StoreRequest::set || request == StoreRequest::add) answer_waiting();
}

LOCKSTEP_INLINE std::vector<std::string> TCPStoreServer::keys(FrameReader& reader) {
  std::vector<std::string> all;
  for (std::size_t left = reader.count(); left > 0; --left) all.push_back(reader.text());
  return all;
}

LOCKSTEP_INLINE void TCPStoreServer::answer_waiting() {
  std::erase_if(waiting_, [this](const Waiting& waiting) {
    if (!values_.has_all(waiting.keys)) return false;
    // there, since `on_end` forgets what waits
    Connection& connection = *loop_.find(waiting.connection);
    FrameWriter reply(StoreReply::done);
    if (waiting.wants_value) reply.text(*values_.find(waiting.keys.front()));
    connection.send(reply.take());
    return true;
  });
}

LOCKSTEP_INLINE void TCPStoreServer::on_end(Connection& connection, const std::string&) {
  std::erase(greeted_, connection.id());
  std::erase_if(waiting_,
                [&](const Waiting& waiting) { return waiting.connection == connection.id(); });
}

}  // namespace lockstep::distributed::detail
