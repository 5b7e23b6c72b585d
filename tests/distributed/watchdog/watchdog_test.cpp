// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/socket/socket.hpp>
#include <lockstep/distributed/socket/socket_frame.hpp>
#include <lockstep/distributed/store/hash_store.hpp>
#include <lockstep/distributed/store/prefix_store.hpp>
#include <lockstep/distributed/watchdog/watchdog.hpp>
#include <lockstep/distributed/watchdog/watchdog_client.hpp>
#include <lockstep/distributed/watchdog/watchdog_protocol.hpp>
#include <lockstep/distributed/watchdog/watchdog_server.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/allocation_faults.hpp"
#include "support/environment_variable.hpp"
#include "support/expect_error.hpp"
#include "support/grouped_digits.hpp"
#include "support/warnings.hpp"

#include <poll.h>
#include <sys/socket.h>

namespace lockstep::distributed {
namespace watchdog_test {

using namespace std::chrono_literals;
using detail::Call;
using detail::Collective;
using detail::FrameReader;
using detail::FrameWriter;
using detail::FromServer;
using detail::ToServer;
using std::chrono::milliseconds;
using testing::EnvironmentVariable;
using testing::throws;

// Quick to notice who waits for whom, and never for want of a heartbeat: the machine may be busy.
const WatchdogOptions kQuick{
    .interval = 10ms, .heartbeat_timeout = 10min, .collective_timeout = 1h};

const Call kSum{.collective = Collective::all_reduce, .dtype = Dtype::f32, .count = 4};

// A rank: a watchdog of its own, and a call that its collectives would be released by.
class Rank {
 public:
  Rank(int rank, int size, Store& store, const WatchdogOptions& options = kQuick)
      : watchdog_(std::in_place, rank, size, store, options, [this] { released_.set_value(); }) {
    std::vector<int> all;
    for (int i = 0; i < size; ++i) all.push_back(i);
    progress_ = watchdog_->watch(all);
  }

  Watchdog& watchdog() { return *watchdog_; }
  Progress& progress() { return *progress_; }
  void end() { watchdog_.reset(); }

  // Waits for the first fault and returns the error's text.
  std::string fault() {
    released_.get_future().wait();
    EXPECT_TRUE(watchdog_->faulted());
    try {
      watchdog_->check();
    } catch (const WatchdogError& error) {
      return error.what();
    }
    return "no error";
  }

 private:
  std::promise<void> released_;
  std::optional<Watchdog> watchdog_;
  std::shared_ptr<Progress> progress_;
};

// All ranks of a world, in one process.
class World {
 public:
  explicit World(int size, const WatchdogOptions& options = kQuick) {
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(rank, size, store_, options));
    }
  }
  Rank& operator[](int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }

