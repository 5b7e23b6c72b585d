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

LOCKSTEP_INLINE std::string frame_of(const StoreCall& call) {
  FrameWriter frame(call.request);
  frame.number(static_cast<std::uint32_t>(call.keys.size()));
  for (const std::string& key : call.keys) frame.text(key);
  if (call.request == StoreRequest::set) frame.text(call.value);
  if (call.request == StoreRequest::add) frame.number(call.amount);
  return frame.take();
}

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
  if (!greeted) {
    check<BadFrame>(reader.text() == kStoreGreeting, "another greeting");
    reader.end();
    greeted_.push_back(connection.id());
    connection.set_most(kMaxStoreFrame);
    return send(connection, {});
  }
  StoreCall call = read_call(request, reader);
  if (request == StoreRequest::cancel) {
    const auto canceled = std::erase_if(
        waiting_, [&](const Waiting& waiting) { return waiting.connection == connection.id(); });
    if (canceled > 0) connection.send(FrameWriter(StoreReply::late).take());
  } else if (call.waits() && !values_.has_all(call.keys)) {
    waiting_.push_back({connection.id(), std::move(call)});
  } else {
    answer(connection, call);
    if (call.changes()) answer_waiting();
  }
}

LOCKSTEP_INLINE StoreCall TCPStoreServer::read_call(StoreRequest request, FrameReader& reader) {
  check<BadFrame>(request <= StoreRequest::cancel, "an unknown request");
  StoreCall call{request};
  for (std::size_t left = reader.count(); left > 0; --left) call.keys.push_back(reader.text());
  if (request == StoreRequest::set) call.value = reader.text();
  if (request == StoreRequest::add) call.amount = reader.number<std::int64_t>();
  reader.end();
  const bool any = request == StoreRequest::wait || request == StoreRequest::check;
  const bool none = request == StoreRequest::count || request == StoreRequest::cancel;
  check<BadFrame>(any || call.keys.size() == (none ? 0 : 1), "a request of ", call.keys.size(),
                  " keys");
  return call;
}

LOCKSTEP_INLINE void TCPStoreServer::answer(Connection& connection, const StoreCall& call) {
  try {
    send(connection, values_.answer(call));
  } catch (const ValueError& error) {
    connection.send(FrameWriter(StoreReply::invalid).text(error.what()).take());
  }
}

LOCKSTEP_INLINE void TCPStoreServer::send(Connection& connection, const StoreAnswer& answer) {
  connection.send(FrameWriter(StoreReply::done).text(answer.value).number(answer.number).take());
}

LOCKSTEP_INLINE void TCPStoreServer::answer_waiting() {
  std::erase_if(waiting_, [this](const Waiting& waiting) {
    if (!values_.has_all(waiting.call.keys)) return false;
    answer(*loop_.find(waiting.connection), waiting.call);  // `on_end` forgets what waits
    return true;
  });
}

LOCKSTEP_INLINE void TCPStoreServer::on_end(Connection& connection, const std::string&) {
  std::erase(greeted_, connection.id());
  std::erase_if(waiting_,
                [&](const Waiting& waiting) { return waiting.connection == connection.id(); });
}

}  // namespace lockstep::distributed::detail
