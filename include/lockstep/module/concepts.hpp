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
concept Module = (HasForward<M> || HasCallOperator<M>)&&std::copy_constructible<M>;

// `module.forward(args...)` compiles.
template <class M, class... Args>
concept ForwardTakes = requires(M& callee, Args&&... args) {
  callee.forward(std::forward<Args>(args)...);
};

// `module(args...)` compiles.
template <class M, class... Args>
concept CallOperatorTakes = requires(M& callee, Args&&... args) {
  callee(std::forward<Args>(args)...);
};

// The module's forward, or else its operator(), takes these arguments.
template <class M, class... Args>
concept ForwardableWith = ForwardTakes<M, Args...> || CallOperatorTakes<M, Args...>;

namespace detail {

// These compile if M is as their names say; they say why not, and what to do, otherwise.
template <class M>
consteval void require_callable() {
  static_assert(HasForward<M> || HasCallOperator<M>,
                "lockstep: this type is no module: it needs a member function `forward` or an "
                "operator()");
}

template <class M>
consteval void require_copyable() {
  static_assert(std::copy_constructible<M>,
                "lockstep: this module cannot be copied, as cloning and replicating it require: hold its "
                "sub-modules by value, in std::optional or in std::shared_ptr instead of "
                "std::unique_ptr");
}

template <class M>
consteval void require_module() {
  require_callable<M>();
  require_copyable<M>();
}

// Calls the module: its forward if that takes the arguments, else its operator(). It need not be
// copyable for that, and may be a function as well.
template <class M, class... Args>
decltype(auto) forward(M& module, Args&&... args) {
  if constexpr (ForwardTakes<M, Args...>) {
    return module.forward(std::forward<Args>(args)...);
  } else if constexpr (CallOperatorTakes<M, Args...>) {
    return module(std::forward<Args>(args)...);
  } else {
    require_callable<std::remove_const_t<M>>();
    static_assert(!HasForward<M> && !HasCallOperator<M>,
                  "lockstep: neither forward nor operator() of this module takes these arguments");
  }
}

}  // namespace detail

}  // namespace lockstep
