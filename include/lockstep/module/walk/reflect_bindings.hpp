// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstddef>
#include <tuple>

namespace lockstep::detail {

// clang-format off
// A structured binding of `n` names, given as the rest of the arguments.
#define LOCKSTEP_BIND(n, ...)     \
  if constexpr (count == (n)) {   \
    auto& [__VA_ARGS__] = object; \
    return std::tie(__VA_ARGS__); \
  }
// Names, each followed by a comma: 8 that begin with x, and the first 16, 32 and 48.
#define LOCKSTEP_8(x) x##0, x##1, x##2, x##3, x##4, x##5, x##6, x##7,
#define LOCKSTEP_16 LOCKSTEP_8(a) LOCKSTEP_8(b)
#define LOCKSTEP_32 LOCKSTEP_16 LOCKSTEP_8(c) LOCKSTEP_8(d)
#define LOCKSTEP_48 LOCKSTEP_32 LOCKSTEP_8(e) LOCKSTEP_8(f)
// Bindings of n + 1 to n + 8 names: the n that are given as the rest of the arguments, and those
// that begin with x.
#define LOCKSTEP_BIND_8(n, x, ...)                                                   \
  LOCKSTEP_BIND((n) + 1, __VA_ARGS__ x##0)                                           \
  LOCKSTEP_BIND((n) + 2, __VA_ARGS__ x##0, x##1)                                     \
  LOCKSTEP_BIND((n) + 3, __VA_ARGS__ x##0, x##1, x##2)                               \
  LOCKSTEP_BIND((n) + 4, __VA_ARGS__ x##0, x##1, x##2, x##3)                         \
  LOCKSTEP_BIND((n) + 5, __VA_ARGS__ x##0, x##1, x##2, x##3, x##4)                   \
  LOCKSTEP_BIND((n) + 6, __VA_ARGS__ x##0, x##1, x##2, x##3, x##4, x##5)             \
  LOCKSTEP_BIND((n) + 7, __VA_ARGS__ x##0, x##1, x##2, x##3, x##4, x##5, x##6)       \
  LOCKSTEP_BIND((n) + 8, __VA_ARGS__ x##0, x##1, x##2, x##3, x##4, x##5, x##6, x##7)

// References to the `count` members of `object`, by a structured binding; one branch for each
// number of members, because a binding of a variable number of names is not in C++20. Nothing here
// but repetition; reflect.hpp says what it is for. It is instantiated with the exact count only.
//
// A compiler error here about the number of names means that `object` has an anonymous union or a
// member that nothing converts to: declare visit_members in its type (visit.hpp).
template <std::size_t count, class Aggregate>
constexpr auto bind_members([[maybe_unused]] Aggregate& object) {
  if constexpr (count == 0) return std::tuple<>{};
  LOCKSTEP_BIND_8(0, a, )
  LOCKSTEP_BIND_8(8, b, LOCKSTEP_8(a))
  LOCKSTEP_BIND_8(16, c, LOCKSTEP_16)
  LOCKSTEP_BIND_8(24, d, LOCKSTEP_16 LOCKSTEP_8(c))
  LOCKSTEP_BIND_8(32, e, LOCKSTEP_32)
  LOCKSTEP_BIND_8(40, f, LOCKSTEP_32 LOCKSTEP_8(e))
  LOCKSTEP_BIND_8(48, g, LOCKSTEP_48)
  LOCKSTEP_BIND_8(56, h, LOCKSTEP_48 LOCKSTEP_8(g))
}
// clang-format on
#undef LOCKSTEP_BIND
#undef LOCKSTEP_8
#undef LOCKSTEP_16
#undef LOCKSTEP_32
#undef LOCKSTEP_48
#undef LOCKSTEP_BIND_8

}  // namespace lockstep::detail
