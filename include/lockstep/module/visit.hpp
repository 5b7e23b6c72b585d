// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/module/walk/reflect.hpp>

#include <concepts>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace lockstep {

namespace detail {

struct IgnoreMember {
  template <class Member>
  void operator()(std::string_view /*name*/, Member& /*member*/) const {}
};

}  // namespace detail

// T lists its members itself, by this hook:
//
//   template <class Self, class Visitor>
//   static void visit_members(Self& self, Visitor&& visit) {  // Self may be const
//     visit("weight", self.weight);
//     visit("bias", self.bias);
//   }
//
// The hook is public and may list private members, such as a private `bool training`. It lists a
// pointer itself, not what it points to, so that clone and replicate can replace the object. A
// derived class with members of its own must declare the hook again and call
// Base::visit_members(self, visit) in it; nothing warns if it does not, since C++20 cannot detect
// it.
template <class T>
concept HasVisitMembers = std::is_class_v<T> && requires(T& self, const T& const_self) {
  std::remove_const_t<T>::visit_members(self, detail::IgnoreMember{});
  std::remove_const_t<T>::visit_members(const_self, detail::IgnoreMember{});
};

// T's members can be found without its help: T is a plain aggregate of at most 64 members, none of
// them in a base class or a reference.
template <class T>
concept Reflectable = detail::is_reflectable<std::remove_const_t<T>>;

// Calls `visitor(std::string_view name, Member& member)` for every member of `object`, in the order
// of declaration, or of the hook if T has one.
//
// A type that neither has a hook nor is Reflectable does not compile, and the message says why.
// Members are const if they or `object` are; a C array is passed as it is. The names live as long
// as the program if the hook's do.
//
// **Example.** for_each_member(linear, [](std::string_view name, auto& member) { ... });
template <class T, class Visitor>
void for_each_member(T& object, Visitor&& visitor) {
  if constexpr (HasVisitMembers<T>) {
    std::remove_const_t<T>::visit_members(object, visitor);
  } else {
    detail::require_reflectable<std::remove_cv_t<T>>();
    if constexpr (Reflectable<T>) {
      [&]<std::size_t... i>(std::index_sequence<i...>) {
        [[maybe_unused]] const auto members = detail::tie_members(object);
        (static_cast<void>(visitor(detail::member_name<T, i>, std::get<i>(members))), ...);
      }
      (std::make_index_sequence<detail::member_count<T>>());
    }
  }
}

namespace detail {

template <class T>
concept HasTraining = requires(T& module) {
  { (module.training) } -> std::same_as<bool&>;
};

}  // namespace detail

// T is a module around another one and adds nothing to its names: a walk visits T, then the other
// one under the same path. T has
//
//   template <class Self>
//   static auto& wrapped_module(Self& self) { return self.module_; }  // Self may be const
template <class T>
concept HasWrappedModule = std::is_class_v<T> && requires(T& self, const T& const_self) {
  std::remove_const_t<T>::wrapped_module(self);
  std::remove_const_t<T>::wrapped_module(const_self);
};

}  // namespace lockstep
