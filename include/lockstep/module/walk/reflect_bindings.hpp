// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstddef>
#include <tuple>

namespace lockstep::detail {

// A structured binding of `n` names, given as the rest of the arguments.
#define LOCKSTEP_BIND(n, ...)     \
  if constexpr (count == (n)) {   \
    auto& [__VA_ARGS__] = object; \
    return std::tie(__VA_ARGS__); \
  }
// The first 16, 32 and 48 names.
#define LOCKSTEP_16 a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p
#define LOCKSTEP_32 LOCKSTEP_16, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af
#define LOCKSTEP_48 LOCKSTEP_32, ag, ah, ai, aj, ak, al, am, an, ao, ap, aq, ar, as, at, au, av

// References to the `count` members of `object`, by a structured binding; one branch for each
// number of members, because a binding of a variable number of names is not in C++20. Nothing here
// but repetition; reflect.hpp says what it is for. It is instantiated with the exact count only.
//
// A compiler error here about the number of names means that `object` has an anonymous union or a
// member that nothing converts to: declare visit_members in its type (visit.hpp).
// clang-format off
template <std::size_t count, class Aggregate>
constexpr auto bind_members([[maybe_unused]] Aggregate& object) {
  if constexpr (count == 0) return std::tuple<>{};
  LOCKSTEP_BIND(1, a)
  LOCKSTEP_BIND(2, a, b)
  LOCKSTEP_BIND(3, a, b, c)
  LOCKSTEP_BIND(4, a, b, c, d)
  LOCKSTEP_BIND(5, a, b, c, d, e)
  LOCKSTEP_BIND(6, a, b, c, d, e, f)
  LOCKSTEP_BIND(7, a, b, c, d, e, f, g)
  LOCKSTEP_BIND(8, a, b, c, d, e, f, g, h)
  LOCKSTEP_BIND(9, a, b, c, d, e, f, g, h, i)
  LOCKSTEP_BIND(10, a, b, c, d, e, f, g, h, i, j)
  LOCKSTEP_BIND(11, a, b, c, d, e, f, g, h, i, j, k)
  LOCKSTEP_BIND(12, a, b, c, d, e, f, g, h, i, j, k, l)
  LOCKSTEP_BIND(13, a, b, c, d, e, f, g, h, i, j, k, l, m)
  LOCKSTEP_BIND(14, a, b, c, d, e, f, g, h, i, j, k, l, m, n)
  LOCKSTEP_BIND(15, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o)
  LOCKSTEP_BIND(16, LOCKSTEP_16)
  LOCKSTEP_BIND(17, LOCKSTEP_16, q)
  LOCKSTEP_BIND(18, LOCKSTEP_16, q, r)
  LOCKSTEP_BIND(19, LOCKSTEP_16, q, r, s)
  LOCKSTEP_BIND(20, LOCKSTEP_16, q, r, s, t)
  LOCKSTEP_BIND(21, LOCKSTEP_16, q, r, s, t, u)
  LOCKSTEP_BIND(22, LOCKSTEP_16, q, r, s, t, u, v)
  LOCKSTEP_BIND(23, LOCKSTEP_16, q, r, s, t, u, v, w)
  LOCKSTEP_BIND(24, LOCKSTEP_16, q, r, s, t, u, v, w, x)
  LOCKSTEP_BIND(25, LOCKSTEP_16, q, r, s, t, u, v, w, x, y)
  LOCKSTEP_BIND(26, LOCKSTEP_16, q, r, s, t, u, v, w, x, y, z)
  LOCKSTEP_BIND(27, LOCKSTEP_16, q, r, s, t, u, v, w, x, y, z, aa)
  LOCKSTEP_BIND(28, LOCKSTEP_16, q, r, s, t, u, v, w, x, y, z, aa, ab)
  LOCKSTEP_BIND(29, LOCKSTEP_16, q, r, s, t, u, v, w, x, y, z, aa, ab, ac)
  LOCKSTEP_BIND(30, LOCKSTEP_16, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad)
  LOCKSTEP_BIND(31, LOCKSTEP_16, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae)
  LOCKSTEP_BIND(32, LOCKSTEP_32)
  LOCKSTEP_BIND(33, LOCKSTEP_32, ag)
  LOCKSTEP_BIND(34, LOCKSTEP_32, ag, ah)
  LOCKSTEP_BIND(35, LOCKSTEP_32, ag, ah, ai)
  LOCKSTEP_BIND(36, LOCKSTEP_32, ag, ah, ai, aj)
  LOCKSTEP_BIND(37, LOCKSTEP_32, ag, ah, ai, aj, ak)
  LOCKSTEP_BIND(38, LOCKSTEP_32, ag, ah, ai, aj, ak, al)
  LOCKSTEP_BIND(39, LOCKSTEP_32, ag, ah, ai, aj, ak, al, am)
  LOCKSTEP_BIND(40, LOCKSTEP_32, ag, ah, ai, aj, ak, al, am, an)
  LOCKSTEP_BIND(41, LOCKSTEP_32, ag, ah, ai, aj, ak, al, am, an, ao)
  LOCKSTEP_BIND(42, LOCKSTEP_32, ag, ah, ai, aj, ak, al, am, an, ao, ap)
  LOCKSTEP_BIND(43, LOCKSTEP_32, ag, ah, ai, aj, ak, al, am, an, ao, ap, aq)
  LOCKSTEP_BIND(44, LOCKSTEP_32, ag, ah, ai, aj, ak, al, am, an, ao, ap, aq, ar)
  LOCKSTEP_BIND(45, LOCKSTEP_32, ag, ah, ai, aj, ak, al, am, an, ao, ap, aq, ar, as)
  LOCKSTEP_BIND(46, LOCKSTEP_32, ag, ah, ai, aj, ak, al, am, an, ao, ap, aq, ar, as, at)
  LOCKSTEP_BIND(47, LOCKSTEP_32, ag, ah, ai, aj, ak, al, am, an, ao, ap, aq, ar, as, at, au)
  LOCKSTEP_BIND(48, LOCKSTEP_48)
  LOCKSTEP_BIND(49, LOCKSTEP_48, aw)
  LOCKSTEP_BIND(50, LOCKSTEP_48, aw, ax)
  LOCKSTEP_BIND(51, LOCKSTEP_48, aw, ax, ay)
  LOCKSTEP_BIND(52, LOCKSTEP_48, aw, ax, ay, az)
  LOCKSTEP_BIND(53, LOCKSTEP_48, aw, ax, ay, az, ba)
  LOCKSTEP_BIND(54, LOCKSTEP_48, aw, ax, ay, az, ba, bb)
  LOCKSTEP_BIND(55, LOCKSTEP_48, aw, ax, ay, az, ba, bb, bc)
  LOCKSTEP_BIND(56, LOCKSTEP_48, aw, ax, ay, az, ba, bb, bc, bd)
  LOCKSTEP_BIND(57, LOCKSTEP_48, aw, ax, ay, az, ba, bb, bc, bd, be)
  LOCKSTEP_BIND(58, LOCKSTEP_48, aw, ax, ay, az, ba, bb, bc, bd, be, bf)
  LOCKSTEP_BIND(59, LOCKSTEP_48, aw, ax, ay, az, ba, bb, bc, bd, be, bf, bg)
  LOCKSTEP_BIND(60, LOCKSTEP_48, aw, ax, ay, az, ba, bb, bc, bd, be, bf, bg, bh)
  LOCKSTEP_BIND(61, LOCKSTEP_48, aw, ax, ay, az, ba, bb, bc, bd, be, bf, bg, bh, bi)
  LOCKSTEP_BIND(62, LOCKSTEP_48, aw, ax, ay, az, ba, bb, bc, bd, be, bf, bg, bh, bi, bj)
  LOCKSTEP_BIND(63, LOCKSTEP_48, aw, ax, ay, az, ba, bb, bc, bd, be, bf, bg, bh, bi, bj, bk)
  LOCKSTEP_BIND(64, LOCKSTEP_48, aw, ax, ay, az, ba, bb, bc, bd, be, bf, bg, bh, bi, bj, bk, bl)
}
// clang-format on
#undef LOCKSTEP_BIND
#undef LOCKSTEP_16
#undef LOCKSTEP_32
#undef LOCKSTEP_48

}  // namespace lockstep::detail
