// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which sanitizers the test is compiled with, for the few tests that mean something only with one
// or take too long with it.
#if defined(__has_feature)
#define LOCKSTEP_HAS_FEATURE(name) __has_feature(name)
#else
#define LOCKSTEP_HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || LOCKSTEP_HAS_FEATURE(address_sanitizer)
#include <sanitizer/lsan_interface.h>
#endif

namespace lockstep::testing {

// While it lives, what its thread allocates may leak: a test of that is no failure.
#if defined(__SANITIZE_ADDRESS__) || LOCKSTEP_HAS_FEATURE(address_sanitizer)
inline constexpr bool kAddressSanitizer = true;
struct MayLeak {
  MayLeak() { __lsan_disable(); }
  ~MayLeak() { __lsan_enable(); }
};
#else
inline constexpr bool kAddressSanitizer = false;
struct MayLeak {
  MayLeak() {}
  ~MayLeak() {}
};
#endif

#if defined(__SANITIZE_THREAD__) || LOCKSTEP_HAS_FEATURE(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

// What takes several times as long, and for which a few steps show as much as many.
inline constexpr bool kSanitizer = kAddressSanitizer || kThreadSanitizer;

// What shows the same under each, such as the simulator's schedules, the sanitizers share out: this
// one takes number kFirstShare, and every kShares-th behind it.
inline constexpr unsigned kFirstShare = kThreadSanitizer ? 1 : 0;
inline constexpr unsigned kShares = kSanitizer ? 2 : 1;

}  // namespace lockstep::testing

#undef LOCKSTEP_HAS_FEATURE
