// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/layout.hpp>

#include <cstddef>
#include <cstdint>

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
      for (std::int64_t i = count; i > 0; --i) {
        const T* const from = *chosen ? x : y;  // no jump, which could not be foreseen
        *to++ = *from;
        chosen += walk.inner_stride(0);
        x += walk.inner_stride(1);
        y += walk.inner_stride(2);
      }
    });
  }
};

}  // namespace lockstep::detail
