// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/socket/socket.hpp>
#include <lockstep/distributed/socket/socket_frame.hpp>
#include <lockstep/distributed/store/tcp_store.hpp>
#include <lockstep/distributed/store/tcp_store_server.hpp>
#include <lockstep/distributed/watchdog/watchdog_options.hpp>
#include <lockstep/distributed/watchdog/watchdog_protocol.hpp>
#include <lockstep/distributed/watchdog/watchdog_server.hpp>
#include <lockstep/error.hpp>

#include "fuzz.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

// Strangers at the ports of a run: what they send to a store's server or to rank 0's watchdog ends
// their connection at most; and a store's client that has reached a stranger throws.
namespace {

using namespace lockstep::distributed;
using lockstep::fuzz::Choice;
using lockstep::fuzz::give_up;

detail::Deadline soon() { return detail::Deadline(std::chrono::seconds(20)); }

// Each line, without its end, is a frame whose length is right; a line that begins with ! is sent
// as it is.
std::string frames_of(std::string_view text) {
  std::string frames;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (!line.starts_with('!')) {
      const auto size = static_cast<std::uint32_t>(line.size());
      for (int i = 0; i < 4; ++i) frames.push_back(static_cast<char>(size >> (8 * i)));
    }
    frames += line.starts_with('!') ? line.substr(1) : line;
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return frames;
}

// Says it, says no more, and waits until the other side has ended the connection.
void talk(std::uint16_t port, const std::string& bytes) {
  const detail::Descriptor socket = detail::connect_to("localhost", port, soon());
  (void)detail::send_all(socket, bytes, soon());
  ::shutdown(socket.get(), SHUT_WR);
  std::array<char, 256> answer;
  while (true) {
    const auto got = ::recv(socket.get(), answer.data(), answer.size(), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN)) return;
    if (got < 0 && !detail::await(socket, POLLIN, soon())) give_up("the server does not answer");
  }
}

void to_store(std::string_view text) {
  static TCPStore store("localhost", {.port = 0, .is_server = true});
  const std::string hello =
      detail::FrameWriter(detail::StoreRequest::hello).text(detail::kStoreGreeting).take();
  talk(store.port(), hello + frames_of(text));
  store.set("own", "value");
  if (store.get("own") != "value") give_up("the store lost a value");
}

void to_watchdog(std::string_view text) {
  constexpr std::uint64_t kToken = 7;
  detail::WatchdogServer server(3, kToken, std::chrono::minutes(1), WatchdogOptions{});
  const std::string hello = detail::FrameWriter(detail::ToServer::hello)
                                .number(kToken)
                                .number(std::int32_t{1})
                                .number(std::int32_t{3})
                                .take();
  talk(server.port(), hello + frames_of(text));
}

void from_stranger(std::string_view text) {
  detail::Listener listener = detail::listen_on(0);
  const std::string bytes(text);
  std::thread stranger([&] {
    if (!detail::await(listener.socket, POLLIN, soon())) return;
    const detail::Descriptor client(::accept4(listener.socket.get(), nullptr, nullptr, 0));
    (void)detail::send_all(client, bytes, soon());
  });
  try {
    TCPStore store("localhost", {.port = listener.port, .timeout = std::chrono::seconds(20)});
    (void)store.get("key");
  } catch (const lockstep::Error&) {
  }
  stranger.join();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const Choice chosen(bytes, size);
  switch (chosen.number % 3) {
    case 0:
      to_store(chosen.rest);
      break;
    case 1:
      to_watchdog(chosen.rest);
      break;
    default:
      from_stranger(chosen.rest);
  }
  return 0;
}
