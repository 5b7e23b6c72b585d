// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/distributed/socket_loop.hpp>
#include <lockstep/distributed/store.hpp>
#include <lockstep/distributed/store_values.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

// What a client asks of the server. The arguments follow as texts (keys after their number), the
// amount of `add` as 64 bits. `hello` comes first on each connection, with kStoreGreeting.
enum class StoreRequest : std::uint8_t { hello, set, get, wait, check, add, erase, count, cancel };

// The answer: a state; a text after it where a value was asked for or something is wrong, 64 bits
// where a number was. `get` and `wait` are answered when all their keys are there, however long
// that takes, or with `late` at a `cancel`, which has no answer of its own.
enum class StoreReply : std::uint8_t { done, invalid, late };

inline constexpr std::string_view kStoreGreeting = "lockstep store 1";
inline constexpr std::size_t kMaxStoreFrame = (std::size_t{8} << 10) + (std::size_t{8} << 20) + 64;
static_assert(kMaxStoreFrame >= Store::kMaxKey + Store::kMaxValue + 64);

// The side of a TCPStore that keeps the values.
//
// Whoever connects and does not speak the protocol is disconnected, and harms nobody else. There is
// no secrecy: whoever can reach the port may read and write.
//
// Threads: a thread of its own serves all clients; it owns everything but `loop_`'s stop, and ends
// in the destructor.
class TCPStoreServer {
 public:
  explicit TCPStoreServer(std::uint16_t port) : loop_(kMaxGreeting) {
    lockstep::detail::check_not_forked();
    Listener listener = listen_on(port);
    port_ = listener.port;
    loop_.listen(std::move(listener.socket));
    thread_ = std::thread([this] { run(); });
  }
  TCPStoreServer(const TCPStoreServer&) = delete;
  TCPStoreServer& operator=(const TCPStoreServer&) = delete;
  ~TCPStoreServer() {
    // In a forked child there is no such thread.
    if (lockstep::detail::forked()) {
      thread_.detach();
      return;
    }
    loop_.stop();
    thread_.join();
  }

  std::uint16_t port() const { return port_; }

 private:
  friend class SocketLoop;

  static constexpr std::size_t kMaxGreeting = 64;

  // A `get` or `wait` that is not answered yet.
  struct Waiting {
    int connection;
    std::vector<std::string> keys;
    bool wants_value;
  };

  void run() noexcept {
    try {
      loop_.run(*this);
    } catch (const std::exception&) {
      // Out of memory: the clients find their connections closed.
      loop_.connections().clear();
    }
  }

  void on_frame(Connection& connection, std::string_view frame) {
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

  void answer(Connection& connection, StoreRequest request, FrameReader& reader) {
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
      case StoreRequest::wait:
        waiting_.push_back({connection.id(), keys(reader), request == StoreRequest::get});
        reader.end();
        return answer_waiting();
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
        const auto canceled = std::erase_if(waiting_, [&](const Waiting& waiting) {
          return waiting.connection == connection.id();
        });
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

  static std::vector<std::string> keys(FrameReader& reader) {
    std::vector<std::string> all;
    for (std::size_t left = reader.count(); left > 0; --left) all.push_back(reader.text());
    return all;
  }

  // Answers those whose keys have all come. At once: the next request may take them away again.
  void answer_waiting() {
    std::erase_if(waiting_, [this](const Waiting& waiting) {
      if (!values_.has_all(waiting.keys)) return false;
      Connection& connection = *loop_.find(waiting.connection);  // `on_end` has not come
      FrameWriter reply(StoreReply::done);
      if (waiting.wants_value) reply.text(*values_.find(waiting.keys.front()));
      connection.send(reply.take());
      return true;
    });
  }

  void on_end(Connection& connection, const std::string&) {
    std::erase(greeted_, connection.id());
    std::erase_if(waiting_,
                  [&](const Waiting& waiting) { return waiting.connection == connection.id(); });
  }
  void on_pass() {}
  void on_tick() {}

  SocketLoop loop_;
  std::uint16_t port_ = 0;
  StoreValues values_;
  std::vector<int> greeted_;
  std::vector<Waiting> waiting_;
  std::thread thread_;  // runs `run` until `loop_` is stopped
};

}  // namespace lockstep::distributed::detail
