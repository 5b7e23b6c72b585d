// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <type_traits>

namespace lockstep::detail {

// The type to compute in: unsigned for integers, which wrap around instead of being undefined.
template <class T>
using Wrapping = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                             std::type_identity<T>>::type;

}  // namespace lockstep::detail
