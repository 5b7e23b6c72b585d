// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/module/module_traits.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <tuple>
#include <type_traits>
#include <utility>

namespace lockstep {

namespace detail {

// Whether a class has a member of a given name, even overloaded or a template: its name then
// collides in a class that inherits it twice. Final classes cannot be tested like this.
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

// A module: any copyable type with a member function `forward` or an operator(). It needs no base
// class, macro or registration.
//
// Copying it is cheap: its tensors are handles, which the copy shares. A final class is recognised
// only if its forward is neither overloaded nor a template.
//
// **Torch counterpart.** torch.nn.Module.
// **Threads and exceptions.** Several threads may call one module at once if its forward changes
// nothing in it. That is true of the library's layers, except for a BatchNorm in training mode and
// the first call of a LazyLinear.
template <class M>
concept Module = (HasForward<M> || HasCallOperator<M>)&&std::copy_constructible<M>;

template <class M, class... Args>
concept ForwardTakes = requires(M& callee, Args&&... args) {
  callee.forward(std::forward<Args>(args)...);
};

template <class M, class... Args>
concept CallOperatorTakes = requires(M& callee, Args&&... args) {
  callee(std::forward<Args>(args)...);
};

// The module's forward, or else its operator(), takes these arguments.
template <class M, class... Args>
concept ForwardableWith = ForwardTakes<M, Args...> || CallOperatorTakes<M, Args...>;

namespace detail {

template <class M, class... Args>
concept ForeignForwardTakes = ForeignModule<M> && requires(const M& module, Args&&... args) {
  module_traits<M>::forward(module, std::forward<Args>(args)...);
};

template <class M>
concept PointsToModule = requires(M& pointer) {
  *pointer;
  requires HasForward<std::remove_cvref_t<decltype(*pointer)>> ||
      HasCallOperator<std::remove_cvref_t<decltype(*pointer)>>;
};

// `module.forward(args...)`, or in the second concept `module(args...)`, compiles and returns
// something.
template <class M, class... Args>
concept ForwardGives = ForwardTakes<M, Args...> &&
    !std::is_void_v<decltype(std::declval<M&>().forward(std::declval<Args>()...))>;
template <class M, class... Args>
concept CallOperatorGives = CallOperatorTakes<M, Args...> &&
    !std::is_void_v<decltype(std::declval<M&>()(std::declval<Args>()...))>;

// Compiles if M can be called; otherwise the message says why not, and what to do.
template <class M>
consteval void require_callable() {
  constexpr bool callable = HasForward<M> || HasCallOperator<M>;
  static_assert(callable || PointsToModule<M>,
                "lockstep: this type is no module: it needs a member function `forward` or an "
                "operator()");
  static_assert(callable || !PointsToModule<M>,
                "lockstep: a pointer to a module is no module: give the module itself, *pointer (a "
                "copy of it shares its parameters)");
}

// Whether T is a list of arguments.
template <class T>
inline constexpr bool is_tuple = false;
template <class... Args>
inline constexpr bool is_tuple<std::tuple<Args...>> = true;

// Calls the module: its forward if that takes the arguments, else its operator(). The module may be
// a function or a type that cannot be copied.
//
// If neither compiles, the messages below are the only ones: the result is then a Tensor, so that
// no caller fails as well.
template <class M, class... Args>
decltype(auto) forward(M& module, Args&&... args) {
  using Plain = std::remove_const_t<M>;
  if constexpr (ForeignForwardTakes<Plain, Args...>) {
    return module_traits<Plain>::forward(module, std::forward<Args>(args)...);
  } else if constexpr (ForeignModule<Plain>) {
    static_assert(!ForeignModule<Plain>,
                  "lockstep: this module has no public forward that takes these arguments, each "
                  "const, and returns something");
    return Tensor();
  } else if constexpr (ForwardGives<M, Args...>) {
    return module.forward(std::forward<Args>(args)...);
  } else if constexpr (CallOperatorGives<M, Args...>) {
    return module(std::forward<Args>(args)...);
  } else {
    require_callable<Plain>();
    static_assert(ForwardableWith<M, Args...> || !(HasForward<M> || HasCallOperator<M>),
                  "lockstep: neither forward nor operator() of this module takes these arguments, "
                  "or it is private");
    static_assert(!ForwardableWith<M, Args...>,
                  "lockstep: the module's forward must return something");
    return Tensor();
  }
}

}  // namespace detail

}  // namespace lockstep
