// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/socket/socket_frame.hpp>
#include <lockstep/distributed/socket/socket_loop.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/distributed/store/store_values.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace lockstep::distributed::detail {

// What a client says to the server: `hello` with kStoreGreeting, which comes first on each
// connection, then calls (frame_of). `get` and `wait` are answered when all their keys are there,
// however long that takes, or with `late` at a `cancel`, which has no answer of its own.
//
// An answer is a state; after it the value and the number if it is `done`, a text if `invalid`.
enum class StoreReply : std::uint8_t { done, invalid, late };

inline constexpr std::string_view kStoreGreeting = "lockstep store 1";
inline constexpr std::size_t kMaxStoreFrame = (std::size_t{8} << 10) + (std::size_t{8} << 20) + 64;
static_assert(kMaxStoreFrame >= Store::kMaxKey + Store::kMaxValue + 64);

std::string frame_of(const StoreCall& call);

// The side of a TCPStore that keeps the values.
//
// Whoever connects and does not speak the protocol is disconnected, and harms nobody else. There is
// no secrecy: whoever can reach the port may read and write.
//
// Threads: a thread of its own serves all clients; it owns everything but `loop_`'s stop, and ends
// in the destructor.
class TCPStoreServer {
 public:
  explicit TCPStoreServer(std::uint16_t port);
  TCPStoreServer(const TCPStoreServer&) = delete;
  TCPStoreServer& operator=(const TCPStoreServer&) = delete;
  ~TCPStoreServer();

  std::uint16_t port() const { return port_; }

 private:
  friend class SocketLoop;

  static constexpr std::size_t kMaxGreeting = 64;

  // A `get` or `wait` that is not answered yet.
  struct Waiting {
    int connection;
    StoreCall call;
  };

  void run() noexcept;

  void on_frame(Connection& connection, std::string_view frame);

  // Reads the rest of a frame after its request. Throws BadFrame for what is no call.
  static StoreCall read_call(StoreRequest request, FrameReader& reader);

  void answer(Connection& connection, const StoreCall& call);
  static void send(Connection& connection, const StoreAnswer& answer);

  // Answers the calls whose keys have all come. Called at each change: the next call may delete
  // them.
  void answer_waiting();

  void on_end(Connection& connection, const std::string&);
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

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/store/impl/tcp_store_server.ipp>
#endif
