// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <dlfcn.h>

#include <atomic>

namespace lockstep::detail {

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
