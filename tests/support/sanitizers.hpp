// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which sanitizer the test is compiled with, for the few tests that mean something only with it.
namespace lockstep::testing {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
#else
inline constexpr bool kAddressSanitizer = false;
#endif

}  // namespace lockstep::testing
