// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

namespace lockstep {

// Set to true for a type whose values are the same for all replicas. Neither scatter nor gather
// looks into it: each device gets a copy of an argument as it is, tensors in it included, and
// replica 0's result stands for all.
//
// Specialise it for a type that scatter or gather refuses, because parts or results would be lost
// otherwise. Like a specialisation of tensor_traits it comes before the type's first use.
//
// **Torch counterpart.** Whatever is no tensor, tuple, list or dict, which torch's scatter shares
// and its gather refuses.
// **Example.**
//   template <>
//   inline constexpr bool lockstep::shared_by_replicas<Vocabulary> = true;
template <class T>
inline constexpr bool shared_by_replicas = false;

}  // namespace lockstep
