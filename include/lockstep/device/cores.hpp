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

// Cores of the machine, as the system numbers them. (nvcc rejects a std::optional of a cpu_set_t,
// which has no name of its own.)
struct CoreSet : cpu_set_t {};

// The cores that the calling thread may run on; none if the system cannot say, as on a machine with
// more than a CoreSet holds.
inline std::optional<CoreSet> affinity() noexcept {
  CoreSet allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) return allowed;
  return {};
}

inline bool set_affinity(const CoreSet& allowed) noexcept {
  return ::sched_setaffinity(0, sizeof allowed, &allowed) == 0;
}

// The core that the calling thread runs on right now; -1 if unknown.
inline int current_core() noexcept { return ::sched_getcpu(); }

// The cores that the calling thread, or its starter by start_thread, could use before making a
// CoreBinding; empty without a CoreBinding.
inline constinit thread_local std::optional<CoreSet> unbound_affinity;

// The number of cores that the calling thread may run on if nothing binds it; at least 1.
// (`hardware_concurrency` also counts cores that taskset or a batch system has taken away.)
inline unsigned usable_cores() noexcept {
  const std::optional<CoreSet> allowed = unbound_affinity ? unbound_affinity : affinity();
  if (allowed) return static_cast<unsigned>(CPU_COUNT(&*allowed));
  const unsigned cores = std::thread::hardware_concurrency();
  return cores > 0 ? cores : 1;
}

// Binds the calling thread to one of `parts` equal parts of `cores` until the same thread destroys
// the binding. With more parts than cores, several parts are the same core. An Error that begins
// with `who` if the system refuses.
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

// Starts a thread that shares its starter's CoreBinding, if any. usable_cores and start_detached
// ignore the binding there, as in its starter. An Error that begins with `none` if the system has
// no thread, a std::bad_alloc if it has no memory.
std::thread start_thread(std::string_view none, std::function<void()> run);

// Starts a thread that outlives its starter's CoreBinding, if any, and is not bound by it. Called
// after `stay_loaded`. Errors as in start_thread.
void start_detached(std::string_view none, std::function<void()> run);

// Hidden: each shared library has its own.
[[gnu::visibility("hidden")]] inline constinit std::atomic<bool> stays_loaded{false};

// Keeps the shared library with this code loaded, even after dlclose. Called before starting a
// thread that nobody ends, and with no mutex held, since it takes the system's loader lock.
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
