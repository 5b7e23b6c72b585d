// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

namespace lockstep {

namespace detail {

// Whether a class has a member of a given name, overloaded or a template or not: its name then
// collides in a class that inherits it twice. Final classes cannot be asked in this way.
struct NamesForward {
  void forward();
};
struct NamesCallOperator {
  void operator()();
};
template <class T>
struct ForwardProbe : T, NamesForward {};
template <class T>
struct CallOperatorProbe : T, NamesCallOperator {};

template <class T>
concept Inheritable = std::is_class_v<T> && !std::is_final_v<T>;

}  // namespace detail

// M has a member function (or template) named forward.
template <class M>
concept HasForward = (detail::Inheritable<M> && !requires { &detail::ForwardProbe<M>::forward; }) ||
                     (std::is_final_v<M> && requires { &M::forward; });

// M has an operator().
template <class M>
concept HasCallOperator = (detail::Inheritable<M> &&
                           !requires { &detail::CallOperatorProbe<M>::operator(); }) ||
                          (std::is_final_v<M> && requires { &M::operator(); });

// A module: any copyable type with a member function `forward` or an operator(). No base class, no
// macro, no registration.
//
// Copying it is cheap, as its tensors are handles: a copy shares them. (A final class is recognised
// only if its forward is neither overloaded nor a template.)
//
// **Torch counterpart.** torch.nn.Module.
template <class M>
concept Module = std::copy_constructible<M> &&(HasForward<M> || HasCallOperator<M>);

// `module.forward(args...)` compiles.
template <class M, class... Args>
concept ForwardTakes = requires(M& module, Args&&... args) {
  module.forward(std::forward<Args>(args)...);
};

// `module(args...)` compiles.
template <class M, class... Args>
concept CallOperatorTakes = requires(M& module, Args&&... args) {
  module(std::forward<Args>(args)...);
};

// The module's forward, or else its operator(), takes these arguments.
template <class M, class... Args>
concept ForwardableWith = ForwardTakes<M, Args...> || CallOperatorTakes<M, Args...>;

namespace detail {

// Compiles if M is a module; says why not, and what to do, otherwise.
template <class M>
consteval void require_module() {
  static_assert(HasForward<M> || HasCallOperator<M>,
                "lockstep: this type is no module: it needs a member function `forward` or an "
                "operator()");
  static_assert(std::copy_constructible<M>,
                "lockstep: this module cannot be copied, as replicating it requires: hold its "
                "sub-modules by value, in std::optional or in std::shared_ptr instead of "
                "std::unique_ptr");
}

// Calls the module: its forward if that takes the arguments, else its operator().
template <class M, class... Args>
decltype(auto) forward(M& module, Args&&... args) {
  require_module<std::remove_const_t<M>>();
  static_assert(ForwardableWith<M, Args...>,
                "lockstep: neither forward nor operator() of this module takes these arguments");
  if constexpr (ForwardTakes<M, Args...>) {
    return module.forward(std::forward<Args>(args)...);
  } else {
    return module(std::forward<Args>(args)...);
  }
}

}  // namespace detail

}  // namespace lockstep
