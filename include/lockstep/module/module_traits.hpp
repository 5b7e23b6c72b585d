// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>

#include <concepts>
#include <optional>

namespace lockstep {

// What replicate and parallel_apply need to know of another library's module, whose parameters no
// walk over its members finds. Specialise it to let such modules take part, as tensor_traits lets
// tensors.
//
// A specialisation has these static members:
//
//   forward(const M&, const Args&...)       calls the module; only for arguments that it takes
//   std::optional<Device> device(const M&)  its first tensor's, for messages
//
// and, for replicate:
//
//   std::vector<M> replicate(const M&, const std::vector<Device>&, bool detach)
//                                           as lockstep::replicate, for at least one device
template <class M>
struct module_traits;

template <class M>
concept ForeignModule = requires(const M& m) {
  sizeof(module_traits<M>);
  { module_traits<M>::device(m) } -> std::same_as<std::optional<Device>>;
};

}  // namespace lockstep
