// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

namespace lockstep::detail {

// In a namespace without functions, so that argument-dependent lookup for such a class finds
// nothing more.
namespace bases {

// A base of classes whose objects can be neither copied nor moved, since each stands for one thing,
// such as a thread, a block of memory or a scope.
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