 private:
  HashStore store_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Watchdog, RanksMayEndInAnyOrder) {
  std::vector<int> order{0, 1, 2};
  do {
    World world(3);
    for (int rank = 0; rank < 3; ++rank) {
      world[rank].progress().enter(kSum);
      world[rank].progress().leave();
    }
    for (const int rank : order) {
      world[rank].watchdog().check();
      EXPECT_FALSE(world[rank].watchdog().faulted());
      world[rank].end();
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Watchdog, GroupsThatHaveEndedAreForgotten) {
  World world(2);
  constexpr int kGroups = 5'000;
  std::vector<std::shared_ptr<Progress>> kept;
  for (int i = 0; i < kGroups; ++i) {
    for (const int rank : {0, 1}) {
      const std::shared_ptr<Progress> progress = world[rank].watchdog().watch({1, 0});
      progress->enter(kSum);
      progress->leave();
      if (i == kGroups / 2) kept.push_back(progress);
    }
  }
  for (const int rank : {0, 1}) {
    // That of all ranks and the one that is kept.
    while (world[rank].watchdog().groups() > 2) {
      world[rank].watchdog().check();
      std::this_thread::yield();
    }
  }
  // It is still the same one to both of them, and a later one is no other's.
  for (const int rank : {0, 1}) kept.push_back(world[rank].watchdog().watch({1, 0}));
  for (const auto& progress : kept) progress->enter(kSum);
  for (const auto& progress : kept) progress->leave();
  kept[0]->enter(kSum);
  world[1].end();
  EXPECT_TRUE(contains(world[0].fault(),
                       "rank 1 has ended after collective #2; rank 0 waits for it "
                       "in collective #3"));
}

TEST(Watchdog, AGroupThatARankHasNoMemoryForIsNoOther) {
  World world(2);
  const std::vector<int> ranks{1, 0};
  const auto watch = [&](int rank) { return world[rank].watchdog().watch(ranks); };
  for (const int rank : {0, 1}) (void)watch(rank);
  std::shared_ptr<Progress> zero;
  std::shared_ptr<Progress> one;
  for (std::uint64_t n = 0; !one; ++n) {
    zero = watch(0);
    testing::fail_allocation(n);
    try {
      one = watch(1);
    } catch (const std::bad_alloc&) {
    }
    EXPECT_EQ(testing::end_allocation_faults(), one == nullptr);
  }
  for (Progress* const progress : {zero.get(), one.get()}) {
    progress->enter(kSum);
    progress->leave();
  }
  zero->enter(kSum);
  world[1].end();
  const std::string text = world[0].fault();
  EXPECT_TRUE(contains(text,
                       "rank 1 has ended after collective #1; rank 0 waits for it in "
                       "collective #2"))
      << text;
}

TEST(Watchdog, AWorldOfOneWatchesNothing) {
  HashStore store;
  Watchdog alone(0, 1, store);
  EXPECT_EQ(alone.watch({0}), nullptr);
  const InCollective nobody_looks(nullptr, kSum);
  alone.abort("a failure");
  EXPECT_FALSE(alone.faulted());
  EXPECT_EQ(alone.exception(), nullptr);
  EXPECT_EQ(store.num_keys(), 0);
}

TEST(Watchdog, ARankThatFailsTellsAllWhy) {
  // At once, and not with the next heartbeat.
  WatchdogOptions options = kQuick;
  options.interval = 1h;
  options.heartbeat_timeout = 10h;
  World world(3, options);
  const InCollective waiting(&world[0].progress(), kSum);
  world[1].watchdog().abort("ShapeError: 3 does not fit 4");
  EXPECT_TRUE(world[1].watchdog().faulted());  // what the rank calls next may ask for that alone
  const std::string waits = world[0].fault();
  EXPECT_TRUE(contains(waits, "rank 1 has failed: ShapeError: 3 does not fit 4")) << waits;
  EXPECT_TRUE(contains(waits, "this rank, 0, is in collective #1, all_reduce(sum) of 4 x f32"))
      << waits;
  EXPECT_EQ(world[2].fault(), "rank 1 has failed: ShapeError: 3 does not fit 4");
  ASSERT_EQ(world[2].watchdog().faults().size(), 1U);
  EXPECT_EQ(world[2].watchdog().faults()[0].kind, Fault::Kind::threw);
  EXPECT_EQ(world[2].watchdog().faults()[0].rank, 1);
}

TEST(Watchdog, RanksFindEachOtherWhateverTheLocaleOfEach) {
  HashStore store;
  std::optional<Rank> zero;
  {
    const testing::GroupedDigits locale;
    zero.emplace(0, 2, store);
  }
  std::optional<Rank> one;
  {
    const testing::GroupedDigits locale(' ');
    one.emplace(1, 2, store);
  }
  EXPECT_FALSE(one->watchdog().faulted());
  one->end();
  zero->end();
}

TEST(Watchdog, AnExceptionThatUnwindsARankIsAFailure) {
  HashStore store;
  Rank zero(0, 2, store);
  EXPECT_THROW(
      {
        Watchdog one(1, 2, store, kQuick);
        throw std::runtime_error("in forward");
      },
      std::runtime_error);
  EXPECT_EQ(zero.fault(), "rank 1 has failed: an exception has ended it");
}

TEST(Watchdog, AnExceptionThatUnwindsARankWithoutMemoryIsAFailure) {
  HashStore store;
  Rank zero(0, 2, store);
  EXPECT_THROW(
      {
        Watchdog one(1, 2, store, kQuick);
        testing::fail_allocation(0, true);
        throw std::bad_alloc();
      },
      std::bad_alloc);
  testing::end_allocation_faults();
  EXPECT_EQ(zero.fault(), "rank 1 has failed: an exception has ended it");
}

TEST(Watchdog, ARankThatLeavesACollectiveOutIsNamed) {
  WatchdogOptions options = kQuick;
  options.collective_timeout = 1s;
  World world(3, options);
  for (int rank = 0; rank < 3; ++rank) {
    world[rank].progress().enter(kSum);
    world[rank].progress().leave();
  }
  const InCollective first(&world[0].progress(), kSum);
  const InCollective second(&world[1].progress(), kSum);
  for (int rank = 0; rank < 3; ++rank) {
    const std::string text = world[rank].fault();
    EXPECT_TRUE(contains(text, "rank 2 has not come to a collective")) << text;
    EXPECT_TRUE(contains(text, "in collective #2, all_reduce(sum) of 4 x f32")) << text;
    EXPECT_TRUE(contains(text, "left its last one, #1")) << text;
  }
}

TEST(Watchdog, ARankWithFewerBatchesIsNamed) {
  World world(3);
  world[1].end();
  const InCollective waiting(&world[2].progress(), kSum);
  for (const int rank : {0, 2}) {
    const std::string text = world[rank].fault();
    EXPECT_TRUE(contains(text,
                         "rank 1 has ended without any collective; rank 2 waits for it in "
                         "collective #1, all_reduce(sum) of 4 x f32"))
        << text;
  }
}

TEST(Watchdog, RankZeroWithFewerBatchesIsNamed) {
  World world(2);
  world[0].end();
  const InCollective waiting(&world[1].progress(), kSum);
  const std::string text = world[1].fault();
  EXPECT_TRUE(contains(text, "rank 0 has ended without any collective")) << text;
  EXPECT_TRUE(contains(text, "this rank, 1, is in collective #1")) << text;
}

// Rank 0 too.
TEST(Watchdog, ARankThatHasFinishedIsNamedAndStillHearsOfFaults) {
  for (const int finished : {0, 1}) {
    World world(2);
    Rank& waiting = world[1 - finished];
    world[finished].watchdog().finish();
    const InCollective here(&waiting.progress(), kSum);
    const std::string expected =
        lockstep::detail::str("rank ", finished, " has ended without any collective; rank ",
                              1 - finished, " waits for it in collective #1, all_reduce(sum)");
    const std::string got = waiting.fault();
    EXPECT_TRUE(contains(got, expected)) << got;
    EXPECT_TRUE(contains(world[finished].fault(), expected));
  }
}

// One end of a watchdog's connection, whose frames the test writes and reads itself.
struct Peer {
  detail::Descriptor socket;
  std::string frame{};

  static detail::Deadline patience() { return detail::Deadline(5min); }
  void send(const std::string& bytes) const {
    EXPECT_EQ(detail::send_all(socket, bytes, patience()), 0);
  }
  template <class Kind>
  FrameReader expect(Kind kind) {
    frame.clear();
    EXPECT_EQ(detail::receive_frame(socket, frame, detail::kMaxWatchdogFrame, patience()), 0);
    FrameReader reader(frame);
    EXPECT_EQ(reader.number<std::uint8_t>(), static_cast<std::uint8_t>(kind));
    return reader;
  }
  bool has_ended() const {
    std::string more(1, '\0');
    return detail::receive_all(socket, more, patience()) == ECONNRESET;
  }
};

// A rank, to the server.
struct WrittenRank : Peer {
  WrittenRank(std::uint16_t port, std::uint64_t token, int rank, int size)
      : Peer{detail::connect_to("localhost", port, patience())} {
    send(FrameWriter(ToServer::hello).number(token).number(rank).number(size).take());
    expect(FromServer::welcome);
  }

  // It has come to groups of all ranks.
  void announce(std::vector<int> ranks) const {
    FrameWriter group(ToServer::group);
    detail::write(group, {std::move(ranks), 0});
    send(group.take());
  }
  // Says where it is in its first group, and returns how many ends the server knows of.
  std::uint32_t come(const detail::WatchdogLedger::Position& position) {
    FrameWriter inside(ToServer::position);
    detail::write(inside.number(std::uint32_t{0}), position);
    send(inside.take());
    return heartbeat(0);
  }
  // Says that nothing has changed.
  std::uint32_t heartbeat(std::uint32_t known) {
    send(FrameWriter(ToServer::heartbeat).number(known).take());
    return expect(FromServer::heartbeat).number<std::uint32_t>();
  }
};

TEST(Watchdog, AHeartbeatFromBeforeAnEndAccusesNobody) {
  HashStore store;
  const Rank zero(0, 3, store);
  Rank two(2, 3, store);
  std::istringstream address(store.get("watchdog"));
  std::uint16_t port = 0;
  std::uint64_t token = 0;
  address >> port >> token;
  WrittenRank one(port, token, 1, 3);
  one.announce({0, 1, 2});
  EXPECT_EQ(one.come({1, true, 0ms, "barrier"}), 0U);
  two.watchdog().finish();
  while (one.heartbeat(0) == 0) {
  }
  EXPECT_EQ(one.heartbeat(0), 1U);  // and no fault has come before this answer
  EXPECT_EQ(one.heartbeat(1), 1U);
  FrameReader reader = one.expect(FromServer::faults);
  const std::vector<Fault> faults = detail::read_faults(reader);
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].text,
            "rank 2 has ended without any collective; rank 1 waits for it in collective #1, "
            "barrier");
}

