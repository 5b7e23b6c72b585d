// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/socket/socket.hpp>
#include <lockstep/distributed/socket/socket_frame.hpp>
#include <lockstep/distributed/store/store_values.hpp>
#include <lockstep/distributed/store/tcp_store.hpp>
#include <lockstep/distributed/store/tcp_store_server.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/expect_error.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

namespace lockstep::distributed {
namespace tcp_store_test {

using std::chrono::milliseconds;
using testing::throws;

const detail::Deadline& patience() {
  static const detail::Deadline deadline(std::chrono::minutes(5));
  return deadline;
}

// A client that says whatever a test wants.
class RawClient {
 public:
  explicit RawClient(const TCPStore& store)
      : socket_(detail::connect_to("localhost", store.port(), patience())) {}

  void send(const std::string& bytes) { detail::send_all(socket_, bytes, patience()); }
  // Returns when the server has ended the connection.
  void await_end() {
    std::array<char, 1> byte{};
    while (detail::receive_all(socket_, byte, patience()) == 0) {
    }
  }
  std::string receive() {
    std::string frame;
    EXPECT_EQ(detail::receive_frame(socket_, frame, 1 << 20, patience()), 0);
    return frame;
  }

 private:
  detail::Descriptor socket_;
};

TCPStore server() { return TCPStore("localhost", {.port = 0, .is_server = true}); }

// One that the system has just chosen, and nobody listens at.
std::uint16_t free_port() { return detail::listen_on(0).port; }

std::string hello() {
  return detail::FrameWriter(detail::StoreRequest::hello).text(detail::kStoreGreeting).take();
}

std::string answer(const std::string& value, std::int64_t number) {
  return detail::FrameWriter(detail::StoreReply::done).text(value).number(number).take().substr(4);
}
// That to hello.
std::string welcome() { return answer("", 0); }

TEST(TCPStore, TheSystemChoosesAPort) {
  const TCPStore a = server();
  const TCPStore b = server();
  EXPECT_NE(a.port(), 0);
  EXPECT_NE(a.port(), b.port());
  EXPECT_EQ(a.host(), "localhost");
  EXPECT_EQ(a.name(), "TCPStore at localhost:" + std::to_string(a.port()));
}

TEST(TCPStore, APortInUseIsNamed) {
  const TCPStore a = server();
  EXPECT_TRUE(
      throws<NetworkError>([&] { TCPStore("localhost", {.port = a.port(), .is_server = true}); },
                           std::to_string(a.port()), "in use"));
}

// Others would reach whoever has it by IPv6.
TEST(TCPStore, APortInUseByIPv6AloneIsNamed) {
  const detail::Descriptor taken = detail::open_socket(AF_INET6);
  const int yes = 1;
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  auto* const address = reinterpret_cast<sockaddr*>(&any);
  socklen_t size = sizeof any;
  if (!taken || ::setsockopt(taken.get(), IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes) != 0 ||
      ::bind(taken.get(), address, size) != 0) {
    GTEST_SKIP() << "this machine has no IPv6";
  }
  ASSERT_EQ(::listen(taken.get(), 1), 0);
  ASSERT_EQ(::getsockname(taken.get(), address, &size), 0);
  EXPECT_TRUE(throws<NetworkError>([&] { detail::listen_on(ntohs(any.sin6_port)); }, "in use"));
}

TEST(TCPStore, IsReachedByIPv4AndIPv6) {
  TCPStore store = server();
  store.set("key", "value");
  TCPStore four("127.0.0.1", {.port = store.port()});
  EXPECT_EQ(four.get("key"), "value");
  const detail::Descriptor probe = detail::open_socket(AF_INET6);
  sockaddr_in6 loopback{};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  if (!probe || ::bind(probe.get(), reinterpret_cast<sockaddr*>(&loopback), sizeof loopback) != 0) {
    GTEST_SKIP() << "this machine has no IPv6";
  }
  TCPStore six("::1", {.port = store.port(), .timeout = std::chrono::minutes(1)});
  EXPECT_EQ(six.get("key"), "value");
  EXPECT_EQ(six.name(), "TCPStore at [::1]:" + std::to_string(store.port()));
}

TEST(TCPStore, AServerThatIsNotThereIsNamedWithThePortAndTheTimeLimit) {
  const std::uint16_t port = free_port();
  EXPECT_TRUE(throws<NetworkError>(
      [&] { TCPStore("127.0.0.1", {.port = port, .timeout = milliseconds(30)}); },
      "127.0.0.1:" + std::to_string(port), " within 0.03 s: ", "refused: nobody listens there"));
  EXPECT_TRUE(throws<NetworkError>(
      [&] { TCPStore("no-such-host.invalid", {.port = port, .timeout = milliseconds(1)}); },
      "no-such-host.invalid"));
  EXPECT_TRUE(throws<ValueError>([] { TCPStore("localhost", {.port = 0}); }, "port"));
  EXPECT_TRUE(throws<ValueError>([] { TCPStore(""); }, "empty"));
}

TEST(TCPStore, AClientWaitsForItsServer) {
  const std::uint16_t port = free_port();
  auto client = std::async(std::launch::async, [port] {
    TCPStore store("localhost", {.port = port});
    return store.get("key");
  });
  EXPECT_EQ(client.wait_for(milliseconds(20)), std::future_status::timeout);
  TCPStore store("localhost", {.port = port, .is_server = true});
  store.set("key", "value");
  EXPECT_EQ(client.get(), "value");
}

TEST(TCPStore, WhoWaitsWhenTheServerEndsGetsAnError) {
  std::optional<TCPStore> first(std::in_place, "localhost",
                                TCPStoreOptions{.port = 0, .is_server = true});
  TCPStore client("localhost", {.port = first->port()});
  auto value = std::async(std::launch::async, [&] { return client.get("never"); });
  EXPECT_EQ(value.wait_for(milliseconds(20)), std::future_status::timeout);
  first.reset();
  EXPECT_TRUE(throws<StoreError>([&] { value.get(); }, client.name(), "connection was lost"));
  client.set_timeout(milliseconds(0));
  EXPECT_THROW(client.set("key", "value"), Error);
}

// What listens there speaks of frames, too, but has nothing to say.
TEST(TCPStore, AnEmptyAnswerIsAnError) {
  const detail::Listener listener = detail::listen_on(0);
  auto other = std::async(std::launch::async, [&listener] {
    ASSERT_TRUE(detail::await(listener.socket, POLLIN, patience()));
    const detail::Descriptor socket(
        ::accept4(listener.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    EXPECT_EQ(detail::send_all(socket, std::string(4, '\0'), patience()), 0);
    std::string greeting;
    EXPECT_EQ(detail::receive_frame(socket, greeting, 100, patience()), 0);
  });
  EXPECT_TRUE(throws<StoreError>([&] { TCPStore("localhost", {.port = listener.port}); },
                                 std::to_string(listener.port), "it is not a TCPStore",
                                 std::strerror(EPROTO)));
  other.get();
}

TEST(TCPStore, GarbageHarmsNobody) {
  TCPStore store = server();
  store.set("key", "value");
  using detail::StoreRequest;
  const std::string longest = detail::frame_of(
      {StoreRequest::set, {std::string(Store::kMaxKey, 'k')}, std::string(Store::kMaxValue, 'v')});
  const std::string cut_off =
      detail::FrameWriter(StoreRequest::set).number(std::uint32_t{1}).text("k").take();
  const std::string too_many =
      detail::FrameWriter(StoreRequest::wait).number(std::uint32_t{0xFFFFFFFF}).take();
  const std::string longer =
      detail::FrameWriter(StoreRequest::count).number(std::uint32_t{0}).text("more").take();
  const std::string longer_hello =
      detail::FrameWriter(StoreRequest::hello).text(detail::kStoreGreeting).text("more").take();
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100000, '\xFF'),
        std::string("\0\0\0\0", 4), longest, detail::frame_of({StoreRequest::count}),
        hello() + hello(), hello() + std::string("\xFF\xFF\xFF\x7F", 4), hello() + cut_off,
        hello() + too_many, hello() + detail::frame_of({static_cast<StoreRequest>(99), {"k"}}),
        hello() + longer, hello() + detail::frame_of({StoreRequest::count, {"more"}}),
        hello() + detail::frame_of({StoreRequest::get}),
        hello() + detail::frame_of({StoreRequest::erase, {"key", "key"}}),
        detail::FrameWriter(StoreRequest::hello).text("lockstep store 2").take(), longer_hello}) {
    RawClient garbage(store);
    garbage.send(bytes);
    garbage.await_end();
    EXPECT_EQ(store.get("key"), "value");
  }
  EXPECT_EQ(store.num_keys(), 1);
}

TEST(TCPStore, HalfASentenceBlocksNobody) {
  TCPStore store = server();
  const std::string whole =
      hello() + detail::frame_of({detail::StoreRequest::set, {"slow"}, "value"});
  RawClient silent(store);
  RawClient slow(store);
  for (const char byte : whole) {
    EXPECT_FALSE(store.check({{"slow"}}));
    slow.send(std::string(1, byte));
  }
  EXPECT_EQ(store.get("slow"), "value");
  EXPECT_EQ(slow.receive(), slow.receive());  // an answer to either
}

// Who asks and never takes the answers is not read from any further.
TEST(TCPStore, WhoTakesNoAnswersIsNotKept) {
  TCPStore store = server();
  store.set("large", std::string(Store::kMaxValue, 'v'));
  RawClient greedy(store);
  const std::string get = detail::frame_of({detail::StoreRequest::get, {"large"}});
  std::string many = hello();
  for (int i = 0; i < 4; ++i) many += get;
  greedy.send(many);
  EXPECT_EQ(store.add("n", 1), 1);
  EXPECT_EQ(greedy.receive(), welcome());
}

TEST(TCPStore, AWaitIsForgottenWithItsClient) {
  TCPStore store = server();
  {
    RawClient gone(store);
    gone.send(hello() + detail::frame_of({detail::StoreRequest::wait, {"key"}}));
    gone.receive();
  }
  store.set("key", "value");
  EXPECT_EQ(store.get("key"), "value");
}

TEST(TCPStore, TooManyKeysAtOnceAreRefused) {
  TCPStore store = server();
  const std::vector<std::string> keys(1100, std::string(Store::kMaxKey, 'k'));
  EXPECT_TRUE(throws<ValueError>([&] { store.check(keys); }, "too many keys"));
  EXPECT_EQ(store.num_keys(), 0);
}

// The server can accept nobody for a while. Whoever is connected is served, and the others later.
TEST(TCPStore, RunningOutOfDescriptorsIsNoEnd) {
  TCPStore store = server();
  store.set("key", "value");
  std::string reason;
  const auto address = detail::resolve("localhost", store.port(), reason);
  ASSERT_TRUE(address) << reason;
  const detail::Descriptor late = detail::open_socket(address->ai_family);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit full = before;
  full.rlim_cur =
      static_cast<rlim_t>(detail::open_socket(address->ai_family).get());  // the lowest free one
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &full), 0);
  EXPECT_EQ(detail::connect_once(late, *address, patience()), 0);
  EXPECT_EQ(detail::send_all(late, hello(), patience()), 0);
  for (int i = 1; i <= 10; ++i) EXPECT_EQ(store.add("n", 1), i);
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  std::string answer;
  EXPECT_EQ(detail::receive_frame(late, answer, 100, patience()), 0);
  EXPECT_EQ(answer, welcome());
}

