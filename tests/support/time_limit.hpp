// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
// Of the program: where it was loaded, and where its code ends.
extern const char __executable_start;  // NOLINT(bugprone-reserved-identifier): the linker's names
extern const char etext;
}

// A test that takes too long says which it is, where it was, and what each of its threads is doing,
// and aborts.
namespace lockstep::testing {

// It is told by SIGALRM, which a forked child gets as well, and whose handler calls nothing but
// what may be called while other threads hold any locks. ThreadSanitizer hands a signal on to a
// thread once that waits or is at an atomic.
class TimeLimit {
 public:
  // For the program, whose tests then may take LOCKSTEP_TEST_LIMIT seconds each (0: as long as they
  // take), or 200: less than ctest gives an entry, so that it is this that ends them.
  static void install() {
    const char* const text = std::getenv("LOCKSTEP_TEST_LIMIT");
    seconds_ = text ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : 200;
    void* frame = nullptr;
    (void)::backtrace(&frame, 1);  // what it loads when it is called first takes memory
    struct sigaction action = {};
    action.sa_sigaction = &TimeLimit::handle;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    ::sigaction(SIGALRM, &action, nullptr);
    ::pthread_atfork(nullptr, nullptr, [] { ::alarm(seconds_); });
    ::testing::UnitTest::GetInstance()->listeners().Append(new Listener);
    ::alarm(seconds_);  // the child of a death test tells no listener
  }

  // The test has come to another point: each may take as long as a whole test otherwise. The text
  // has to live as long as the point; `all` for one that stands for all later ones, too.
  static void at(const char* what, std::uint64_t number, bool all = false) {
    at_no_place();
    number_ = number;
    all_ = all;
    what_ = what;
  }

  static void at_no_place() {
    what_ = nullptr;
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    suite_ = test ? test->test_suite_name() : "program";
    test_ = test ? test->name() : "end";
    ::alarm(seconds_);
  }

  // Prints where the test is and the stacks of all threads, the caller's first, and aborts.
  [[noreturn]] static void end(const char* why) {
    if (ending_.exchange(true)) std::abort();
    kill_later();
    say("\n%s.%s: %s", suite_.load(), test_.load(), why);
    if (const char* const what = what_) {
      say(", at %s %llu%s", what, static_cast<unsigned long long>(number_.load()),
          all_ ? " and all later ones" : "");
    }
    say("\n");
    note_stack();
    say_stack(own_id());
    ::sem_init(&answered_, 0, 0);
    const int folder = ::open("/proc/self/task", O_RDONLY | O_DIRECTORY);
    alignas(8) std::array<char, 4096> entries;
    long bytes = 0;
    while ((bytes = ::syscall(SYS_getdents64, folder, entries.data(), entries.size())) > 0) {
      for (long at = 0; at < bytes;) {
        // An entry: two numbers of 8 bytes, its length, its type, its name.
        const char* const entry = entries.data() + at;
        unsigned short length = 0;
        std::memcpy(&length, entry + 16, sizeof length);
        at += length;
        const pid_t thread = std::atoi(entry + 19);
        if (thread != 0 && thread != own_id()) ask(thread);
      }
    }
    std::abort();
  }

 private:
  class Listener final : public ::testing::EmptyTestEventListener {
    void OnTestStart(const ::testing::TestInfo&) override { at_no_place(); }
    void OnTestProgramEnd(const ::testing::UnitTest&) override { at_no_place(); }
  };

  static pid_t own_id() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

  static void handle(int, siginfo_t* info, void*) {
    const int before = errno;
    if (info->si_code != SI_TKILL) end("takes too long");
    if (asked_ == own_id()) {
      note_stack();
      asked_ = 0;
      ::sem_post(&answered_);
      while (true) ::pause();  // what a call that was interrupted leads to is not to be seen
    }
    errno = before;
  }

