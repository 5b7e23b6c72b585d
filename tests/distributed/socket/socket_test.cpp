// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/socket/socket.hpp>
#include <lockstep/distributed/socket/socket_loop.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <string>
#include <string_view>

#include "support/expect_error.hpp"
#include "support/failing_calls_walk.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace lockstep::distributed {
namespace socket_test {

using namespace std::chrono_literals;
using detail::ConnectAttempts;
using detail::Deadline;
using detail::Descriptor;
using testing::CallKind;
using testing::FailingCalls;
using testing::throws;

const Deadline kPatience(5min);

struct Pair {
  Descriptor here;
  Descriptor there;
  Pair() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    here = Descriptor(ends[0]);
    there = Descriptor(ends[1]);
  }
};

TEST(Socket, ACallThatIsInterruptedIsMadeAgainAndAnyOtherFailureIsTold) {
  LOCKSTEP_NEEDS_FAILING_CALLS();
  const Pair pair;
  std::string got(2, '\0');
  {
    const FailingCalls failing(CallKind::socket, 1, false, EINTR);
    EXPECT_EQ(detail::send_some(pair.here, "ab").bytes, 2U);
    EXPECT_TRUE(FailingCalls::has_struck());
  }
  {
    const FailingCalls failing(CallKind::socket, 1, false, EINTR);
    EXPECT_EQ(detail::receive_some(pair.there, got).bytes, 2U);
    EXPECT_EQ(got, "ab");
  }
  errno = EIO;  // of whatever came before
  EXPECT_EQ(detail::send_some(pair.here, "").error, 0);
  const FailingCalls failing(CallKind::socket, 1, true, EIO);
  EXPECT_EQ(detail::send_some(pair.here, "ab").error, EIO);
  EXPECT_EQ(detail::receive_some(pair.there, got).error, EIO);
}

TEST(Socket, WhoWaitsForTheOtherSideWaitsUntilTheDeadline) {
  const Pair pair;
  std::string bytes(std::size_t{1} << 24, 'x');  // more than there is room for
  EXPECT_EQ(detail::receive_all(pair.here, bytes, Deadline(0ms)), ETIMEDOUT);
  EXPECT_EQ(detail::send_all(pair.here, bytes, Deadline(0ms)), ETIMEDOUT);
}

TEST(Socket, WhatIsNotConnectedIsNotTakenForConnected) {
  LOCKSTEP_NEEDS_FAILING_CALLS();
  const detail::Listener listener = detail::listen_on(0);
  const auto connect = [&] {
    detail::connect_to("127.0.0.1", listener.port, kPatience, ConnectAttempts::once);
  };
  EXPECT_NO_THROW(connect());
  const FailingCalls failing(CallKind::socket, 2, false,
                             EHOSTUNREACH);  // the first makes the socket
  EXPECT_TRUE(throws<NetworkError>(connect, "No route to host"));
}

TEST(Socket, ListensByAllThatTheMachineHas) {
  const detail::Listener listener = detail::listen_on(0);
  const auto connect = [&](const char* host) {
    detail::connect_to(host, listener.port, kPatience, ConnectAttempts::once);
  };
  EXPECT_NO_THROW(connect("127.0.0.1"));
  sockaddr_in6 loopback{};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  const Descriptor six(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (six && ::bind(six.get(), reinterpret_cast<sockaddr*>(&loopback), sizeof loopback) == 0) {
    EXPECT_NO_THROW(connect("::1"));
  }
}

TEST(Socket, WhyAHostIsNotKnownIsSaid) {
  std::string error;
  EXPECT_EQ(detail::resolve("fe80::1%nosuch", 1, error), nullptr);
  EXPECT_EQ(error, ::gai_strerror(EAI_NONAME));
}

// Ends its loop's connections, and waits for the other sides.
struct Finishes {
  detail::SocketLoop& loop;
  void on_frame(detail::Connection&, std::string_view) {}
  void on_end(detail::Connection&, const std::string&) {}
  void on_pass() {}
  void on_tick() {}
  void on_stop() { loop.finish(kPatience); }
  void on_failure(const std::exception&) {}
};

TEST(SocketLoop, NobodyIsAcceptedWhileItEnds) {
  detail::SocketLoop loop(64);
  Finishes handler{loop};
  const std::uint16_t port = loop.listen(0);
  loop.start(handler);
  Descriptor first = detail::connect_to("localhost", port, kPatience);
  const auto ended = std::async(std::launch::async, [&] { loop.join(); });
  std::array<char, 1> nothing;
  EXPECT_EQ(detail::receive_all(first, nothing, kPatience), ECONNRESET);
  EXPECT_TRUE(throws<NetworkError>(
      [&] { detail::connect_to("127.0.0.1", port, kPatience, ConnectAttempts::once); },
      "cannot connect to 127.0.0.1:" + std::to_string(port) +
          ": Connection refused: nobody listens there any more"));
  first = Descriptor();
}

}  // namespace socket_test
}  // namespace lockstep::distributed
