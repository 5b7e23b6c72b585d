// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/group/carrier.hpp>
#include <lockstep/distributed/group/communication_thread.hpp>
#include <lockstep/distributed/group/group_state.hpp>
#include <lockstep/distributed/work.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include "support/allocation_faults.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include <pthread.h>

// Where the carrier of a group ends: not beside an operation of another group of the rank, since
// most of what connects ranks takes one thread at a time.
namespace lockstep {
namespace group_state_test {

using distributed::detail::Call;
using distributed::detail::Carrier;
using distributed::detail::Collective;
using distributed::detail::CommunicationThread;
using distributed::detail::Done;
using distributed::detail::Execution;
using distributed::detail::GroupState;
using distributed::detail::Message;
using distributed::detail::Parts;
using Task = CommunicationThread::Task;

// A rank alone. Its end, and that of a part made of it, calls `at_end`, and so does leaving.
class Lonely final : public Carrier {
 public:
  explicit Lonely(const std::function<void()>& at_end) : Carrier(0, 1), at_end_(at_end) {}
  ~Lonely() override { at_end_(); }

  void run(const Call&, std::span<const void* const>, std::span<void* const>, const Stream*,
           const Done&) override {}
  void leave(const std::exception_ptr&) noexcept override { at_end_(); }
  void start(const Message&, void*, Done done, const Stream*) override { done(nullptr); }
  std::unique_ptr<Carrier> split(std::span<const int>) override {
    return std::make_unique<Lonely>(at_end_);
  }

 private:
  const std::function<void()>& at_end_;
};

// A rank alone whose messages are taken when it has been polled three times, and whose collectives
// wait until it has been broken off.
class Polled final : public Carrier {
 public:
  Polled() : Carrier(0, 1) {}

  void run(const Call&, std::span<const void* const>, std::span<void* const>, const Stream*,
           const Done&) override {
    while (!broken_) std::this_thread::yield();
    ++ran;
  }
  void leave(const std::exception_ptr&) noexcept override { ran_before_it_left = ran; }
  void break_off(const std::exception_ptr&) noexcept override { broken_ = true; }
  void start(const Message&, void*, Done done, const Stream*) override {
    ++started;
    done_ = std::move(done);
  }
  bool progress() override {
    if (!done_ || ++polled_ % 3 != 0) return done_ != nullptr;
    std::exchange(done_, nullptr)(nullptr);
    return false;
  }
  std::unique_ptr<Carrier> split(std::span<const int>) override { return nullptr; }

  int started = 0;
  int ran = 0;
  int ran_before_it_left = -1;

 private:
  Done done_;
  int polled_ = 0;
  std::atomic<bool> broken_{false};
};

TEST(GroupState, AMessageThatDoesNotProgressByItselfIsPolled) {
  GroupState group(std::make_unique<Polled>(), std::make_shared<CommunicationThread>(), Device());
  const Tensor one = ones({1});
  for (int i = 0; i < 3; ++i) {
    group.message({.peer = 0, .count = 1, .sends = i % 2 == 0}, one).wait();
  }
}

// Once the carrier has a message nothing can fail: it would be told twice.
TEST(GroupState, AMessageThatHasBegunNeedsNoMemory) {
  const Tensor one = ones({1});
  int failed = 0;
  for (std::uint64_t n = 0;; ++n) {
    auto owned = std::make_unique<Polled>();
    const Polled& carrier = *owned;
    const auto thread = std::make_shared<CommunicationThread>();
    GroupState group(std::move(owned), thread, Device());
    thread->issue(Task([n]() noexcept { testing::fail_allocation(n); }));
    const distributed::Work work = group.message({.peer = 0, .count = 1}, one);
    std::exception_ptr error;
    try {
      work.wait();
    } catch (const std::bad_alloc&) {
      error = std::current_exception();
    }
    bool met = false;
    thread->issue(Task([&met]() noexcept { met = testing::end_allocation_faults(); }));
    thread->drain();
    EXPECT_EQ(carrier.started, error ? 0 : 1) << n;
    if (error) ++failed;
    if (!met) break;
  }
  EXPECT_GT(failed, 0);
}

TEST(GroupState, WhoCannotIssueLeavesAfterWhatItHasIssued) {
  constexpr int kIssued = 200;
  auto owned = std::make_unique<Polled>();
  const Polled& carrier = *owned;
  GroupState group(std::move(owned), std::make_shared<CommunicationThread>(), Device());
  const Tensor one = ones({1});
  const Parts parts{.tensors = {&one, 1}};
  const auto issue = [&] {
    (void)group.collective({.collective = Collective::all_reduce, .count = 1}, parts, parts,
                           Execution::queued);
  };
  for (int i = 0; i < kIssued; ++i) issue();
  testing::fail_allocation(0, true);
  EXPECT_THROW(issue(), std::bad_alloc);
  EXPECT_TRUE(testing::end_allocation_faults());
  EXPECT_EQ(carrier.ran_before_it_left, kIssued);
}

TEST(CommunicationThread, HasItsName) {
  CommunicationThread thread("a rank's thread");
  std::array<char, 16> name{};
  thread.issue(
      Task([&]() noexcept { ::pthread_getname_np(::pthread_self(), name.data(), name.size()); }));
  thread.drain();
  EXPECT_STREQ(name.data(), "a rank's thread");
}

TEST(GroupState, WithoutMemoryItEndsBetweenOperations) {
  bool beside = false;
  for (int i = 0; i < 50; ++i) {
    std::atomic<bool> runs = false;
    std::atomic<bool> ends = false;
    const std::function<void()> at_end = [&] { beside = beside || runs; };
    const auto thread = std::make_shared<CommunicationThread>();
    std::optional<GroupState> group(std::in_place, std::make_unique<Lonely>(at_end), thread,
                                    Device());
    thread->issue(Task([&]() noexcept {
      runs = true;
      while (!ends) std::this_thread::yield();
      for (int n = 0; n < 100; ++n) std::this_thread::yield();
      runs = false;
    }));
    while (!runs) std::this_thread::yield();
    testing::fail_allocation(0, true);
    try {
      while (true) thread->issue(Task([]() noexcept {}));
    } catch (const std::bad_alloc&) {  // as many as there is room for
    }
    ends = true;
    group.reset();
    EXPECT_TRUE(testing::end_allocation_faults());
    thread->drain();
  }
  EXPECT_FALSE(beside);
}

TEST(GroupState, APartForWhichThereIsNoMemoryEndsBetweenOperations) {
  const auto thread = std::make_shared<CommunicationThread>();
  std::atomic<bool> beside = false;
  bool watch = false;
  const std::function<void()> at_end = [&] {
    if (!watch) return;
    testing::begin_allocations_of_others();  // this test's own
    std::thread other([&] {
      if (thread->run_here([] {})) beside = true;
    });
    testing::end_allocations_of_others();
    other.join();
  };
  GroupState group(std::make_unique<Lonely>(at_end), thread, Device());
  int failed = 0;
  for (std::uint64_t n = 0;; ++n) {
    watch = true;
    testing::fail_allocation(n);
    try {
      (void)group.split({0});
    } catch (const std::bad_alloc&) {
      ++failed;
    }
    const bool met = testing::end_allocation_faults();
    watch = false;
    if (!met) break;
  }
  EXPECT_GT(failed, 0);
  EXPECT_FALSE(beside);
}

}  // namespace group_state_test
}  // namespace lockstep
