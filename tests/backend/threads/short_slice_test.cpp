// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/threads/short_slice.hpp>
#include <lockstep/distributed/group/communication_thread.hpp>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <thread>

namespace lockstep::detail {
namespace short_slice_test {

// The calling thread's slice in nanoseconds; 0 where the kernel does not say.
std::uint64_t slice() {
  std::array<std::uint64_t, 6> attributes{};  // the kernel's sched_attr: the fourth is the runtime
  if (::syscall(SYS_sched_getattr, 0, attributes.data(), sizeof attributes, 0) != 0) return 0;
  return attributes[3];
}
int niceness() { return ::getpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid))); }

int policy() { return ::sched_getscheduler(0) & ~SCHED_RESET_ON_FORK; }

// Whether the calling thread gets a short slice when it asks.
bool is_granted() { return slice() != 0 && policy() == SCHED_OTHER && niceness() >= 0; }

TEST(ShortSlice, IsTheCallingThreadsAlone) {
  if (!is_granted()) GTEST_SKIP() << "a short slice is not granted here";
  const std::uint64_t before = slice();
  std::uint64_t asked = 0;
  std::uint64_t started = 0;
  std::thread([&asked, &started] {
    ask_for_short_slice();
    asked = slice();
    std::thread([&started] { started = slice(); }).join();
  }).join();
  EXPECT_EQ(asked, 100'000U);
  EXPECT_EQ(started, before);
  EXPECT_EQ(slice(), before);
}

TEST(ShortSlice, LeavesPolicyAndNicenessAlone) {
  std::thread([] {
    const auto id = static_cast<id_t>(::syscall(SYS_gettid));
    ASSERT_EQ(::setpriority(PRIO_PROCESS, id, niceness() + 1), 0);
    const int nice = niceness();
    const int before = policy();
    ask_for_short_slice();
    EXPECT_EQ(policy(), before);
    EXPECT_EQ(niceness(), nice);
  }).join();
}

TEST(ShortSlice, IsNotForThreadsOfAnotherPolicy) {
  for (const int other : {SCHED_BATCH, SCHED_IDLE}) {
    std::thread([other] {
      const sched_param parameters{};
      ASSERT_EQ(::sched_setscheduler(0, other, &parameters), 0);
      const std::uint64_t before = slice();
      ask_for_short_slice();
      EXPECT_EQ(policy(), other);
      EXPECT_EQ(slice(), before);
    }).join();
  }
}

TEST(ShortSlice, IsThatOfACommunicationThreadThatDoesNotPoll) {
  if (!is_granted()) GTEST_SKIP() << "a short slice is not granted here";
  using distributed::detail::CommunicationThread;
  const auto slice_of = [](CommunicationThread& thread) {
    std::uint64_t its = 0;  // ordered by `drain`
    thread.issue(CommunicationThread::Task([&its] { its = slice(); }));
    thread.drain();
    return its;
  };
  CommunicationThread sleeps;
  CommunicationThread polls("polls", CommunicationThread::Waits::polling);
  EXPECT_EQ(slice_of(sleeps), 100'000U);
  EXPECT_EQ(slice_of(polls), slice());
}

}  // namespace short_slice_test
}  // namespace lockstep::detail