  // The caller waits for what other threads and a program have to say: not for ever.
  static void kill_later() {
    struct sigevent event = {};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGKILL;
    timer_t timer = {};
    const itimerspec in_a_minute{{}, {60, 0}};
    if (::timer_create(CLOCK_MONOTONIC, &event, &timer) == 0) {
      ::timer_settime(timer, 0, &in_a_minute, nullptr);
    }
  }

  template <class... Values>
  static void say(const char* format, Values... values) {
    std::array<char, 512> text;
    const int size = std::snprintf(text.data(), text.size(), format, values...);
    (void)!::write(2, text.data(), std::strlen(size < 0 ? "" : text.data()));
  }
  static void say(const char* text) { (void)!::write(2, text, std::strlen(text)); }

  static void note_stack() {
    depth_ = ::backtrace(frames_.data(), static_cast<int>(frames_.size()));
  }

  // Prints another thread's stack, unless it leaves the signal alone for a second.
  static void ask(pid_t thread) {
    timespec deadline{};
    ::clock_gettime(CLOCK_REALTIME, &deadline);
    ++deadline.tv_sec;
    asked_ = thread;
    ::syscall(SYS_tgkill, ::getpid(), thread, SIGALRM);
    while (asked_ != 0 && (::sem_timedwait(&answered_, &deadline) == 0 || errno == EINTR)) {
    }
    if (asked_.exchange(0) != 0) {
      say("\nthread %d does not answer\n", static_cast<int>(thread));
    } else {
      say_stack(thread);
    }
  }

  static void say_stack(pid_t thread) {
    say("\nthread %d\n", static_cast<int>(thread));
    for (int i = 0; i < depth_;) {
      int end = i;
      while (end < depth_ && of_program(frame(end)) == of_program(frame(i))) ++end;
      if (!of_program(frame(i)) || !say_functions(i, end)) {
        ::backtrace_symbols_fd(frames_.data() + i, end - i, 2);
      }
      i = end;
    }
  }

  static const char* frame(int i) {
    return static_cast<const char*>(frames_[static_cast<std::size_t>(i)]);
  }
  static bool of_program(const char* frame) {
    return frame > &__executable_start && frame < &etext;
  }

  // By addr2line, which knows functions that the dynamic linker does not. False if it is not there.
  static bool say_functions(int begin, int end) {
    static std::array<std::array<char, 16>, 2> words = {{{"addr2line"}, {"-Cfpe"}}};
    std::array<char, PATH_MAX> program = {};
    (void)!::readlink("/proc/self/exe", program.data(), program.size() - 1);
    std::array<char*, kMost + 4> arguments = {words[0].data(), words[1].data(), program.data()};
    std::array<char, kMost * 20> numbers;
    for (int i = begin; i < end; ++i) {
      char* const number = numbers.data() + std::ptrdiff_t{20} * i;
      arguments[static_cast<std::size_t>(3 + i - begin)] = number;
      // Where it goes on is behind the call, and may be another function.
      std::snprintf(number, 20, "%lx",
                    static_cast<unsigned long>(frame(i) - &__executable_start - 1));
    }
    // As fork, but for what others want done at one.
    const long child = ::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
    if (child == 0) {
      ::dup2(2, 1);
      ::execvp(arguments[0], arguments.data());
      ::_exit(127);
    }
    int status = -1;
    if (child > 0) ::waitpid(static_cast<pid_t>(child), &status, 0);
    return status == 0;
  }

  static constexpr std::size_t kMost = 100;

  static inline std::atomic<unsigned> seconds_{0};
  static inline std::atomic<const char*> suite_{"program"};
  static inline std::atomic<const char*> test_{"begin"};
  static inline std::atomic<const char*> what_{nullptr};
  static inline std::atomic<std::uint64_t> number_{0};
  static inline std::atomic<bool> all_{false};

  static inline std::atomic<bool> ending_{false};
  static inline std::atomic<pid_t> asked_{0};  // the thread that is to note its stack
  static inline sem_t answered_;               // posted when it has
  static inline std::array<void*, kMost> frames_{};
  static inline int depth_ = 0;
};

}  // namespace lockstep::testing
