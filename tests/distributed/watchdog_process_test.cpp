// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/store/tcp_store.hpp>
#include <lockstep/distributed/watchdog/watchdog.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <initializer_list>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

// Ranks in processes of their own, of which some fail in the ways that only processes can.
namespace lockstep::distributed {
namespace watchdog_process_test {

using namespace std::chrono_literals;
using detail::Call;
using detail::Collective;

constexpr const char* kVariable = "LOCKSTEP_TEST_WATCHDOG_RANK";
constexpr int kReport = 3;  // the descriptor of a rank by which it tells the test

const Call kSum{.collective = Collective::all_reduce, .dtype = Dtype::f32, .count = 1048576};
const std::string kWaits = "is in collective #2, all_reduce(sum) of 1048576 x f32";

void tell(std::string_view text) {
  if (::write(kReport, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    std::_Exit(EXIT_FAILURE);
  }
}

// A rank, in its process. After the first collective, when all have left it, it
//   waits     in the second, until the watchdog releases it
//   computes  until it is killed
//   throws    when the test says so
//   differs   from the others in the second, when the test says so, and waits
//   ends      in good order, when the test says so
// It reports '+' when it is there, then its error, if any.
void run_rank(const char* variable) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::istringstream arguments(variable);
  int rank = 0;
  int size = 0;
  std::uint16_t port = 0;
  std::chrono::milliseconds::rep heartbeat_timeout = 0;
  std::chrono::milliseconds::rep collective_timeout = 0;
  std::string act;
  arguments >> rank >> size >> port >> heartbeat_timeout >> collective_timeout >> act;
  TCPStore store("localhost", {.port = port});
  std::promise<void> fault;
  Watchdog watchdog(rank, size, store,
                    {.interval = 20ms,
                     .heartbeat_timeout = std::chrono::milliseconds(heartbeat_timeout),
                     .collective_timeout = std::chrono::milliseconds(collective_timeout)},
                    [&] { fault.set_value(); });
  std::vector<int> all;
  for (int i = 0; i < size; ++i) all.push_back(i);
  const auto progress = watchdog.watch(all);
  { const InCollective first(progress.get(), kSum); }
  if (store.add("left the first", 1) == size) store.set("all have left it", {});
  store.get("all have left it");  // so that none waits in the second for a process to start
  if (act == "throws" || act == "ends" || act == "differs") store.get("go");
  if (act == "throws") throw std::runtime_error("in forward");
  if (act == "ends") return;
  if (act == "computes") {
    tell("+");
    while (true) ::pause();
  }
  Call call = kSum;
  if (act == "differs") call.dtype = Dtype::f64;
  const InCollective second(progress.get(), call);
  tell("+");
  fault.get_future().wait();
  try {
    watchdog.check();
  } catch (const WatchdogError& error) {
    tell(error.what());
  }
}

// A process that runs a rank. It is killed if it is still there at the end of the test.
class Process {
 public:
  explicit Process(const std::string& arguments) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw Error("no pipe");
    const std::string variable = std::string(kVariable) + "=" + arguments;
    std::vector<char*> environment{const_cast<char*>(variable.c_str())};
    for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
    environment.push_back(nullptr);
    std::string program = "/proc/self/exe";
    std::string filter = "--gtest_filter=WatchdogProcess.AKilledRankIsNamed";
    std::array<char*, 3> argv{program.data(), filter.data(), nullptr};
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], kReport);
    ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    const int error =
        ::posix_spawn(&id_, program.c_str(), &actions, nullptr, argv.data(), environment.data());
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    report_ = ends[0];
    if (error != 0) {
      ::close(report_);
      throw Error("cannot start a process");
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    ::close(report_);
    if (id_ == 0) return;
    ::kill(id_, SIGKILL);
    wait(0);
  }

  // True when it says that it is where it should be; false if it has ended.
  bool is_there() {
    char byte = 0;
    return read(&byte, 1) == 1 && byte == '+';
  }
  // What it says from then on to its end.
  std::string rest() {
    std::string text;
    std::array<char, 512> part{};
    while (const std::size_t got = read(part.data(), part.size())) text.append(part.data(), got);
    return text;
  }

  void send(int signal) { ::kill(id_, signal); }
  // Returns when it is stopped.
  void stop() {
    send(SIGSTOP);
    const int status = wait(WUNTRACED);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  // Returns when it is dead, and all that it had open is closed.
  void kill() {
    send(SIGKILL);
    (void)wait(0);
    id_ = 0;
  }
  // Waits for its end, and expects that it was a good one.
  void expect_good_end() {
    const int status = wait(0);
    id_ = 0;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }

 private:
  int wait(int options) const {
    int status = 0;
    while (::waitpid(id_, &status, options) < 0 && errno == EINTR) {
    }
    return status;
  }
  std::size_t read(char* into, std::size_t size) const {
    ssize_t got = 0;
    do {
      got = ::read(report_, into, size);
    } while (got < 0 && errno == EINTR);
    return got > 0 ? static_cast<std::size_t>(got) : 0;
  }

  pid_t id_ = 0;
  int report_ = -1;
};

struct Limits {
  std::chrono::milliseconds heartbeat = 10min;
  std::chrono::milliseconds collective = 1h;
};

// A process for each rank, each doing what it is told.
class Processes {
 public:
  explicit Processes(std::initializer_list<const char*> acts, Limits limits = {}) {
    int rank = 0;
    for (const char* act : acts) {
      ranks_.push_back(std::make_unique<Process>(lockstep::detail::str(
          rank++, ' ', acts.size(), ' ', store_.port(), ' ', limits.heartbeat.count(), ' ',
          limits.collective.count(), ' ', act)));
    }
  }

