// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/host/background_threads.hpp>
#include <lockstep/backend/host/host_stream.hpp>
#include <lockstep/backend/threads/spin_wait.hpp>
#include <lockstep/device/stream.hpp>

#include "support/gate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace lockstep::detail {
namespace background_threads_test {

using testing::Gate;
using Mode = HostStream::Mode;

// A background thread may use a stream until the process ends, so these are never destroyed.
HostStream& new_stream() {
  static auto& streams = *new std::vector<std::unique_ptr<HostStream>>;
  return *streams.emplace_back(std::make_unique<HostStream>(Device("cpu:0"), Mode::queued));
}

BackgroundThreads& threads() { return BackgroundThreads::instance(); }

// Waits without taking part, as a thread that does not know of streams.
template <class Ready>
void watch(Ready ready) {
  while (!ready()) std::this_thread::yield();
}

// Nor does one only wait for somebody, to come back afterwards.
bool all_asleep(const BackgroundStats& stats) { return stats.asleep == stats.threads; }

// Keeps as many threads as may be awake in operations that pass for copies, until it is destroyed:
// then no other is woken.
class AllBusy {
 public:
  AllBusy() {
    watch([] { return all_asleep(threads().stats()); });
    const std::size_t wanted = threads().stats().wanted;
    for (std::size_t i = 0; i < wanted; ++i) {
      streams_.push_back(&new_stream());
      streams_.back()->submit(
          [this] {
            begun_.fetch_add(1);
            end_.wait(false);
          },
          false);
    }
    watch([&] { return begun_.load() == wanted; });
  }
  AllBusy(const AllBusy&) = delete;
  AllBusy& operator=(const AllBusy&) = delete;
  ~AllBusy() {
    end_.store(true);
    end_.notify_all();
    for (HostStream* stream : streams_) stream->synchronize();
  }

