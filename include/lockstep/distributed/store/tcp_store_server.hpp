// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/socket/socket.hpp>
#include <lockstep/distributed/socket/socket_frame.hpp>
#include <lockstep/distributed/socket/socket_loop.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/distributed/store/store_values.hpp>
#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

// A client sends `hello` with kStoreGreeting first on each connection, then calls (frame_of). `get`
// and `wait` are answered when all their keys have values, however long that takes, or with `late`
// at a `cancel`, which has no answer of its own.
//
// An answer is one of these, followed by the value and the number for `done`, and by a text for
// `invalid`.
enum class StoreReply : std::uint8_t { done, invalid, late };

inline constexpr std::string_view kStoreGreeting = "lockstep store 1";
inline constexpr std::size_t kMaxStoreFrame = Store::kMaxKey + Store::kMaxValue + 64;

// The side of a TCPStore that keeps the values.
//
// It disconnects whoever does not speak the protocol. There is no access control: whoever can reach
// the port may read and write.
//
// Threads: the loop's thread serves all clients and owns everything; it ends in the destructor.
class TCPStoreServer : lockstep::detail::NonCopyable {
 public:
  explicit TCPStoreServer(std::uint16_t port) : loop_(kMaxGreeting), port_(loop_.listen(port)) {
    loop_.start(*this);
  }
  ~TCPStoreServer() { loop_.join(); }

  std::uint16_t port() const { return port_; }

 private:
  friend class SocketLoop;

  static constexpr std::size_t kMaxGreeting = 64;

  // A `get` or `wait` that is not answered yet.
  struct Waiting {
    int connection;
    StoreCall call;
  };

  void on_frame(Connection& connection, std::string_view frame) {
    FrameReader reader(frame);
    const auto request = static_cast<StoreRequest>(reader.number<std::uint8_t>());
    const bool greeted = connection.most() == kMaxStoreFrame;
    check<BadFrame>(greeted == (request != StoreRequest::hello), "no greeting");
    if (!greeted) {
      check<BadFrame>(reader.text() == kStoreGreeting, "another greeting");
      reader.end();
      connection.set_most(kMaxStoreFrame);
      return send(connection, {});
    }
    check<BadFrame>(request <= StoreRequest::cancel, "an unknown request");
    StoreCall call = read_call(request, reader);
    if (request == StoreRequest::cancel) {
      if (forget(connection) > 0) connection.send(FrameWriter(StoreReply::late).take());
    } else if (call.waits() && !values_.has_all(call.keys)) {
      waiting_.push_back({connection.id(), std::move(call)});
    } else {
      answer(connection, call);
      if (call.changes()) answer_waiting();
    }
  }

  void answer(Connection& connection, const StoreCall& call) {
    try {
      send(connection, values_.answer(call));
    } catch (const ValueError& error) {
      connection.send(FrameWriter(StoreReply::invalid).text(error.what()).take());
    }
  }
  static void send(Connection& connection, const StoreAnswer& answer) {
    connection.send(FrameWriter(StoreReply::done).text(answer.value).number(answer.number).take());
  }

  // Answers the calls whose keys all have values now. Called at each change, since the next call
  // may delete them.
  void answer_waiting() {
    std::erase_if(waiting_, [this](const Waiting& waiting) {
      if (!values_.has_all(waiting.call.keys)) return false;
      answer(*loop_.find(waiting.connection), waiting.call);  // else `on_end` has dropped it
      return true;
    });
  }

  // Drops what the connection waits for, and returns the number of calls.
  std::size_t forget(const Connection& connection) {
    return std::erase_if(
        waiting_, [&](const Waiting& waiting) { return waiting.connection == connection.id(); });
  }

  void on_end(Connection& connection, const std::string&) { forget(connection); }
  void on_pass() {}
  void on_tick() {}
  void on_stop() {}
  // Out of memory: the clients' connections are closed.
  void on_failure(const std::exception&) {}

  SocketLoop loop_;
  const std::uint16_t port_;
  StoreValues values_;
  std::vector<Waiting> waiting_;
};

}  // namespace lockstep::distributed::detail
