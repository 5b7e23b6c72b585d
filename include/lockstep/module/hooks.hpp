// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/module/concepts.hpp>
#include <lockstep/module/visit.hpp>

#include <tuple>
#include <type_traits>
#include <utility>

// Functions that run before or after a module's forward. A module is any struct and has no list of
// hooks; instead, a hook is a module around it that changes neither names nor parameters.
namespace lockstep {

struct NoHook {
  void operator()(const auto&... /*arguments*/) const {}
};

// A module that calls a hook, a module, and another hook. Either hook may be NoHook.
template <class M, class PreHook, class Hook>
class HookedModule {
 public:
  HookedModule(M module, PreHook pre_hook, Hook hook)
      : module_(std::move(module)), pre_hook_(std::move(pre_hook)), hook_(std::move(hook)) {
    detail::require_callable<M>();
  }

  template <class... Args>
  auto forward(const Args&... args) {
    const auto call = [&] { return pre_hook_(std::as_const(module_), std::tie(args...)); };
    using Changed = decltype(call());
    if constexpr (std::is_void_v<Changed>) {
      call();
      return forward_then_hook(args...);
    } else if constexpr (detail::is_tuple<std::remove_cvref_t<Changed>>) {
      return std::apply(
          [this](const auto&... changed) { return this->forward_then_hook(changed...); }, call());
    } else {
      return forward_then_hook(call());
    }
  }
  template <class... Args>
  auto operator()(const Args&... args) {
    return forward(args...);
  }

  M& module() { return module_; }
  const M& module() const { return module_; }

  template <class Self>
  static auto& wrapped_module(Self& self) {
    return self.module_;
  }

 private:
  template <class... Args>
  auto forward_then_hook(const Args&... args) {
    auto output = detail::forward(module_, args...);
    const auto call = [&] {
      return hook_(std::as_const(module_), std::tie(args...), std::as_const(output));
    };
    if constexpr (std::is_void_v<decltype(call())>) {
      call();
      return output;
    } else {
      return call();
    }
  }

  M module_;
  PreHook pre_hook_;
  Hook hook_;
};

// Returns the module with `hook(module, arguments, output)` called after its forward. `arguments`
// is a std::tuple of references. What the hook returns, if anything, replaces the output.
//
// Names of parameters stay the same. The hook is not part of the module: parameters within it are
// not found, moved or saved. Every replica runs its own copy of the hook, but all copies share what
// its closure refers to, which several threads may use at once.
//
// **Torch counterpart.** Module.register_forward_hook.
// **Threads and exceptions.** As the module and the hook.
// **Example.**
//   auto layer = ls::register_forward_hook(
//       ls::nn::Linear{4, 2}, [](const auto&, const auto&, const ls::Tensor& y) { std::cout << y;
//       });
template <class M, class Hook>
HookedModule<M, NoHook, Hook> register_forward_hook(M module, Hook hook) {
  return {std::move(module), NoHook{}, std::move(hook)};
}

// Returns the module with `hook(module, arguments)` called before its forward. If the hook returns
// something, forward gets that instead: the elements of a std::tuple, or one argument.
//
// **Torch counterpart.** Module.register_forward_pre_hook.
// **Threads and exceptions.** As register_forward_hook.
template <class M, class Hook>
HookedModule<M, Hook, NoHook> register_forward_pre_hook(M module, Hook hook) {
  return {std::move(module), std::move(hook), NoHook{}};
}

}  // namespace lockstep