// The server alone, so that no other rank's silence counts: what its ranks send are frames of the
// test, as many as it takes until one of them is accused.
TEST(Watchdog, WhoeverSendsSomethingIsAliveAndWhoeverDoesNotIsNamed) {
  constexpr std::uint64_t kToken = 7;
  WatchdogOptions options = kQuick;
  options.heartbeat_timeout = 500ms;
  detail::WatchdogServer server(2, kToken, 5min, options);
  WrittenRank zero(server.port(), kToken, 0, 2);
  const WrittenRank one(server.port(), kToken, 1, 2);
  while (true) {
    zero.send(FrameWriter(ToServer::heartbeat).number(std::uint32_t{0}).take());
    zero.frame.clear();
    ASSERT_EQ(
        detail::receive_frame(zero.socket, zero.frame, detail::kMaxWatchdogFrame, Peer::patience()),
        0);
    FrameReader reader(zero.frame);
    if (reader.number<std::uint8_t>() == static_cast<std::uint8_t>(FromServer::faults)) {
      const std::vector<Fault> faults = detail::read_faults(reader);
      ASSERT_EQ(faults.size(), 1U);
      EXPECT_TRUE(contains(faults[0].text, "rank 1 has not answered for")) << faults[0].text;
      break;
    }
  }
  zero.send(FrameWriter(ToServer::goodbye).take());
  one.send(FrameWriter(ToServer::goodbye).take());
}