 private:
  std::atomic<std::size_t> begun_{0};
  std::atomic<bool> end_{false};
  std::vector<HostStream*> streams_;
};

template <class F>
void share(std::uint32_t count, F& piece) {
  threads().share({piece, count});
}

TEST(BackgroundThreads, ServeAStreamThatNobodyWaitsFor) {
  std::thread::id thread;
  HostStream& stream = new_stream();
  stream.submit([&] { thread = std::this_thread::get_id(); });
  watch([&] { return stream.idle(); });
  EXPECT_NE(thread, std::thread::id());
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST(BackgroundThreads, AThreadThatWaitsServesTheStreamItselfWhereNobodyIsAtIt) {
  std::vector<std::thread::id> order;
  const AllBusy busy;
  HostStream& stream = new_stream();
  for (int i = 0; i < 3; ++i) {
    stream.submit([&] { order.push_back(std::this_thread::get_id()); });
  }
  EXPECT_FALSE(stream.idle());
  stream.synchronize();
  EXPECT_EQ(order, std::vector<std::thread::id>(3, std::this_thread::get_id()));
}

// The waiting thread is at the stream when the second operation comes, so that nobody else is told.
TEST(BackgroundThreads, WhatAWaitingThreadLeavesIsServedByAnother) {
  std::vector<int> order;
  std::atomic<bool> begun{false};
  std::atomic<bool> end{false};
  HostStream& stream = new_stream();
  std::jthread waiting;
  {
    const AllBusy busy;
    stream.submit([&] {
      begun.store(true);
      end.wait(false);
      order.push_back(1);
    });
    waiting = std::jthread([first = stream.record()] { first->synchronize(); });
    watch([&] { return begun.load(); });
  }
  watch([] { return threads().stats().awake == 0; });
  stream.submit([&] { order.push_back(2); });
  end.store(true);
  end.notify_all();
  watch([&] { return stream.idle(); });
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

// Nobody is there but threads that wait, one of them for what another leaves.
TEST(BackgroundThreads, WhatAWaitingThreadLeavesIsServedByOneThatWaitsForIt) {
  constexpr int kRounds = 4000;
  const AllBusy busy;
  HostStream& stream = new_stream();
  EventPtr sooner;
  EventPtr later;
  std::barrier round(4);
  const auto wait = [&round](const EventPtr& event) {
    for (int n = 0; n < kRounds; ++n) {
      round.arrive_and_wait();
      event->synchronize();
      round.arrive_and_wait();
    }
  };
  const std::jthread first(wait, std::cref(sooner));
  const std::jthread second(wait, std::cref(sooner));
  const std::jthread third(wait, std::cref(later));
  for (int n = 0; n < kRounds; ++n) {
    stream.submit([n] {
      for (int i = 0; i < n % 256; ++i) cpu_relax();
    });
    sooner = stream.record();
    stream.submit([] {});
    later = stream.record();
    round.arrive_and_wait();
    round.arrive_and_wait();
    ASSERT_TRUE(stream.idle());
  }
}

// More operations that wait than there are cores, in streams of their own: each has a thread.
TEST(BackgroundThreads, AnOperationThatWaitsHoldsUpNoOtherStream) {
  constexpr std::size_t kHeld = 12;
  Gate gate;
  std::atomic<int> begun{0};
  for (std::size_t i = 0; i < kHeld; ++i) {
    HostStream& stream = new_stream();
    stream.submit([&begun] { begun.fetch_add(1); });
    gate.hold(Stream(stream));
  }
  watch([&] { return begun.load() == kHeld; });
  HostStream& last = new_stream();
  last.submit([] {});
  watch([&] { return last.idle(); });
  gate.open();
}

// Operations that wait for one another, in an order that one thread alone could not keep.
TEST(BackgroundThreads, StreamsThatWaitForOneAnotherAllEnd) {
  constexpr std::size_t kStreams = 9;
  std::vector<HostStream*> streams;
  Gate gate;
  for (std::size_t i = 0; i < kStreams; ++i) streams.push_back(&new_stream());
  gate.hold(Stream(*streams.back()));
  std::vector<int> values(kStreams, 0);
  streams.back()->submit([&] { values.back() = 1; });
  for (std::size_t i = kStreams - 1; i-- > 0;) {
    streams[i]->wait(streams[i + 1]->record());
    streams[i]->submit([&values, i] { values[i] = values[i + 1] + 1; });
  }
  gate.open();
  streams.front()->synchronize();
  EXPECT_EQ(values.front(), static_cast<int>(kStreams));
}

// Copies to many devices wake no more threads than there are cores to spare.
TEST(BackgroundThreads, NoMoreAreAwakeThanThereAreCoresBesideACaller) {
  std::vector<HostStream*> streams;
  const AllBusy busy;
  const BackgroundStats before = threads().stats();
  EXPECT_EQ(before.awake, before.wanted);
  for (std::size_t i = 0; i < 8; ++i) {
    streams.push_back(&new_stream());
    streams.back()->submit([] {}, false);
  }
  EXPECT_EQ(threads().stats().awake, before.awake);
  EXPECT_EQ(threads().stats().threads, before.threads);
  for (HostStream* stream : streams) stream->synchronize();
}

TEST(SharedWork, EachPieceIsDoneOnceWhoeverOpensWork) {
  const std::uint32_t kPieces = 500;
  std::vector<std::jthread> owners;
  for (int owner = 0; owner < 4; ++owner) {
    owners.emplace_back([=] {
      for (int round = 0; round < 20; ++round) {
        std::vector<int> done(kPieces, 0);  // written by whoever has the piece, read by the owner
        auto piece = [&](std::size_t i) { ++done[i]; };
        share(kPieces, piece);
        EXPECT_EQ(std::count(done.begin(), done.end(), 1), kPieces);
      }
    });
  }
}

TEST(SharedWork, NobodyWaitsForAHelperThatDoesNotCome) {
  const AllBusy busy;
  std::vector<std::size_t> order;
  auto piece = [&](std::size_t i) { order.push_back(i); };
  share(4, piece);
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3}));
}

