// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/socket/socket.hpp>
#include <lockstep/distributed/socket/socket_frame.hpp>
#include <lockstep/distributed/store/store_values.hpp>
#include <lockstep/distributed/store/tcp_store.hpp>
#include <lockstep/distributed/store/tcp_store_server.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <string>

#include "support/expect_error.hpp"

#include <poll.h>
#include <sys/socket.h>

namespace lockstep::distributed {
namespace silent_server_test {

using testing::throws;

const detail::Deadline& patience() {
  static const detail::Deadline deadline(std::chrono::minutes(5));
  return deadline;
}

detail::Descriptor accept(const detail::Listener& listener) {
  EXPECT_TRUE(detail::await(listener.socket, POLLIN, patience()));
  return detail::Descriptor(
      ::accept4(listener.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

void receive_request(const detail::Descriptor& client) {
  std::string request;
  EXPECT_EQ(detail::receive_frame(client, request, 100, patience()), 0);
}

void answer_request(const detail::Descriptor& client) {
  receive_request(client);
  const std::string done =
      detail::FrameWriter(detail::StoreReply::done).text("").number(std::int64_t{0}).take();
  EXPECT_EQ(detail::send_all(client, done, patience()), 0);
}

// The answer to the first call comes when its time is over, that to the second never.
TEST(TCPStore, AServerHasFiveSecondsMoreThanTheCallAndTheNextCallHasAnotherConnection) {
  const detail::Listener listener = detail::listen_on(0);
  auto server = std::async(std::launch::async, [&listener] {
    const detail::Descriptor first = accept(listener);
    for (int greeting_and_call = 0; greeting_and_call < 2; ++greeting_and_call) {
      answer_request(first);
    }
    receive_request(first);
    const detail::Descriptor second = accept(listener);
    for (int greeting_and_call = 0; greeting_and_call < 2; ++greeting_and_call) {
      answer_request(second);
    }
  });
  TCPStore store("localhost", {.port = listener.port});
  store.set_timeout(std::chrono::milliseconds(0));
  EXPECT_NO_THROW(store.set("key", "value"));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(
      throws<StoreError>([&] { store.set("key", "value"); }, store.name(), "does not answer"));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_NO_THROW(store.set("key", "value"));
  server.get();
}

}  // namespace silent_server_test
}  // namespace lockstep::distributed