// Dialling a port at which nobody listens, the system may give the caller that very port.
TEST(Socket, IsNotConnectedToItself) {
  std::string reason;
  const auto address = detail::resolve("127.0.0.1", free_port(), reason);
  ASSERT_TRUE(address) << reason;
  const detail::Descriptor socket = detail::open_socket(address->ai_family);
  ASSERT_EQ(::bind(socket.get(), address->ai_addr, address->ai_addrlen), 0);
  EXPECT_EQ(detail::connect_once(socket, *address, patience()), ECONNREFUSED);
}

TEST(Socket, FramesAreReadWithinTheirBounds) {
  const std::string frame = detail::FrameWriter(7).number(std::int64_t{-2}).text("abc").take();
  std::size_t at = 0;
  const auto body = detail::next_frame(frame, at, 100);
  ASSERT_TRUE(body);
  EXPECT_EQ(at, frame.size());
  detail::FrameReader reader(*body);
  EXPECT_EQ(reader.number<std::uint8_t>(), 7);
  EXPECT_EQ(reader.number<std::int64_t>(), -2);
  EXPECT_TRUE(throws<detail::BadFrame>([&] { reader.end(); }, "too long"));
  EXPECT_EQ(reader.text(), "abc");
  reader.end();
  EXPECT_TRUE(throws<detail::BadFrame>([&] { reader.text(); }, "ends early"));
  for (std::size_t size = 0; size < frame.size(); ++size) {
    at = 0;
    EXPECT_FALSE(detail::next_frame(std::string_view(frame).substr(0, size), at, 100));
    EXPECT_EQ(at, 0U);
  }
  EXPECT_TRUE(throws<detail::BadFrame>([&] { detail::next_frame(frame, at, 5); }, "5 is the most"));
}

// What has been answered is not answered again, and what does not wait cannot be canceled.
TEST(TCPStore, EachCallHasOneAnswer) {
  using detail::StoreCall;
  using detail::StoreRequest;
  TCPStore store = server();
  RawClient client(store);
  client.send(hello() + detail::frame_of(StoreCall{StoreRequest::get, {"key"}}));
  EXPECT_EQ(client.receive(), welcome());
  store.set("key", "first");
  EXPECT_EQ(client.receive(), answer("first", 0));
  store.set("key", "second");
  client.send(detail::frame_of(StoreCall{StoreRequest::cancel}) +
              detail::frame_of(StoreCall{StoreRequest::count}));
  EXPECT_EQ(client.receive(), answer("", 1));
}

}  // namespace tcp_store_test
}  // namespace lockstep::distributed
