// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/threads/letter_box.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#if defined(__linux__)
#include <pthread.h>
#include <signal.h>
#include <time.h>
#endif

namespace lockstep::detail {
namespace letter_box_test {

using Box = LetterBox<int>;

// Naps that nobody lives to see the end of.
constexpr std::chrono::hours kLong{24};

// A worker that counts what it accepts, until it has accepted `last`.
class Worker {
 public:
  explicit Worker(Box& box, int last) : box_(box), last_(last), thread_([this] { serve(); }) {}
  ~Worker() { thread_.join(); }

  int accepted() const { return accepted_.load(std::memory_order_acquire); }
  std::uint64_t parks() const { return parks_.load(); }

  // Waits for as long as it takes; a test that waits in vain is ended by ctest.
  void await_accepted(int count) const {
    while (accepted() < count) std::this_thread::yield();
  }
  void await_parks(std::uint64_t count) const {
    while (parks() < count) std::this_thread::yield();
  }

 private:
  void serve() {
    while (accepted() < last_) {
      box_.wait(false, parks_);
      if (box_.accept()) accepted_.fetch_add(1, std::memory_order_release);
    }
  }

  Box& box_;
  const int last_;
  std::atomic<int> accepted_{0};
  std::atomic<std::uint64_t> parks_{0};
  std::thread thread_;
};

TEST(LetterBox, OnlyAnOfferThatNobodyHasTakenCanBeWithdrawn) {
  Box box;
  std::atomic<std::uint64_t> parks{0};
  EXPECT_FALSE(box.withdraw());
  for (const Post kind : {Post::offer, Post::low_priority_offer}) {
    box.post(7, kind);
    EXPECT_TRUE(box.withdraw());
    EXPECT_FALSE(box.withdraw());
    box.wait(false, parks);
    EXPECT_FALSE(box.accept());

    box.post(7, kind);
    box.wait(false, parks);
    EXPECT_TRUE(box.accept());
    EXPECT_FALSE(box.withdraw());
  }
  box.post(7, Post::order);
  EXPECT_FALSE(box.withdraw());
  box.wait(false, parks);
  EXPECT_TRUE(box.accept());
  EXPECT_EQ(parks, 0U);
}

TEST(LetterBox, AnOfferAfterOneThatWasWithdrawnUnseenIsAccepted) {
  Box box;
  std::atomic<std::uint64_t> parks{0};
  box.post(7, Post::low_priority_offer);
  EXPECT_TRUE(box.withdraw());
  box.post(7, Post::low_priority_offer);
  box.wait(false, parks);
  EXPECT_TRUE(box.accept());
}

TEST(LetterBox, AParkedWorkerIsWokenByAnyPost) {
  for (const Post kind : {Post::order, Post::offer, Post::low_priority_offer}) {
    Box box(kLong);
    Worker worker(box, 1);
    worker.await_parks(1);
    EXPECT_TRUE(box.post(7, kind));
  }
}

TEST(LetterBox, AWorkerThatWasWokenForNothingParksAgain) {
  Box box;
  Worker worker(box, 1);
  worker.await_parks(1);
  EXPECT_TRUE(box.post(7, Post::offer));
  if (box.withdraw()) {
    worker.await_parks(2);
    EXPECT_TRUE(box.post(7, Post::order));
  }
}

TEST(LetterBox, ALowPriorityOfferIsFoundWithoutBeingAnnounced) {
  Box box;
  Worker worker(box, 20);
  for (int offer = 1; offer <= 20; ++offer) {
    box.post(7, Post::low_priority_offer);
    worker.await_accepted(offer);
  }
}

TEST(LetterBox, ALowPriorityOfferIsTakenAtTheSecondLook) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kShort{2};
  Box box(kShort);
  std::atomic<std::uint64_t> parks{0};
  box.post(7, Post::low_priority_offer);
  box.wait(false, parks);
  EXPECT_TRUE(box.accept());
  for (int i = 0; i < 3; ++i) {
    const Clock::time_point begin = Clock::now();
    box.post(7, Post::low_priority_offer);
    box.wait(false, parks);
    EXPECT_GE(Clock::now() - begin, kShort);
    EXPECT_TRUE(box.accept());
  }
  EXPECT_EQ(parks, 0U);
}

TEST(LetterBox, AnOfferMadeUrgentIsTakenAtTheFirstLook) {
  Box box(kLong);
  std::atomic<std::uint64_t> parks{0};
  for (int i = 0; i < 3; ++i) {
    box.post(7, Post::low_priority_offer);
    box.make_urgent();
    box.wait(false, parks);
    EXPECT_TRUE(box.accept());
  }
  EXPECT_EQ(parks, 0U);
}

#if defined(__linux__)
// The processor time of a thread, in nanoseconds.
long long time_of(std::thread& thread) {
  clockid_t clock;
  EXPECT_EQ(::pthread_getcpuclockid(thread.native_handle(), &clock), 0);
  timespec time;
  EXPECT_EQ(::clock_gettime(clock, &time), 0);
  return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

TEST(LetterBox, AParkedWorkerSleepsOnAfterMakeUrgentAndASignal) {
  struct sigaction nothing {};
  nothing.sa_handler = [](int) {};
  struct sigaction before;
  ASSERT_EQ(::sigaction(SIGUSR1, &nothing, &before), 0);
  Box box;
  std::atomic<std::uint64_t> parks{0};
  std::thread worker([&] { box.wait(false, parks); });
  while (parks == 0) std::this_thread::yield();
  box.make_urgent();
  EXPECT_EQ(::pthread_kill(worker.native_handle(), SIGUSR1), 0);
  constexpr std::chrono::milliseconds kWatched{100};
  const long long begin = time_of(worker);
  const auto end = std::chrono::steady_clock::now() + kWatched;
  while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_LT(std::chrono::nanoseconds(time_of(worker) - begin), kWatched / 4);
  box.post(7, Post::order);
  worker.join();
  ASSERT_EQ(::sigaction(SIGUSR1, &before, nullptr), 0);
}
#endif

// Gives a worker that is about to nap the time to fall asleep, mostly.
void yield_often() {
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
}

TEST(LetterBox, AnOrderAndMakeUrgentEndANap) {
  Box box(kLong);
  Worker worker(box, 4);
  box.post(7, Post::low_priority_offer);
  worker.await_accepted(1);
  yield_often();
  box.post(7, Post::order);
  worker.await_accepted(2);
  box.post(7, Post::low_priority_offer);  // after an order it parks, and is woken
  worker.await_accepted(3);
  yield_often();
  box.post(7, Post::low_priority_offer);
  box.make_urgent();
  worker.await_accepted(4);
}

TEST(LetterBox, AnOfferEndsANapAlsoAfterALowPriorityOneThatWasWithdrawn) {
  Box box(kLong);
  Worker worker(box, 2);
  box.post(7, Post::low_priority_offer);
  worker.await_accepted(1);
  yield_often();
  box.post(7, Post::low_priority_offer);
  if (box.withdraw()) box.post(7, Post::offer);
  worker.await_accepted(2);
}

TEST(LetterBox, AfterNapsWithoutOffersTheWorkerParks) {
  Box box;
  Worker worker(box, 2);
  worker.await_parks(1);
  EXPECT_TRUE(box.post(7, Post::low_priority_offer));
  worker.await_accepted(1);
  worker.await_parks(2);
  EXPECT_TRUE(box.post(7, Post::order));
}

TEST(LetterBox, EveryOfferIsEitherAcceptedOrWithdrawn) {
  constexpr int kOffers = 20000;
  Box box;
  int withdrawn = 0;
  int value = 0;  // written before each post, read and written by whoever has the offer
  std::atomic<int> accepted{0};
  std::thread worker([&] {
    std::atomic<std::uint64_t> parks{0};
    for (bool last = false; !last;) {
      box.wait(true, parks);
      const int* const letter = box.accept();
      if (letter == nullptr) continue;
      if (*letter != value) continue;  // and the test would not end
      last = value == kOffers;
      value = -value;
      accepted.fetch_add(1, std::memory_order_release);
    }
  });
  for (int i = 1; i <= kOffers; ++i) {
    value = i;
    box.post(i, i % 3 == 0 ? Post::offer : Post::low_priority_offer);
    if (i % 2 == 0) box.make_urgent();
    if (i < kOffers && box.withdraw()) {
      ++withdrawn;
      ASSERT_EQ(value, i);
    } else {
      while (accepted.load(std::memory_order_acquire) + withdrawn != i) std::this_thread::yield();
      ASSERT_EQ(value, -i);
    }
  }
  worker.join();
  EXPECT_EQ(accepted + withdrawn, kOffers);
}

}  // namespace letter_box_test
}  // namespace lockstep::detail
