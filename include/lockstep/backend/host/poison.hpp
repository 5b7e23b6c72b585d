// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define LOCKSTEP_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LOCKSTEP_ASAN 1
#endif
#endif

#if defined(LOCKSTEP_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace lockstep::detail {

// Tells AddressSanitizer that memory kept by the allocator is out of bounds until it is handed out
// again. Otherwise these functions do nothing.
#if defined(LOCKSTEP_ASAN)
inline constexpr bool kPoisons = true;
inline void poison(void* data, std::size_t bytes) { ASAN_POISON_MEMORY_REGION(data, bytes); }
inline void unpoison(void* data, std::size_t bytes) { ASAN_UNPOISON_MEMORY_REGION(data, bytes); }
#else
inline constexpr bool kPoisons = false;
inline void poison(void*, std::size_t) {}
inline void unpoison(void*, std::size_t) {}
#endif

}  // namespace lockstep::detail

#undef LOCKSTEP_ASAN