// Rank 0's watchdog tells of its groups when it ends.
TEST(Watchdog, AGroupThatItsRanksHaveLeftIsForgotten) {
  for (const bool leaves : {false, true}) {
    auto server = std::make_unique<detail::WatchdogServer>(1, 7, 5min, kQuick);
    WrittenRank zero(server->port(), 7, 0, 1);
    zero.announce({0});
    zero.come({1});
    if (leaves) zero.send(FrameWriter(ToServer::leave_group).number(std::uint32_t{0}).take());
    zero.heartbeat(0);
    const auto ended = std::async(std::launch::async, [&] { server.reset(); });
    if (!leaves) zero.expect(FromServer::last);
    zero.expect(FromServer::closing);
    zero.socket = {};
  }
}

TEST(Watchdog, WhoNamesAGroupThatItHasLeftIsCutOff) {
  detail::WatchdogServer server(1, 7, 5min, kQuick);
  WrittenRank zero(server.port(), 7, 0, 1);
  zero.announce({0});
  zero.come({1});
  zero.send(FrameWriter(ToServer::leave_group).number(std::uint32_t{0}).take() +
            FrameWriter(ToServer::leave_group).number(std::uint32_t{0}).take());
  EXPECT_TRUE(zero.has_ended());
}

TEST(Watchdog, WhoNamesARankThatThereIsNotIsCutOff) {
  detail::WatchdogServer server(1, 7, 5min, kQuick);
  WrittenRank zero(server.port(), 7, 0, 1);
  zero.announce({0, 1});
  EXPECT_TRUE(zero.has_ended());
}

