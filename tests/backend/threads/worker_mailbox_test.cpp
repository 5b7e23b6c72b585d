// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/threads/worker_mailbox.hpp>

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace lockstep::detail {
namespace worker_mailbox_test {

using Mailbox = WorkerMailbox<int>;

// Naps that nobody lives to see the end of.
constexpr std::chrono::hours kLong{24};

// A worker that counts what it accepts, until it has accepted `last`.
class Worker {
 public:
  explicit Worker(Mailbox& mailbox, int last)
      : box_(mailbox), last_(last), thread_([this] { serve(); }) {}
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

  Mailbox& box_;
  const int last_;
  std::atomic<int> accepted_{0};
  std::atomic<std::uint64_t> parks_{0};
  std::thread thread_;
};

TEST(WorkerMailbox, OnlyAnOfferThatNobodyHasTakenCanBeWithdrawn) {
  Mailbox mailbox;
  std::atomic<std::uint64_t> parks{0};
  EXPECT_FALSE(mailbox.withdraw());
  for (const Post kind : {Post::offer, Post::low_priority_offer}) {
    mailbox.post(7, kind);
    EXPECT_TRUE(mailbox.withdraw());
    EXPECT_FALSE(mailbox.withdraw());
    mailbox.wait(false, parks);
    EXPECT_FALSE(mailbox.accept());

    mailbox.post(7, kind);
    mailbox.wait(false, parks);
    EXPECT_TRUE(mailbox.accept());
    EXPECT_FALSE(mailbox.withdraw());
  }
  mailbox.post(7, Post::order);
  EXPECT_FALSE(mailbox.withdraw());
  mailbox.wait(false, parks);
  EXPECT_TRUE(mailbox.accept());
  EXPECT_EQ(parks, 0U);
}

TEST(WorkerMailbox, AnOfferAfterOneThatWasWithdrawnUnseenIsAccepted) {
  Mailbox mailbox;
  std::atomic<std::uint64_t> parks{0};
  mailbox.post(7, Post::low_priority_offer);
  EXPECT_TRUE(mailbox.withdraw());
  mailbox.post(7, Post::low_priority_offer);
  mailbox.wait(false, parks);
  EXPECT_TRUE(mailbox.accept());
}

TEST(WorkerMailbox, AParkedWorkerIsWokenByAnyPost) {
  for (const Post kind : {Post::order, Post::offer, Post::low_priority_offer}) {
    Mailbox mailbox(kLong);
    Worker worker(mailbox, 1);
    worker.await_parks(1);
    EXPECT_TRUE(mailbox.post(7, kind));
  }
}

TEST(WorkerMailbox, AWorkerThatWasWokenForNothingParksAgain) {
  Mailbox mailbox;
  Worker worker(mailbox, 1);
  worker.await_parks(1);
  EXPECT_TRUE(mailbox.post(7, Post::offer));
  if (mailbox.withdraw()) {
    worker.await_parks(2);
    EXPECT_TRUE(mailbox.post(7, Post::order));
  }
}

TEST(WorkerMailbox, ALowPriorityOfferIsFoundWithoutBeingAnnounced) {
  Mailbox mailbox;
  Worker worker(mailbox, 20);
  for (int offer = 1; offer <= 20; ++offer) {
    mailbox.post(7, Post::low_priority_offer);
    worker.await_accepted(offer);
  }
}

TEST(WorkerMailbox, ALowPriorityOfferIsTakenAtTheSecondLook) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kShort{2};
  Mailbox mailbox(kShort);
  std::atomic<std::uint64_t> parks{0};
  mailbox.post(7, Post::low_priority_offer);
  mailbox.wait(false, parks);
  EXPECT_TRUE(mailbox.accept());
  for (int i = 0; i < 3; ++i) {
    const Clock::time_point begin = Clock::now();
    mailbox.post(7, Post::low_priority_offer);
    mailbox.wait(false, parks);
    EXPECT_GE(Clock::now() - begin, kShort);
    EXPECT_TRUE(mailbox.accept());
  }
  EXPECT_EQ(parks, 0U);
}

TEST(WorkerMailbox, AnOfferMadeUrgentIsTakenAtTheFirstLook) {
  Mailbox mailbox(kLong);
  std::atomic<std::uint64_t> parks{0};
  for (int i = 0; i < 3; ++i) {
    mailbox.post(7, Post::low_priority_offer);
    mailbox.make_urgent();
    mailbox.wait(false, parks);
    EXPECT_TRUE(mailbox.accept());
  }
  EXPECT_EQ(parks, 0U);
}

// The processor time of a thread, in nanoseconds.
long long time_of(std::thread& thread) {
  clockid_t clock;
  EXPECT_EQ(::pthread_getcpuclockid(thread.native_handle(), &clock), 0);
  timespec time;
  EXPECT_EQ(::clock_gettime(clock, &time), 0);
  return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

TEST(WorkerMailbox, AParkedWorkerSleepsOnAfterMakeUrgentAndASignal) {
  struct sigaction nothing {};
  nothing.sa_handler = [](int) {};
  struct sigaction before;
  ASSERT_EQ(::sigaction(SIGUSR1, &nothing, &before), 0);
  Mailbox mailbox;
  std::atomic<std::uint64_t> parks{0};
  std::thread worker([&] { mailbox.wait(false, parks); });
  while (parks == 0) std::this_thread::yield();
  mailbox.make_urgent();
  EXPECT_EQ(::pthread_kill(worker.native_handle(), SIGUSR1), 0);
  constexpr std::chrono::milliseconds kWatched{100};
  const long long begin = time_of(worker);
  const auto end = std::chrono::steady_clock::now() + kWatched;
  while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_LT(std::chrono::nanoseconds(time_of(worker) - begin), kWatched / 4);
  mailbox.post(7, Post::order);
  worker.join();
  ASSERT_EQ(::sigaction(SIGUSR1, &before, nullptr), 0);
}

// Gives a worker that is about to nap the time to fall asleep, mostly.
void yield_often() {
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
}

TEST(WorkerMailbox, AnOrderAndMakeUrgentEndANap) {
  Mailbox mailbox(kLong);
  Worker worker(mailbox, 4);
  mailbox.post(7, Post::low_priority_offer);
  worker.await_accepted(1);
  yield_often();
  mailbox.post(7, Post::order);
  worker.await_accepted(2);
  mailbox.post(7, Post::low_priority_offer);  // after an order it parks, and is woken
  worker.await_accepted(3);
  yield_often();
  mailbox.post(7, Post::low_priority_offer);
  mailbox.make_urgent();
  worker.await_accepted(4);
}

TEST(WorkerMailbox, AnOfferEndsANapAlsoAfterALowPriorityOneThatWasWithdrawn) {
  Mailbox mailbox(kLong);
  Worker worker(mailbox, 2);
  mailbox.post(7, Post::low_priority_offer);
  worker.await_accepted(1);
  yield_often();
  mailbox.post(7, Post::low_priority_offer);
  if (mailbox.withdraw()) mailbox.post(7, Post::offer);
  worker.await_accepted(2);
}

TEST(WorkerMailbox, AfterNapsWithoutOffersTheWorkerParks) {
  Mailbox mailbox;
  Worker worker(mailbox, 2);
  worker.await_parks(1);
  EXPECT_TRUE(mailbox.post(7, Post::low_priority_offer));
  worker.await_accepted(1);
  worker.await_parks(2);
  EXPECT_TRUE(mailbox.post(7, Post::order));
}

TEST(WorkerMailbox, EveryOfferIsEitherAcceptedOrWithdrawn) {
  constexpr int kOffers = 20000;
  Mailbox mailbox;
  int withdrawn = 0;
  int value = 0;  // written before each post, read and written by whoever has the offer
  std::atomic<int> accepted{0};
  std::thread worker([&] {
    std::atomic<std::uint64_t> parks{0};
    for (bool last = false; !last;) {
      mailbox.wait(true, parks);
      const int* const message = mailbox.accept();
      if (message == nullptr) continue;
      if (*message != value) continue;  // and the test would not end
      last = value == kOffers;
      value = -value;
      accepted.fetch_add(1, std::memory_order_release);
    }
  });
  for (int i = 1; i <= kOffers; ++i) {
    value = i;
    mailbox.post(i, i % 3 == 0 ? Post::offer : Post::low_priority_offer);
    if (i % 2 == 0) mailbox.make_urgent();
    if (i < kOffers && mailbox.withdraw()) {
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

}  // namespace worker_mailbox_test
}  // namespace lockstep::detail
