// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>

#include <dlfcn.h>
#include <sched.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <string_view>
#include <thread>

namespace lockstep::detail {

// Cores of the machine, as the system numbers them. (nvcc fails for a std::optional of a cpu_set_t,
// which has no name of its own.)
struct CoreSet : cpu_set_t {};

// The cores that the calling thread may run on, if the system can say so: it cannot where a machine
// has more than a CoreSet holds.
inline std::optional<CoreSet> affinity() noexcept {
  CoreSet allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) return allowed;
  return {};
}

inline bool set_affinity(const CoreSet& allowed) noexcept {
  return ::sched_setaffinity(0, sizeof allowed, &allowed) == 0;
}

// The core that the calling thread runs on at this moment; -1 where that cannot be known.
inline int current_core() noexcept { return ::sched_getcpu(); }

// The cores that the calling thread might use before it made a CoreBinding, or before the thread
// did that started it with start_thread; empty without a CoreBinding.
inline constinit thread_local std::optional<CoreSet> unbound_affinity;

// The number of cores that the calling thread may run on while nothing binds it, at least 1.
// `hardware_concurrency` alone would count cores that taskset or a batch system has taken away.
inline unsigned usable_cores() noexcept {
  const std::optional<CoreSet> allowed = unbound_affinity ? unbound_affinity : affinity();
  if (allowed) return static_cast<unsigned>(CPU_COUNT(&*allowed));
  const unsigned cores = std::thread::hardware_concurrency();
  return cores > 0 ? cores : 1;
}

// Binds the calling thread to one of `parts` equal parts of `cores` until the binding is destroyed,
// by the same thread; with more parts than cores, several parts are the same core. An Error that
// begins with `who` if the system does not allow it.
class CoreBinding : NonCopyable {
 public:
  CoreBinding(const std::optional<CoreSet>& cores, std::size_t part, std::size_t parts,
              const char* who)
      : before_(affinity()), outermost_(!unbound_affinity) {
    const bool bound = before_ && cores && set_affinity(part_of(*cores, part, parts));
    check<Error>(bound, who, " ", part, " of ", parts,
                 " cannot be bound to cores of its own: ", std::strerror(errno));
    if (outermost_) unbound_affinity = before_;
  }
  ~CoreBinding() {
    if (outermost_) unbound_affinity.reset();
    (void)set_affinity(*before_);
  }

 private:
  static CoreSet part_of(const CoreSet& all, std::size_t part, std::size_t parts) noexcept {
    CoreSet mine = all;
    const auto count = static_cast<std::size_t>(CPU_COUNT(&all));
    std::size_t begin = part * count / parts;
    std::size_t end = (part + 1) * count / parts;
    if (parts > count && count > 0) {
      begin = part % count;
      end = begin + 1;
    }
    std::size_t place = 0;
    for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
      if (!CPU_ISSET(core, &all)) continue;
      if (place < begin || place >= end) CPU_CLR(core, &mine);
      ++place;
    }
    return mine;
  }

  const std::optional<CoreSet> before_;
  const bool outermost_;
};

// Starts a thread that shares its starter's CoreBinding, if there is one. In it, usable_cores and
// start_detached ignore the binding, as they do in its starter. An Error that begins with `none` if
// the system has no thread, a std::bad_alloc if it has no memory.
std::thread start_thread(std::string_view none, std::function<void()> run);

// Starts a thread that outlives its starter's CoreBinding, if there is one, and is not bound by it.
// Called after `stay_loaded`. Errors as those of start_thread.
void start_detached(std::string_view none, std::function<void()> run);

// Each library has its own, which is within it.
[[gnu::visibility("hidden")]] inline constinit std::atomic<bool> stays_loaded{false};

// Keeps the shared library that this code is in loaded, also after dlclose. Called before a thread
// is started that nobody ends, since its code has to stay, and with no mutex held: it takes the
// system's loader lock.
inline void stay_loaded() noexcept {
  if (stays_loaded.load(std::memory_order_relaxed)) [[likely]]
    return;
  Dl_info library{};
  // The program itself has no handle, and needs none.
  if (dladdr(&stays_loaded, &library) != 0) {
    (void)dlopen(library.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  }
  stays_loaded.store(true, std::memory_order_relaxed);  // twice would do no harm
}

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/device/impl/cores.ipp>
#endif