TEST(Watchdog, WhoSaysThatItHasWaitedForAnImpossibleTimeIsCutOff) {
  for (const milliseconds age : {milliseconds(-1), milliseconds::max()}) {
    detail::WatchdogServer server(1, 7, 5min, kQuick);
    WrittenRank zero(server.port(), 7, 0, 1);
    zero.announce({0});
    FrameWriter inside(ToServer::position);
    detail::write(inside.number(std::uint32_t{0}), {1, true, age, "barrier"});
    zero.send(inside.take());
    EXPECT_TRUE(zero.has_ended());
  }
}

TEST(Watchdog, WhoIsRefusedIsCutOff) {
  detail::WatchdogServer server(1, 7, 5min, kQuick);
  Peer other{detail::connect_to("localhost", server.port(), Peer::patience())};
  other.send(FrameWriter(ToServer::hello).number(std::uint64_t{7}).number(1).number(2).take());
  other.expect(FromServer::refused);
  EXPECT_TRUE(other.has_ended());
}

// Rank 0's watchdog, to the one of rank 1 of two.
struct WrittenServer : Peer {
  detail::Listener listener = detail::listen_on(0);
  std::atomic<bool> faulted{false};

  std::unique_ptr<detail::WatchdogClient> welcome(const WatchdogOptions& options) {
    auto made = std::async(std::launch::async, [&] {
      auto client = std::make_unique<detail::WatchdogClient>(
          1, 2, detail::WatchdogAddress{"localhost", listener.port, 7}, patience(), options,
          std::function<void()>(), faulted);
      client->start();
      return client;
    });
    EXPECT_TRUE(detail::await(listener.socket, POLLIN, patience()));
    socket = detail::Descriptor(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    expect(ToServer::hello);
    send(FrameWriter(FromServer::welcome).take());
    return made.get();
  }
};

// Only then does the number of ends that it knows of say something of where the rank is.
TEST(Watchdog, AHeartbeatComesAfterThePositionsInAllGroups) {
  WatchdogOptions options = kQuick;
  options.interval = 1h;
  options.heartbeat_timeout = 10h;
  WrittenServer zero;
  const auto one = zero.welcome(options);
  zero.send(FrameWriter(FromServer::heartbeat).number(std::uint32_t{5}).take());
  zero.send(detail::write_faults({}));
  zero.expect(ToServer::told);
  constexpr std::uint32_t kGroups = 2000;
  std::vector<std::shared_ptr<Progress>> groups;
  for (std::uint32_t i = 0; i < kGroups; ++i) groups.push_back(one->watch({0, 1}));
  one->finish();
  for (std::uint32_t i = 0; i < kGroups; ++i) {
    zero.expect(ToServer::group);
    FrameReader reader = zero.expect(ToServer::position);
    EXPECT_EQ(reader.number<std::uint32_t>(), i);
    (void)detail::read_position(reader);
  }
  EXPECT_EQ(zero.expect(ToServer::heartbeat).number<std::uint32_t>(), 5U);
  zero.expect(ToServer::finished);
  zero.socket = {};
}

TEST(Watchdog, RankZeroIsNotAwaitedInWhatWasItsLastCollective) {
  WatchdogOptions options = kQuick;
  options.collective_timeout = 20ms;
  WrittenServer zero;
  const auto one = zero.welcome(options);
  const auto progress = one->watch({0, 1});
  const InCollective waiting(progress.get(), kSum);
  FrameWriter last(FromServer::last);
  detail::write(last, {{0, 1}, 0});
  zero.send(last.number(std::uint64_t{1}).take() + FrameWriter(FromServer::closing).take());
  zero.socket = {};
  while (!zero.faulted) std::this_thread::yield();
  EXPECT_EQ(one->faults()[0].kind, Fault::Kind::stuck) << one->faults()[0].text;
}

// A connection that is closed while bytes are on their way loses those that it has sent.
TEST(Watchdog, WhoSaysGoodbyeStaysUntilTheOtherSideHasEnded) {
  WatchdogOptions options = kQuick;
  options.interval = 1h;
  options.heartbeat_timeout = 10h;
  WrittenServer zero;
  auto one = zero.welcome(options);
  const auto left = std::async(std::launch::async, [&] { one.reset(); });
  zero.expect(ToServer::heartbeat);
  zero.expect(ToServer::goodbye);
  EXPECT_TRUE(zero.has_ended());
  for (int i = 0; i < 3; ++i) {
    zero.send(FrameWriter(FromServer::heartbeat).number(std::uint32_t{0}).take());
  }
  zero.socket = {};
}

TEST(Watchdog, FinishingIsNoFaultAndLeavingComesBeforeTheEnd) {
  World world(3);
  for (int rank = 0; rank < 3; ++rank) {
    { const InCollective here(&world[rank].progress(), kSum); }
    world[rank].watchdog().finish();
  }
  for (const int rank : {1, 0, 2}) {
    world[rank].watchdog().leave();
    EXPECT_FALSE(world[rank].watchdog().faulted());
    world[rank].watchdog().abort("too late to tell");
  }
  for (const int rank : {2, 0, 1}) EXPECT_FALSE(world[rank].watchdog().faulted());
}

TEST(Watchdog, WhoWaitsTooLongAfterRankZeroHasEndedIsReleased) {
  WatchdogOptions options = kQuick;
  options.collective_timeout = 50ms;
  HashStore store;
  Rank zero(0, 3, store, options);
  Rank one(1, 3, store, options);
  Rank two(2, 3, store, options);
  const auto pair = one.watchdog().watch({1, 2});
  zero.end();
  const auto begin = std::chrono::steady_clock::now();
  const InCollective waiting(pair.get(), kSum);
  const std::string text = one.fault();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, options.collective_timeout);
  // Rank 0 may have seen it before it ended.
  EXPECT_TRUE(contains(text, "rank 1 has waited for 0.05 s, and rank 0") ||
              contains(text, "rank 2 has not come"))
      << text;
}