// The owner's first piece ends only after another thread has had one. That is the last, or one
// before it: whoever has the last need not be the first of several helpers to say so.
TEST(SharedWork, ABackgroundThreadHelpsFromTheBack) {
  if (usable_cores() == 1) GTEST_SKIP() << "needs a second core, to share work with";
  constexpr std::size_t kPieces = 1000;  // far more than there are helpers
  std::atomic<std::size_t> first{kPieces};
  std::vector<std::thread::id> by(kPieces);
  const std::thread::id owner = std::this_thread::get_id();
  auto piece = [&](std::size_t i) {
    by[i] = std::this_thread::get_id();
    if (by[i] == owner) {
      first.wait(kPieces);
    } else {
      std::size_t none = kPieces;
      if (first.compare_exchange_strong(none, i)) first.notify_all();
    }
  };
  share(kPieces, piece);
  EXPECT_GE(first.load(), kPieces / 2);
  EXPECT_NE(by.back(), owner);
}

// Who shares from an operation of a stream is a background thread, and who waits for the stream is
// not: the first of its own pieces ends only after the other thread has had one.
TEST(SharedWork, WhatABackgroundThreadSharesItDoesFromTheBack) {
  if (usable_cores() == 1) GTEST_SKIP() << "needs a second core, to share work with";
  constexpr std::uint32_t kPieces = 64;
  std::atomic<bool> opened{false};
  std::atomic<std::size_t> helped{kPieces};
  std::atomic<std::size_t> first{kPieces};
  HostStream& stream = new_stream();
  const std::thread::id waiter = std::this_thread::get_id();
  auto piece = [&](std::size_t i) {
    if (std::this_thread::get_id() == waiter) {
      std::size_t none = kPieces;
      if (helped.compare_exchange_strong(none, i)) helped.notify_all();
    } else {  // and keeps that one until then, so that pieces are left however many help
      std::size_t none = kPieces;
      first.compare_exchange_strong(none, i);
      opened.store(true);
      helped.wait(kPieces);
    }
  };
  stream.submit([&] { share(kPieces, piece); }, false);
  watch([&] { return opened.load(); });
  stream.synchronize();
  EXPECT_GT(first.load(), kPieces / 2);  // other background threads may have come before
  EXPECT_EQ(helped.load(), 0U);
}

TEST(SharedWork, TheOwnerWaitsForThePiecesThatHelpersHaveInHand) {
  if (usable_cores() == 1) GTEST_SKIP() << "needs a second core, to share work with";
  std::atomic<bool> helped{false};
  bool ended = false;
  const std::thread::id owner = std::this_thread::get_id();
  auto piece = [&](std::size_t) {
    if (std::this_thread::get_id() == owner) {
      helped.wait(false);
    } else if (!helped.exchange(true)) {
      helped.notify_all();
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
      ended = true;
    }
  };
  share(2, piece);
  EXPECT_TRUE(ended);
}

// Where all other threads are busy, the one that waits for the stream takes part in what its
// operation shares.
TEST(SharedWork, AThreadThatWaitsHelps) {
  if (usable_cores() == 1) GTEST_SKIP() << "needs a second core, to share work with";
  std::atomic<bool> helped{false};
  std::atomic<bool> opened{false};
  HostStream& stream = new_stream();
  const std::thread::id waiter = std::this_thread::get_id();
  auto piece = [&](std::size_t) {
    if (std::this_thread::get_id() == waiter) {
      helped.store(true);
      helped.notify_all();
    } else {
      opened.store(true);
      helped.wait(false);
    }
  };
  stream.submit([&] { share(64, piece); });
  watch([&] { return opened.load(); });
  stream.synchronize();
  EXPECT_TRUE(helped.load());
}

}  // namespace background_threads_test
}  // namespace lockstep::detail
