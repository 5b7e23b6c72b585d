// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/cores.hpp>

#if defined(__linux__)
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <string_view>
#endif

namespace lockstep::detail {

// The core that the calling thread runs on at this moment; -1 where that cannot be known.
inline int current_core() noexcept {
#if defined(__linux__)
  return ::sched_getcpu();
#else
  return -1;
#endif
}

// How many threads of the whole machine run or wait for a core at this moment, the calling one
// among them; 0 where that cannot be known. Costs some microseconds.
inline unsigned runnable_threads() noexcept {
  unsigned count = 0;
#if defined(__linux__)
  // "0.20 0.18 0.12 1/80 11206": three averages, runnable/all, and the last process.
  const int file = ::open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  std::array<char, 128> text;
  const ssize_t size = ::read(file, text.data(), text.size());
  ::close(file);
  if (size <= 0) return 0;
  const std::string_view line(text.data(), static_cast<std::size_t>(size));
  const std::size_t end = line.find('/');
  if (end == line.npos) return 0;
  const std::size_t begin = line.rfind(' ', end) + 1;
  (void)std::from_chars(line.data() + begin, line.data() + end, count);
#endif
  return count;
}

// Puts the calling thread on another core than this one, if it may run on others and there are as
// many cores as threads that want one, so that another is idle; whether it has. Its affinity stays
// what it is. Costs some microseconds.
//
// For a thread that finds itself on the core of one that it works beside. A virtual machine's
// scheduler may leave it there for long: a virtual core that is idle, whose time its host has given
// to others meanwhile, is not available to it.
inline bool leave_core(int core) noexcept {
#if defined(__linux__)
  cpu_set_t all;
  if (core < 0 || core >= CPU_SETSIZE || ::sched_getaffinity(0, sizeof all, &all) != 0)
    return false;
  const unsigned runnable = runnable_threads();
  if (runnable == 0 || runnable > static_cast<unsigned>(CPU_COUNT(&all))) return false;
  cpu_set_t others = all;
  CPU_CLR(static_cast<unsigned>(core), &others);
  if (CPU_COUNT(&others) == 0 || ::sched_setaffinity(0, sizeof others, &others) != 0) {
    return false;
  }
  (void)::sched_setaffinity(0, sizeof all, &all);
  return true;
#else
  (void)core;
  return false;
#endif
}

}  // namespace lockstep::detail
