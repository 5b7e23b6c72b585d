// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/stay_loaded.hpp>

#if defined(__linux__)
#include <dlfcn.h>
#endif

namespace lockstep::detail {

LOCKSTEP_INLINE void stay_loaded() {
#if defined(__linux__)
  [[maybe_unused]] static void* const library = [] {
    static const char within = 0;
    Dl_info info{};
    // The program itself has no handle, and needs none.
    return dladdr(&within, &info) != 0
               ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE)
               : nullptr;
  }();
#endif
}

}  // namespace lockstep::detail
