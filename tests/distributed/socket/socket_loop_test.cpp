// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/socket/socket.hpp>
#include <lockstep/distributed/socket/socket_frame.hpp>
#include <lockstep/distributed/socket/socket_loop.hpp>

#include <gtest/gtest.h>

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {
namespace socket_loop_test {

enum class Message : std::uint8_t { hold, other };

// Notes what comes to it, pass by pass. `hold` keeps the loop until it may go on.
struct Notes {
  void on_frame(Connection&, std::string_view bytes) {
    if (static_cast<Message>(FrameReader(bytes).number<std::uint8_t>()) == Message::hold) {
      held = true;
      held.notify_all();
      go_on.wait(false);
    } else {
      ++frames;
    }
  }
  void on_end(Connection&, const std::string& /*reason*/) { ++ends; }
  void on_pass() {
    if (ends > 0 && first_ends == 0) {
      first_ends = ends;
      frames_by_then = frames;
      ended = true;
      ended.notify_all();
    }
  }
  void on_tick() {}
  void on_stop() {}
  void on_failure(const std::exception&) {}

  std::atomic<bool> held{false};
  std::atomic<bool> go_on{false};
  std::atomic<bool> ended{false};
  int frames = 0;  // the loop's thread's, as all below
  int ends = 0;
  int first_ends = 0;  // of the first pass that had any
  int frames_by_then = 0;
};

// Both ends of a connection within the process, whose other side sees at once what one has done.
std::array<Descriptor, 2> connected() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

void send(const Descriptor& socket, Message message, int times = 1) {
  std::string frames;
  for (int i = 0; i < times; ++i) frames += FrameWriter(message).take();
  EXPECT_EQ(send_some(socket, frames).bytes, frames.size());
}

// However much those had sent who have ended by then: a watchdog names them together.
TEST(SocketLoop, WhoHasEndedBeforeAPassHasEndedInIt) {
  constexpr int kMany = 20000;  // several parts of what is read at once
  Notes notes;
  auto [holder, holds] = connected();
  auto [silent, ends] = connected();
  auto [talking, talks] = connected();
  SocketLoop loop(16);
  loop.add(std::move(holds));
  loop.add(std::move(talks));
  loop.add(std::move(ends));
  loop.start(notes);
  send(holder, Message::hold);
  notes.held.wait(false);
  send(talking, Message::other, kMany);
  talking.reset();
  silent.reset();
  notes.go_on = true;
  notes.go_on.notify_all();
  notes.ended.wait(false);
  loop.join();
  EXPECT_EQ(notes.first_ends, 2);
  EXPECT_EQ(notes.frames_by_then, kMany);
}

}  // namespace socket_loop_test
}  // namespace lockstep::distributed::detail
