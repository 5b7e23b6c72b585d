// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>

// What `everywhere` writes into expressions of the headers, and has included in front of
// everything, so that one program has any one of the mutations: the one whose number is in the
// environment's MUTATION. With MUTATIONS_REACHED, a file, the numbers of those that were met are
// appended to it when the process ends.
namespace mutations {

inline constexpr int kMost = 1 << 16;

struct Chosen {
  int mutation = 0;
  const char* reached = nullptr;
  std::atomic<bool> met[kMost]{};

  Chosen() {
    if (const char* text = std::getenv("MUTATION")) mutation = std::atoi(text);
    reached = std::getenv("MUTATIONS_REACHED");
    if (reached) std::atexit(+[] { of_process().write(); });
  }

  static Chosen& of_process() {
    static Chosen& chosen = *new Chosen;
    return chosen;
  }

  void write() const {
    std::FILE* const file = std::fopen(reached, "a");
    if (!file) std::abort();
    for (int number = 0; number < kMost; ++number) {
      if (met[number].load(std::memory_order_relaxed)) std::fprintf(file, "%d\n", number);
    }
    std::fclose(file);
  }
};

// Constant expressions keep what is written, since no environment reaches them.
constexpr bool mutated(int number) {
  if (std::is_constant_evaluated()) return false;
  Chosen& chosen = Chosen::of_process();
  if (chosen.reached) chosen.met[number].store(true, std::memory_order_relaxed);
  return chosen.mutation == number;
}

template <class T>
constexpr T either(bool first, T a, T b) {
  return first ? a : b;
}

// `a op b` is written as `a op Mutable<number>() op b`, which is parsed alike.
template <int number>
struct Mutable {};

#define LOCKSTEP_MUTABLE(Name, op, other)                                                         \
  template <class A, int number>                                                                  \
  struct Name {                                                                                   \
    A&& a;                                                                                        \
  };                                                                                              \
  template <class A, int number>                                                                  \
  constexpr Name<A, number> operator op(A&& a, Mutable<number>) {                                 \
    return {static_cast<A&&>(a)};                                                                 \
  }                                                                                               \
  template <class A, int number, class B>                                                         \
  constexpr decltype(auto) operator op(Name<A, number> left, B&& b) {                             \
    using Value = std::remove_cvref_t<decltype(static_cast<A&&>(left.a) op static_cast<B&&>(b))>; \
    if constexpr (requires { Value(static_cast<A&&>(left.a) other static_cast<B&&>(b)); }) {      \
      if (mutated(number)) {                                                                      \
        return Value(static_cast<A&&>(left.a) other static_cast<B&&>(b));                         \
      }                                                                                           \
    }                                                                                             \
    return Value(static_cast<A&&>(left.a) op static_cast<B&&>(b));                                \
  }

LOCKSTEP_MUTABLE(Less, <, <=)
LOCKSTEP_MUTABLE(LessEqual, <=, <)
LOCKSTEP_MUTABLE(Greater, >, >=)
LOCKSTEP_MUTABLE(GreaterEqual, >=, >)
LOCKSTEP_MUTABLE(Equal, ==, !=)
LOCKSTEP_MUTABLE(NotEqual, !=, ==)
LOCKSTEP_MUTABLE(Plus, +, -)
LOCKSTEP_MUTABLE(Minus, -, +)
LOCKSTEP_MUTABLE(Times, *, +)
LOCKSTEP_MUTABLE(Over, /, *)
LOCKSTEP_MUTABLE(Modulo, %, +)

#undef LOCKSTEP_MUTABLE

}  // namespace mutations
