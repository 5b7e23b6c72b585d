// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

namespace lockstep {

// Set it to true for a type whose values are the same for all replicas. scatter then gives each
// device a copy as it is, tensors included, and gather returns replica 0's result for all.
//
// Specialise it for a type that scatter or gather would refuse, before the type's first use.
//
// **Torch counterpart.** Anything but a tensor, tuple, list or dict: torch's scatter shares it, and
// its gather refuses it.
// **Example.**
//   template <>
//   inline constexpr bool lockstep::shared_by_replicas<Vocabulary> = true;
template <class T>
inline constexpr bool shared_by_replicas = false;

}  // namespace lockstep