TEST(Watchdog, AnotherDtypeIsNamed) {
  World world(2);
  Call other = kSum;
  other.dtype = Dtype::f64;
  const InCollective first(&world[0].progress(), kSum);
  const InCollective second(&world[1].progress(), other);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string text = world[rank].fault();
    EXPECT_TRUE(contains(text, "all_reduce(sum) of 4 x f64")) << text;
    EXPECT_TRUE(contains(text, "all_reduce(sum) of 4 x f32")) << text;
    EXPECT_TRUE(contains(text, "all ranks must call the same")) << text;
  }
}

TEST(Watchdog, TheFirstFaultStaysFirst) {
  World world(4);
  world[2].watchdog().abort("first");
  EXPECT_EQ(world[0].fault(), "rank 2 has failed: first");
  world[3].watchdog().abort("as follows from it");
  world[3].end();
  const std::string fault = world[1].fault();
  EXPECT_TRUE(fault.starts_with("rank 2 has failed: first")) << fault;
}

TEST(Watchdog, ARankThatHasNotComeIsNamed) {
  HashStore store(500ms);
  Rank zero(0, 2, store);
  EXPECT_EQ(zero.fault(), "rank 1 has not come: it has not connected to the watchdog within 0.5 s");
}

TEST(Watchdog, ARankWithoutRankZeroGivesUp) {
  HashStore store(20ms);
  EXPECT_TRUE(throws<StoreError>([&] { Watchdog(1, 2, store); }, "'watchdog'", "0.02 s"));
}

// Although the time limit is far.
TEST(Watchdog, ARankWhoseRankZeroHasEndedIsRefusedAtOnce) {
  HashStore store;
  { const Watchdog ended(0, 2, store, kQuick); }
  EXPECT_TRUE(throws<NetworkError>([&] { Watchdog(1, 2, store, kQuick); }, "cannot connect to",
                                   "Connection refused"));
}

