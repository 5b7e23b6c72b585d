// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/tensor/walk.hpp>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace lockstep::detail {

// out = condition ? a : b, of elements of any type and operands of any strides.
template <class T>
struct WhereCall {
  View<const bool> condition;
  View<const T> a;
  View<const T> b;
  View<T> out;
  Walk<3> walk;

  void operator()() const {
    if (out.size == 0) return;
    const std::int64_t count = walk.inner_size();
    T* to = out.data;
    walk.for_each_row([&](const auto& offsets) {
      const bool* chosen = condition.data + offsets[0];
      const T* x = a.data + offsets[1];
      const T* y = b.data + offsets[2];
      if (walk.inner_stride(0) == 1 && walk.inner_stride(1) == 1 && walk.inner_stride(2) == 1) {
        LOCKSTEP_INDEPENDENT
        for (std::int64_t i = 0; i < count; ++i) choose(chosen[i], x[i], y[i], to[i]);
        to += count;
        return;
      }
      for (std::int64_t i = count; i > 0; --i) {
        choose(*chosen, *x, *y, *to++);
        chosen += walk.inner_stride(0);
        x += walk.inner_stride(1);
        y += walk.inner_stride(2);
      }
    });
  }

 private:
  // Without a jump, which could not be foreseen and is not made a vector.
  static void choose(bool first, const T& x, const T& y, T& to) {
    using Word = std::conditional_t<
        sizeof(T) == 1, std::uint8_t,
        std::conditional_t<sizeof(T) == 2, std::uint16_t,
                           std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;
    static_assert(sizeof(Word) == sizeof(T));
    const auto mask = static_cast<Word>(-static_cast<Word>(first));
    Word a;
    Word b;
    std::memcpy(&a, &x, sizeof(T));
    std::memcpy(&b, &y, sizeof(T));
    a = static_cast<Word>((a & mask) | (b & ~mask));
    std::memcpy(&to, &a, sizeof(T));
  }
};

}  // namespace lockstep::detail
