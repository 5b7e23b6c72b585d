// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/threads/worker_team.hpp>
#include <lockstep/error.hpp>

#include "support/forked.hpp"
#include "support/operator_new.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <latch>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::detail {
namespace {

// Yields until every worker there is has parked. False if that takes a minute.
bool all_workers_park() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (std::chrono::steady_clock::now() < deadline) {
    const TeamStats now = team_stats();
    if (now.parks - now.wake_ups == now.threads_created) return true;
    std::this_thread::yield();
  }
  return false;
}

std::string message_of(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    return caught.what();
  }
  return "";
}

struct CountsCalls {
  std::unique_ptr<std::atomic<int>> calls = std::make_unique<std::atomic<int>>(0);  // move-only
  void operator()(std::size_t) const { ++*calls; }
};

std::atomic<int> plain_function_calls{0};
void plain_function(std::size_t) { ++plain_function_calls; }

TEST(WorkerTeam, RunsEachShareOnceOnAThreadOfItsOwn) {
  for (const std::size_t n : {2U, 3U, 4U, 7U, 8U, 16U}) {
    std::vector<std::thread::id> threads(n);
    std::vector<int> calls(n);
    run_team(n, [&](std::size_t i) {
      threads[i] = std::this_thread::get_id();
      ++calls[i];
    });
    EXPECT_EQ(calls, std::vector<int>(n, 1));
    EXPECT_EQ(threads[0], std::this_thread::get_id());
    EXPECT_EQ(std::set(threads.begin(), threads.end()).size(), n);
  }
}

TEST(WorkerTeam, DoesNothingWithoutShares) {
  const TeamStats before = team_stats();
  run_team(0, [](std::size_t) { FAIL(); });
  EXPECT_TRUE(try_run_team(0, [](std::size_t) { FAIL(); }).empty());
  EXPECT_EQ(team_stats().shares_posted, before.shares_posted);
}

TEST(WorkerTeam, RunsASingleShareOnTheCallerAlone) {
  const TeamStats before = team_stats();
  std::thread::id thread;
  run_team(1, [&](std::size_t i) {
    EXPECT_EQ(i, 0U);
    thread = std::this_thread::get_id();
  });
  EXPECT_EQ(thread, std::this_thread::get_id());
  EXPECT_THROW(run_team(1, [](std::size_t) { throw std::out_of_range("alone"); }),
               std::out_of_range);
  const auto errors = try_run_team(1, [](std::size_t) { throw std::out_of_range("alone"); });
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(message_of(errors[0]), "alone");
  EXPECT_EQ(team_stats().shares_posted, before.shares_posted);
  EXPECT_EQ(team_stats().threads_created, before.threads_created);
}

TEST(WorkerTeam, TakesAnyCallable) {
  plain_function_calls = 0;
  run_team(3, plain_function);
  EXPECT_EQ(plain_function_calls, 3);
  const CountsCalls constant;
  run_team(4, constant);
  EXPECT_EQ(*constant.calls, 4);
  CountsCalls moved;
  const auto& calls = *moved.calls;
  EXPECT_EQ(try_run_team(2, moved).size(), 2U);
  EXPECT_EQ(calls, 2);
}

TEST(WorkerTeam, SharesThatWaitForEachOtherAllMakeProgress) {
  for (const std::ptrdiff_t n : {2, 4, 16}) {
    std::barrier meeting(n);
    std::atomic<int> meetings{0};
    run_team(static_cast<std::size_t>(n), [&](std::size_t) {
      for (int round = 0; round < 20; ++round) {
        meeting.arrive_and_wait();
        ++meetings;
      }
    });
    EXPECT_EQ(meetings, 20 * n);
  }
}

TEST(WorkerTeam, NestsThreeDeepWithAllLeavesRunningTogether) {
  for (int round = 0; round < 20; ++round) {
    std::barrier all_leaves(3 * 3 * 2);
    std::atomic<int> leaves{0};
    run_team(3, [&](std::size_t) {
      run_team(3, [&](std::size_t) {
        const auto caller = std::this_thread::get_id();
        run_team(2, [&](std::size_t i) {
          EXPECT_EQ(i == 0, std::this_thread::get_id() == caller);
          all_leaves.arrive_and_wait();
          ++leaves;
        });
      });
    });
    EXPECT_EQ(leaves, 18);
  }
}

// Calls a team again and again. The values are plain ints: the call itself must order them, to the
// shares and back.
void call_many_times(std::size_t n, int rounds) {
  std::vector<int> input(n);
  std::vector<int> output(n);
  for (int round = 0; round < rounds; ++round) {
    for (auto& value : input) value = round;
    run_team(n, [&](std::size_t i) { output[i] = input[i] + static_cast<int>(i); });
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(output[i], round + static_cast<int>(i));
  }
}

TEST(WorkerTeam, OrdersWhatCallerAndSharesWriteWhileTheySpin) { call_many_times(2, 500); }

TEST(WorkerTeam, OrdersWhatCallerAndSharesWriteWhileTheyPark) {
  call_many_times(static_cast<std::size_t>(team_stats().cores) + 1, 500);
}