TEST(Watchdog, AWorldThatIsNotOneIsRefused) {
  HashStore store;
  Rank zero(0, 3, store);
  const Rank one(1, 3, store);
  EXPECT_TRUE(throws<ValueError>([&] { Watchdog(1, 3, store); }, "two processes", "rank 1"));
  EXPECT_TRUE(throws<ValueError>([&] { Watchdog(1, 2, store); }, "2 ranks", "there are 3"));
  EXPECT_TRUE(throws<ValueError>([&] { Watchdog(3, 3, store); }, "rank 3 of 3"));
  EXPECT_TRUE(throws<ValueError>([&] { Watchdog(-1, 3, store); }, "rank -1 of 3"));
  std::string value = store.get("watchdog");
  const std::size_t token = value.find(' ') + 1;
  value.replace(token, value.find(' ', token) - token, "1");
  store.set("watchdog", value);
  EXPECT_TRUE(
      throws<ValueError>([&] { Watchdog(2, 3, store); }, "key 'watchdog'", "another run", "token"));
  store.set("watchdog", "nonsense");
  EXPECT_TRUE(throws<StoreError>([&] { Watchdog(2, 3, store); }, "not a watchdog's address"));
  EXPECT_FALSE(zero.watchdog().faulted());
}

TEST(Watchdog, TheOptionsOfRankZeroAreThoseOfAll) {
  HashStore store;
  const Watchdog zero(0, 2, store, kQuick);
  const Watchdog one(1, 2, store);
  EXPECT_EQ(one.options().interval, kQuick.interval);
  EXPECT_EQ(one.options().heartbeat_timeout, kQuick.heartbeat_timeout);
  EXPECT_EQ(one.options().collective_timeout, kQuick.collective_timeout);
}

TEST(Watchdog, GroupsOfOtherRanksAreRefused) {
  World world(3);
  Watchdog& watchdog = world[1].watchdog();
  EXPECT_TRUE(throws<ValueError>([&] { watchdog.watch({0, 2}); }, "rank 1 is not in the group"));
  EXPECT_TRUE(throws<ValueError>([&] { watchdog.watch({1, 3}); }, "rank 3", "has 3 ranks"));
  EXPECT_TRUE(throws<ValueError>([&] { watchdog.watch({1, 2, 1}); }, "rank 1", "more than once"));
}

TEST(Watchdog, GarbageAtItsPortHarmsNobody) {
  HashStore store;
  Rank zero(0, 2, store);
  Rank one(1, 2, store);
  std::istringstream address(store.get("watchdog"));
  std::uint16_t port = 0;
  address >> port;
  const detail::Deadline patience(5min);
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(1000, '\xFF'),
        FrameWriter(ToServer::goodbye).take(),
        // Another run's.
        FrameWriter(ToServer::hello).number(std::uint64_t{1}).number(0).number(2).take()}) {
    const detail::Descriptor socket = detail::connect_to("localhost", port, patience);
    detail::send_all(socket, bytes, patience);
    std::string ignored(1, '\0');
    int error = 0;
    while (error == 0) error = detail::receive_all(socket, ignored, patience);
    EXPECT_EQ(error, ECONNRESET) << "it is to be cut off";
  }
  one.watchdog().abort("the first fault");
  EXPECT_EQ(zero.fault(), "rank 1 has failed: the first fault");
}

TEST(Watchdog, ACallbackThatThrowsIsNoEnd) {
  const testing::CaughtWarnings warnings;
  {
    HashStore store;
    Watchdog zero(0, 2, store, kQuick, [] { throw std::runtime_error("from the callback"); });
    Watchdog one(1, 2, store, kQuick);
    one.abort("a failure");
    while (!zero.faulted()) std::this_thread::yield();
    EXPECT_TRUE(throws<WatchdogError>([&] { zero.check(); }, "a failure"));
  }
  EXPECT_EQ(warnings.count("from the callback"), 1);
}

TEST(WatchdogOptions, AreReadFromTheEnvironment) {
  const EnvironmentVariable interval("LOCKSTEP_HEARTBEAT_INTERVAL", "0.25");
  const EnvironmentVariable heartbeat("LOCKSTEP_HEARTBEAT_TIMEOUT", "7");
  const EnvironmentVariable collective("LOCKSTEP_COLLECTIVE_TIMEOUT", "1e3");
  const WatchdogOptions options = WatchdogOptions::from_environment();
  EXPECT_EQ(options.interval, 250ms);
  EXPECT_EQ(options.heartbeat_timeout, 7s);
  EXPECT_EQ(options.collective_timeout, 1000s);
  for (const char* wrong : {"", "0", "-1", "nan", "inf", "1s", "1e30"}) {
    const EnvironmentVariable variable("LOCKSTEP_HEARTBEAT_TIMEOUT", wrong);
    EXPECT_TRUE(throws<ValueError>([] { WatchdogOptions::from_environment(); },
                                   "LOCKSTEP_HEARTBEAT_TIMEOUT", std::string("'") + wrong + "'"));
  }
  const EnvironmentVariable less_than_twice("LOCKSTEP_HEARTBEAT_TIMEOUT", "0.4");
  EXPECT_TRUE(throws<ValueError>([] { WatchdogOptions::from_environment(); }, "400 ms", "250 ms"));
}

