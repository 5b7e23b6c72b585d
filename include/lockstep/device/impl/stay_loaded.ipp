// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/stay_loaded.hpp>

#if __has_include(<dlfcn.h>)
#include <dlfcn.h>
#endif

namespace lockstep::detail {

LOCKSTEP_INLINE void keep_loaded([[maybe_unused]] const void* address) noexcept {
#if defined(RTLD_NOLOAD) && defined(RTLD_NODELETE)
  Dl_info library{};
  // The program itself has no handle, and needs none.
  if (dladdr(address, &library) != 0) {
    (void)dlopen(library.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  }
#endif
}

}  // namespace lockstep::detail