TEST(WorkerTeam, ServesSeveralCallersAtOnce) {
  std::thread other(call_many_times, 3, 2000);
  call_many_times(2, 2000);
  other.join();
}

TEST(WorkerTeam, LetsAllSharesFinishBeforeItThrows) {
  for (const std::size_t thrower : {0U, 1U, 3U}) {
    std::latch about_to_throw(1);
    std::atomic<int> finished{0};
    try {
      run_team(4, [&](std::size_t i) {
        if (i == thrower) {
          about_to_throw.count_down();
          throw std::runtime_error("share " + std::to_string(i));
        }
        about_to_throw.wait();
        ++finished;
      });
      FAIL() << "expected the error of share " << thrower;
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(finished, 3);
      EXPECT_EQ(error.what(), "share " + std::to_string(thrower));
    }
  }
}

TEST(WorkerTeam, ThrowsTheErrorOfTheLowestShareEvenIfItComesLast) {
  std::latch higher_threw(2);
  try {
    run_team(4, [&](std::size_t i) {
      if (i == 0) return;
      if (i == 1) {
        higher_threw.wait();
      } else {
        higher_threw.count_down();
      }
      throw std::runtime_error(std::to_string(i));
    });
    FAIL() << "expected an error";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "1");
  }
}

TEST(WorkerTeam, ReturnsOneErrorAShare) {
  const auto errors = try_run_team(6, [](std::size_t i) {
    if (i % 2 == 0) throw std::runtime_error(std::to_string(i));
  });
  ASSERT_EQ(errors.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(message_of(errors[i]), i % 2 == 0 ? std::to_string(i) : "");
  }
  for (const auto& error : try_run_team(6, [](std::size_t) {})) EXPECT_FALSE(error);
}

TEST(WorkerTeam, KeepsNoErrorAlive) {
  const auto owned = std::make_shared<int>(0);
  EXPECT_THROW(run_team(4, [owned](std::size_t) { throw std::shared_ptr<int>(owned); }),
               std::shared_ptr<int>);
  EXPECT_EQ(owned.use_count(), 1);
}

TEST(WorkerTeam, ErrorsThatNobodyTookAreNotThoseOfTheNextTeam) {
  struct Refusal {};
  const auto failing = [](std::size_t index) { throw std::runtime_error(std::to_string(index)); };
  const auto refuse = [](std::size_t, const std::exception_ptr&) { throw Refusal(); };
  EXPECT_THROW(TeamLease(4).run(failing, refuse), Refusal);
  for (const std::exception_ptr& error : try_run_team(4, [](std::size_t) {})) EXPECT_FALSE(error);
}

TEST(WorkerTeam, ALeaseThatIsNotUsedGivesItsWorkersBack) {
  run_team(3, [](std::size_t) {});
  const TeamStats before = team_stats();
  {
    const TeamLease unused(3);
    EXPECT_EQ(team_stats().running, before.running + 3);
  }
  EXPECT_EQ(team_stats().running, before.running);
  run_team(3, [](std::size_t) {});
  EXPECT_EQ(team_stats().threads_created, before.threads_created);
}

TEST(WorkerTeam, CarriesErrorsOutOfNestedTeams) {
  const auto errors = try_run_team(3, [](std::size_t outer) {
    run_team(3, [outer](std::size_t inner) {
      if (outer > 0 && inner > 0) {
        throw std::runtime_error(std::to_string(outer) + "/" + std::to_string(inner));
      }
    });
  });
  EXPECT_EQ(message_of(errors[0]), "");
  EXPECT_EQ(message_of(errors[1]), "1/1");
  EXPECT_EQ(message_of(errors[2]), "2/1");
}

TEST(WorkerTeam, CreatesNoMoreThreadsThanWereEverBusyTogether) {
  const auto work = [] {
    run_team(2, [](std::size_t) { run_team(3, [](std::size_t) {}); });
    run_team(6, [](std::size_t) {});
  };
  run_team(6, [](std::size_t) {});
  const std::uint64_t created = team_stats().threads_created;
  EXPECT_GE(created, 5U);
  for (int round = 0; round < 20; ++round) work();
  EXPECT_EQ(team_stats().threads_created, created);
}

TEST(WorkerTeam, GivesAShareToTheSameThreadEachTime) {
  const auto threads_of = [](std::size_t n) {
    std::vector<std::thread::id> threads(n);
    run_team(n, [&](std::size_t i) { threads[i] = std::this_thread::get_id(); });
    return threads;
  };
  const auto threads = threads_of(8);
  const auto few = threads_of(3);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(few[i], threads[i]);
  EXPECT_EQ(threads_of(8), threads);
}

TEST(WorkerTeam, ParksItsWorkersWhenIdleAndWakesEachOnce) {
  run_team(8, [](std::size_t) {});
  for (const std::size_t n : {2U, 3U, 8U}) {
    ASSERT_TRUE(all_workers_park());
    const TeamStats before = team_stats();
    run_team(n, [](std::size_t) {});
    const TeamStats after = team_stats();
    EXPECT_EQ(after.shares_posted - before.shares_posted, n - 1);
    EXPECT_EQ(after.wake_ups - before.wake_ups, n - 1);
  }
  EXPECT_TRUE(all_workers_park());
}