  Process& operator[](std::size_t rank) { return *ranks_[rank]; }

  bool are_there(std::initializer_list<std::size_t> ranks) {
    return std::all_of(ranks.begin(), ranks.end(),
                       [this](std::size_t rank) { return ranks_[rank]->is_there(); });
  }

  // Lets those go on that throw, end or differ: once the others are there, who would be left alone
  // if rank 0 had ended before they came.
  void go() { store_.set("go", {}); }

  // Expects that these ranks wait, are all released with an error that contains all of `parts`, say
  // where they were, and end.
  void expect_release(std::initializer_list<std::size_t> ranks,
                      std::initializer_list<const char*> parts) {
    for (const std::size_t rank : ranks) {
      const std::string text = ranks_[rank]->rest();
      for (const char* part : parts) {
        EXPECT_NE(text.find(part), std::string::npos) << "rank " << rank << " says: " << text;
      }
      EXPECT_NE(text.find(lockstep::detail::str("this rank, ", rank, ", ", kWaits)),
                std::string::npos)
          << text;
      ranks_[rank]->expect_good_end();
    }
  }

 private:
  TCPStore store_{"localhost", {.port = 0, .is_server = true}};
  std::vector<std::unique_ptr<Process>> ranks_;
};

TEST(WatchdogProcess, AKilledRankIsNamed) {
  if (const char* rank = std::getenv(kVariable)) return run_rank(rank);
  Processes ranks{"waits", "waits", "computes"};
  ASSERT_TRUE(ranks.are_there({0, 1, 2}));
  ranks[2].send(SIGKILL);
  ranks.expect_release({0, 1}, {"rank 2 has died"});
}

TEST(WatchdogProcess, AKilledRankZeroIsNamed) {
  Processes ranks{"computes", "waits", "waits"};
  ASSERT_TRUE(ranks.are_there({0, 1, 2}));
  ranks[0].send(SIGKILL);
  ranks.expect_release({1, 2}, {"rank 0 has died"});
}

TEST(WatchdogProcess, ARankThatIsKilledInACollectiveIsNamed) {
  Processes ranks{"waits", "waits", "waits"};
  ASSERT_TRUE(ranks.are_there({0, 1, 2}));
  ranks[1].send(SIGTERM);
  ranks.expect_release({0, 2}, {"rank 1 has died"});
}

TEST(WatchdogProcess, AStoppedRankIsNamed) {
  Processes ranks({"waits", "waits", "computes"}, {.heartbeat = 2s});
  ASSERT_TRUE(ranks.are_there({0, 1, 2}));
  ranks[2].stop();
  ranks.expect_release({0, 1}, {"rank 2 has not answered for ", "is stopped",
                                "wait for it in collective #2, all_reduce(sum)"});
}

TEST(WatchdogProcess, AStoppedRankZeroIsNamed) {
  Processes ranks({"computes", "waits", "waits"}, {.heartbeat = 2s});
  ASSERT_TRUE(ranks.are_there({0, 1, 2}));
  ranks[0].stop();
  ranks.expect_release({1, 2}, {"rank 0 has not answered for "});
}

TEST(WatchdogProcess, ARankThatHangsIsNamed) {
  Processes ranks({"waits", "computes", "waits"}, {.collective = 1s});
  ASSERT_TRUE(ranks.are_there({0, 1, 2}));
  ranks.expect_release({0, 2},
                       {"rank 1 has not come to a collective for ", "left its last one, #1"});
}

TEST(WatchdogProcess, ARankThatThrowsIsNamed) {
  Processes ranks{"waits", "throws", "waits"};
  ASSERT_TRUE(ranks.are_there({0, 2}));
  ranks.go();
  ranks.expect_release({0, 2}, {"rank 1 has failed: an exception has ended it"});
}

TEST(WatchdogProcess, ARankWithFewerBatchesIsNamed) {
  Processes ranks{"waits", "waits", "ends"};
  ASSERT_TRUE(ranks.are_there({0, 1}));
  ranks.go();
  ranks.expect_release({0, 1}, {"rank 2 has ended after collective #1", "for it in collective #2"});
  ranks[2].expect_good_end();
}

TEST(WatchdogProcess, ARankInAnotherCollectiveIsNamed) {
  Processes ranks{"waits", "differs", "waits"};
  ASSERT_TRUE(ranks.are_there({0, 2}));
  ranks.go();
  ranks.expect_release({0, 2}, {"is in collective #2, all_reduce(sum) of 1048576 x f", " x f64",
                                "all ranks must call the same"});
}

// The first is named, and the other as well, if it was not known to follow from the first.
TEST(WatchdogProcess, TwoKilledRanksAreNamed) {
  Processes ranks{"waits", "computes", "computes", "waits"};
  ASSERT_TRUE(ranks.are_there({0, 1, 2, 3}));
  ranks[0].stop();  // so that rank 0 learns of both together
  ranks[2].kill();
  ranks[1].kill();
  ranks[0].send(SIGCONT);
  ranks.expect_release({0, 3}, {"rank 1 has died", "rank 2 has died", "\nAlso: "});
}

}  // namespace watchdog_process_test
}  // namespace lockstep::distributed