TEST(WatchdogOptions, AnIntervalIsMoreThanNothing) {
  WatchdogOptions options;
  options.interval = 0ms;
  EXPECT_TRUE(throws<ValueError>([&] { options.check(); }, "interval is 0 ms"));
  options.heartbeat_timeout = milliseconds::max();
  for (const milliseconds interval : {milliseconds(24h * 365 * 51), milliseconds::max()}) {
    options.interval = interval;
    EXPECT_TRUE(throws<ValueError>([&] { options.check(); }, "at most 1576800000000"));
  }
  options.heartbeat_timeout = options.interval = 1s;
  EXPECT_TRUE(throws<ValueError>([&] { options.check(); }, "at least twice the interval"));
}

TEST(WatchdogOptions, AHostHasNoBlanks) {
  WatchdogOptions options;
  for (const char* const host : {"node 1", " node1", "node1\n"}) {
    options.host = host;
    EXPECT_TRUE(throws<ValueError>([&] { options.check(); }, "WatchdogOptions.host", host));
  }
  options.host = "node1";
  options.check();
  const EnvironmentVariable master("MASTER_ADDR", "127.0.0.1 0");
  HashStore store;
  EXPECT_TRUE(throws<ValueError>([&] { Watchdog(0, 2, store); }, "MASTER_ADDR is '127.0.0.1 0'"));
  store.set("watchdog", "1 1 127.0.0.1 0 1000 1000");
  EXPECT_TRUE(throws<StoreError>([&] { Watchdog(1, 2, store); }, "'watchdog'", "interval is 0 ms"));
}

// A process that was stopped has not listened meanwhile, and blames nobody for that time.
TEST(ListeningClock, CountsOnlyTimeInWhichItListened) {
  detail::ListeningClock clock(1ms);
  const auto before = clock.now();
  const auto end = std::chrono::steady_clock::now() + 50ms;
  while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_LE(clock.now() - before, 2ms);
}

// A reader never takes one collective's description for another's.
TEST(Progress, ASnapshotIsOfOneCollective) {
  constexpr std::uint64_t kCollectives = 1000000;
  Progress progress;
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (std::uint64_t i = 1; i <= kCollectives; ++i) {
      const InCollective here(&progress, {.collective = Collective::broadcast,
                                          .dtype = i % 2 ? Dtype::f32 : Dtype::i64,
                                          .root = static_cast<int>(i),
                                          .count = i});
    }
    done.store(true, std::memory_order_release);
  });
  std::uint64_t last = 0;
  do {
    const auto snapshot = progress.snapshot();
    if (!snapshot) continue;
    ASSERT_GE(snapshot->number, last);
    last = snapshot->number;
    if (!snapshot->inside) continue;
    ASSERT_EQ(snapshot->call.count, last);
    ASSERT_EQ(snapshot->call.root, static_cast<int>(last));
    ASSERT_EQ(snapshot->call.dtype, last % 2 ? Dtype::f32 : Dtype::i64);
  } while (!done.load(std::memory_order_acquire));
  writer.join();
  EXPECT_EQ(progress.snapshot(), Progress::Snapshot{kCollectives});
}

TEST(Progress, SaysWhereARankIs) {
  Progress progress;
  EXPECT_EQ(progress.snapshot(), Progress::Snapshot{});
  const Call call{Collective::reduce, Dtype::bf16, ReduceOp::max, 3, std::size_t{1} << 40};
  progress.enter(call);
  EXPECT_EQ(progress.snapshot(), (Progress::Snapshot{1, true, call}));
  progress.leave();
  EXPECT_EQ(progress.snapshot(), Progress::Snapshot{1});
}

}  // namespace watchdog_test
}  // namespace lockstep::distributed