// Whether threads may spin depends on this number alone.
TEST(WorkerTeam, CountsTheThreadsThatAreInsideATeam) {
  EXPECT_EQ(team_stats().running, 0U);
  EXPECT_GE(team_stats().cores, 1U);
  run_team(4, [](std::size_t) { EXPECT_EQ(team_stats().running, 4U); });
  std::barrier outer(2);
  run_team(2, [&](std::size_t i) {
    // Each outer share is a thread already, so an inner team of 3 adds 2.
    if (i == 0) run_team(3, [](std::size_t) { EXPECT_EQ(team_stats().running, 4U); });
    outer.arrive_and_wait();
    if (i == 1) run_team(3, [](std::size_t) { EXPECT_EQ(team_stats().running, 4U); });
    outer.arrive_and_wait();
    EXPECT_EQ(team_stats().running, 2U);
    outer.arrive_and_wait();
  });
  EXPECT_THROW(run_team(3, [](std::size_t) { throw 1; }), int);
  EXPECT_EQ(team_stats().running, 0U);
}

TEST(WorkerTeam, AllocatesNothingOnceItsWorkersAreThere) {
  run_team(8, [](std::size_t) {});
  const std::uint64_t before = testing::operator_new_calls();
  for (int round = 0; round < 20; ++round) {
    run_team(8, [](std::size_t) {});
    run_team(2, [](std::size_t) { run_team(3, [](std::size_t) {}); });
  }
  EXPECT_EQ(testing::operator_new_calls(), before);
}

#if defined(__GLIBC__)
// Makes every thread that is started with default attributes ask for a stack that does not fit into
// the address space.
class NoNewThreads {
 public:
  NoNewThreads() {
    ::pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    ::pthread_attr_init(&huge);
    ::pthread_attr_setstacksize(&huge, std::size_t{1} << 50);
    ::pthread_setattr_default_np(&huge);
    ::pthread_attr_destroy(&huge);
  }
  NoNewThreads(const NoNewThreads&) = delete;
  NoNewThreads& operator=(const NoNewThreads&) = delete;
  ~NoNewThreads() {
    ::pthread_setattr_default_np(&before_);
    ::pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

TEST(WorkerTeam, RunsNothingIfThreadsCannotBeStarted) {
  run_team(4, [](std::size_t) {});
  const std::uint64_t created = team_stats().threads_created;
  const std::size_t too_many = static_cast<std::size_t>(created) + 3;
  std::atomic<int> calls{0};
  {
    const NoNewThreads limit;
    try {
      run_team(too_many, [&](std::size_t) { ++calls; });
      FAIL() << "expected an Error";
    } catch (const Error& error) {
      EXPECT_NE(std::string_view(error.what())
                    .find(str(too_many, " shares need ", too_many - 1, " free worker threads")),
                std::string_view::npos)
          << error.what();
    }
    EXPECT_EQ(calls, 0);
    // All that were there are free again.
    run_team(static_cast<std::size_t>(created) + 1, [&](std::size_t) { ++calls; });
    EXPECT_EQ(calls, static_cast<int>(created) + 1);
    EXPECT_EQ(team_stats().threads_created, created);
  }
  run_team(too_many, [](std::size_t) {});
  EXPECT_EQ(team_stats().threads_created, too_many - 1);
}
#endif

TEST(WorkerTeam, ThrowsInAForkedChildInsteadOfWaitingForThreadsItHasNot) {
  run_team(3, [](std::size_t) {});
  const int status = testing::status_when_forked([] {
    bool alone = false;
    run_team(1, [&](std::size_t) { alone = true; });
    if (!alone) return 1;
    bool started = false;
    try {
      run_team(2, [&](std::size_t) { started = true; });
    } catch (const Error& error) {
      if (started) return 2;
      return std::string_view(error.what()).find("forked") != std::string_view::npos ? 0 : 3;
    }
    return 4;
  });
  EXPECT_EQ(status, 0);
  std::atomic<int> calls{0};
  run_team(3, [&](std::size_t) { ++calls; });  // the parent is as before
  EXPECT_EQ(calls, 3);
}

TEST(WorkerTeam, ThrowsInAChildForkedInsideTheCallersShare) {
  const pid_t parent = ::getpid();
  std::latch forked_already(1);
  std::atomic<int> calls{0};
  pid_t child = -1;
  try {
    run_team(3, [&](std::size_t i) {
      if (i == 0) {
        child = ::fork();
        if (child == 0) {
          ::alarm(60);
          return;
        }
        forked_already.count_down();
      } else {
        forked_already.wait();
      }
      ++calls;
    });
  } catch (const Error&) {
    if (::getpid() != parent) ::_exit(0);
    throw;
  }
  if (::getpid() != parent) ::_exit(1);
  EXPECT_EQ(calls, 3);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace lockstep::detail
