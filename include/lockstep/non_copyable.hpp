// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

namespace lockstep::detail {

// In a namespace without functions, so that calls with an object of such a class find no others
// than before.
namespace bases {

// A base of classes whose objects stand for one thing each, such as a thread, a block of memory or
// a scope, and so are neither copied nor moved.
class NonCopyable {
 public:
  NonCopyable(const NonCopyable&) = delete;
  NonCopyable& operator=(const NonCopyable&) = delete;

 protected:
  NonCopyable() = default;
  ~NonCopyable() = default;
};

}  // namespace bases

using bases::NonCopyable;

}  // namespace lockstep::detail
