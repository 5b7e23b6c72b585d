// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/module/concepts.hpp>
#include <lockstep/module/walk/reflect.hpp>
#include <lockstep/module/walk/walk_rules.hpp>

#include <concepts>
#include <tuple>
#include <type_traits>
#include <utility>

// Decides which modules can be copied. std::copy_constructible is not enough: std::vector and its
// like, and structs that hold one, claim to be copyable whatever they hold, and fail when copied.
namespace lockstep::detail {

template <class T, class... Outer>
consteval bool find_copyable();

template <class Types, class... Outer>
inline constexpr bool all_copyable = true;
template <class... T, class... Outer>
inline constexpr bool all_copyable<std::tuple<T...>, Outer...> =
    (find_copyable<std::remove_cvref_t<T>, Outer...>() && ...);

// `Outer` are the classes around T; a member that leads back to one of them adds nothing.
template <class T, class... Outer>
consteval bool find_copyable() {
  constexpr NodeKind kind = node_kind<T>;
  if constexpr ((std::is_same_v<T, Outer> || ...)) {
    return true;
  } else if constexpr (std::is_array_v<T>) {
    return find_copyable<std::remove_all_extents_t<T>, Outer...>();
  } else if constexpr (!std::copy_constructible<T>) {
    return false;
  } else if constexpr (kind == NodeKind::structure || kind == NodeKind::map ||
                       kind == NodeKind::sequence) {
    return all_copyable<typename Holder<T>::Held, Outer...>;
  } else if constexpr (kind == NodeKind::wrapper) {
    using Wrapped = decltype(T::wrapped_module(std::declval<T&>()));
    return find_copyable<std::remove_cvref_t<Wrapped>, T, Outer...>();
  } else if constexpr (kind == NodeKind::members && Reflectable<T>) {
    return all_copyable<decltype(tie_members(std::declval<T&>())), T, Outer...>;
  } else {
    return true;
  }
}

template <class M>
concept CopyableModule = find_copyable<M>();

// Each of these compiles if M is what its name says; otherwise the message says why not, and what
// to do.
template <class M>
consteval void require_copyable() {
  static_assert(
      CopyableModule<M>,
      "lockstep: this module cannot be copied, as cloning and replicating it require: hold its "
      "sub-modules by value, in std::optional or in std::shared_ptr instead of "
      "std::unique_ptr; what else cannot be copied, as a std::mutex, goes into a std::shared_ptr");
}

template <class M>
consteval void require_module() {
  static_assert(!ForeignModule<M>,
                "lockstep: this is another library's module, which goes to replicate and "
                "parallel_apply alone: LibTorch's have lockstep::libtorch::DataParallel");
  if constexpr (!ForeignModule<M>) {
    require_callable<M>();
    require_copyable<M>();
  }
}

}  // namespace lockstep::detail
