// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/module/concepts.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/visit.hpp>
#include <lockstep/module/walk/structure.hpp>

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

// What the walk over a module's members does with each type.
//
// - Parameter, Buffer: visits it.
// - A module around another one (HasWrappedModule): walks the other one, under the same name.
// - A type with the hook, or a plain aggregate, module or not: walks its members.
// - std::unique_ptr, std::shared_ptr, std::optional, std::variant: walks what they hold.
// - std::pair, std::tuple, std::array, C arrays, std::vector and other sequences, maps: walks the
//   elements.
// - Anything else: skips it, since nobody could know of a parameter in it: numbers, strings, a
//   plain Tensor, std::weak_ptr (it leads back to an owner), std::function and std::any (they do
//   not show what they hold), other classes without a hook.
//
// Types that cannot be walked but must be modules are refused, so that no parameters are lost: a
// class without a hook that has a member `forward`, or a single operator() that takes or returns
// Tensors; an aggregate whose members cannot be counted; a raw pointer, std::reference_wrapper or
// std::span of a module or parameter; a smart pointer to an abstract class of modules. Trivially
// copyable non-aggregates are accepted, since they cannot own a tensor.
namespace lockstep::detail {

enum class NodeKind {
  opaque,
  tensor,
  wrapper,
  members,
  unique_owner,
  shared_owner,
  structure,  // one of nested values, except for a map
  map,
  sequence
};

template <class T>
concept MapLike = requires(T& map) {
  typename T::key_type;
  typename T::mapped_type;
  map.begin()->second;
  map.end();
};

// A class with begin() and end() over elements in memory that are not of its own type.
template <class T>
concept SequenceLike = requires(T& sequence) {
  { *sequence.begin() } -> std::convertible_to<const typename T::value_type&>;
  sequence.end();
  requires std::is_lvalue_reference_v<decltype(*sequence.begin())>;
  requires !std::same_as<typename T::value_type, T>;
};

// What a raw pointer, std::reference_wrapper or std::span refers to; void for any other T.
template <class T>
struct Pointee {
  using type = void;
};
template <class T>
struct Pointee<T*> {
  using type = std::remove_cv_t<T>;
};
template <class T>
struct Pointee<std::reference_wrapper<T>> {
  using type = std::remove_cv_t<T>;
};
template <class T, std::size_t n>
struct Pointee<std::span<T, n>> {
  using type = std::remove_cv_t<T>;
};

// The kind of a type that holds elements or owns an object, and the types that it holds. Structures
// of nested values come first, so a plain struct that looks like a map has its members.
template <class T>
struct Holder {
  static constexpr NodeKind kind = NodeKind::opaque;
  using Held = std::tuple<>;
};
template <class T>
requires(nested::Structure<T>::form != nested::Form::none &&
         nested::Structure<T>::form != nested::Form::map) struct Holder<T> {
  static constexpr NodeKind kind = NodeKind::structure;
  using Held = typename nested::Structure<T>::Children;
};
template <MapLike T>
requires(!std::is_aggregate_v<T>) struct Holder<T> {
  static constexpr NodeKind kind = NodeKind::map;
  using Held = std::tuple<typename T::mapped_type>;
};
template <SequenceLike T>
requires(nested::Structure<T>::form == nested::Form::none && !std::is_aggregate_v<T> &&
         !MapLike<T> && std::is_void_v<typename Pointee<T>::type>) struct Holder<T> {
  static constexpr NodeKind kind = NodeKind::sequence;
  using Held = std::tuple<typename T::value_type>;
};
template <class T, class Deleter>
struct Holder<std::unique_ptr<T, Deleter>> {
  static constexpr NodeKind kind = NodeKind::unique_owner;
  using Held = std::tuple<T>;
};
template <class T>
struct Holder<std::shared_ptr<T>> {
  static constexpr NodeKind kind = NodeKind::shared_owner;
  using Held = std::tuple<T>;
};
template <class T, std::size_t n>
struct Holder<T[n]> {
  static constexpr NodeKind kind = NodeKind::sequence;
  using Held = std::tuple<T>;
};

// Whether T is nothing but what it holds. A class that looks like a sequence or a map but has a
// forward may have parameters beside its elements.
template <class T>
inline constexpr bool holds_only = [] {
  constexpr NodeKind kind = Holder<T>::kind;
  if constexpr (kind == NodeKind::sequence || kind == NodeKind::map) {
    return !HasForward<T>;
  } else {
    return kind != NodeKind::opaque;
  }
}();

template <class T>
consteval NodeKind find_node_kind() {
  if constexpr (std::derived_from<T, Parameter> || std::derived_from<T, Buffer>) {
    return NodeKind::tensor;
  } else if constexpr (HasWrappedModule<T>) {
    return NodeKind::wrapper;
  } else if constexpr (HasVisitMembers<T>) {
    return NodeKind::members;
  } else if constexpr (holds_only<T>) {
    return Holder<T>::kind;
  } else if constexpr (!std::is_aggregate_v<T> || !std::is_class_v<T> ||
                       std::derived_from<T, Tensor>) {
    return NodeKind::opaque;
  } else {
    return !std::is_trivially_copyable_v<T> || is_reflectable<T> || HasForward<T>
               ? NodeKind::members
               : NodeKind::opaque;
  }
}

template <class T>
inline constexpr NodeKind node_kind = find_node_kind<std::remove_const_t<T>>();

// Whether the walk enters values of type T. It looks through the standard library's templates, but
// not into a class's members, which may lead back to T. The exception are trivially copyable
// aggregates, which cannot: these are walked only for modules in them (Dropout), so that plain data
// (a vector of points) is not walked element by element.
template <class T>
consteval bool find_walkable();

template <class T>
inline constexpr bool walkable = find_walkable<std::remove_const_t<T>>();

template <class Tuple>
inline constexpr bool any_walkable = false;
template <class... T>
inline constexpr bool any_walkable<std::tuple<T...>> = (walkable<std::remove_reference_t<T>> ||
                                                        ...);

template <class T>
consteval bool find_walkable() {
  constexpr NodeKind kind = node_kind<T>;
  if constexpr (kind == NodeKind::opaque) {
    return false;
  } else if constexpr (kind == NodeKind::tensor || kind == NodeKind::wrapper) {
    return true;
  } else if constexpr (kind == NodeKind::members) {
    if constexpr (HasVisitMembers<T> || !std::is_trivially_copyable_v<T> || HasForward<T> ||
                  HasCallOperator<T> || HasTraining<T>) {
      return true;
    } else {
      return any_walkable<decltype(tie_members(std::declval<T&>()))>;
    }
  } else {
    return any_walkable<typename Holder<T>::Held>;
  }
}

// Whether a walk may meet a parameter, a buffer or a module in a walkable T. `Outer` are the
// classes around T; a member that leads back to one of them adds nothing. A class with a
// replication callback counts as a module.
template <class T, class... Outer>
consteval bool find_module_parts();

template <class T>
inline constexpr bool holds_module_parts = find_module_parts<std::remove_const_t<T>>();

template <class Types, class... Outer>
inline constexpr bool any_module_parts = false;
template <class... T, class... Outer>
inline constexpr bool any_module_parts<std::tuple<T...>, Outer...> =
    (find_module_parts<std::remove_cvref_t<T>, Outer...>() || ...);

template <class T, class... Outer>
consteval bool find_module_parts() {
  constexpr NodeKind kind = node_kind<T>;
  if constexpr (kind == NodeKind::opaque || (std::is_same_v<T, Outer> || ...)) {
    return false;
  } else if constexpr (kind == NodeKind::tensor || kind == NodeKind::wrapper) {
    return true;
  } else if constexpr (kind != NodeKind::members) {
    return any_module_parts<typename Holder<T>::Held, Outer...>;
  } else if constexpr (HasVisitMembers<T> || HasForward<T> || HasCallOperator<T> ||
                       HasTraining<T> || requires { &T::data_parallel_replicate; }) {
    return true;
  } else {
    return any_module_parts<decltype(tie_members(std::declval<T&>())), T, Outer...>;
  }
}

// Whether a T that is not walked is a plain Tensor, or a standard library template that holds one.
template <class T>
consteval bool find_plain_tensors();

template <class T>
inline constexpr bool holds_plain_tensors = find_plain_tensors<T>();

template <class Held>
inline constexpr bool any_plain_tensors = false;
template <class... T>
inline constexpr bool any_plain_tensors<std::tuple<T...>> =
    (holds_plain_tensors<std::remove_cvref_t<T>> || ...);

template <class T>
consteval bool find_plain_tensors() {
  constexpr NodeKind kind = node_kind<T>;
  if constexpr (kind == NodeKind::opaque) {
    return std::derived_from<T, Tensor>;
  } else if constexpr (kind == Holder<T>::kind) {
    return any_plain_tensors<typename Holder<T>::Held>;
  } else {  // its members may lead back to T
    return false;
  }
}

// F's parameters or its result include a Tensor.
template <class F>
inline constexpr bool concerns_tensors = false;
template <class R, class... Args>
inline constexpr bool concerns_tensors<std::function<R(Args...)>> =
    (std::derived_from<std::remove_cvref_t<R>, Tensor> || ... ||
     std::derived_from<std::remove_cvref_t<Args>, Tensor>);

template <class T>
inline constexpr bool is_function_wrapper = false;
template <class F>
inline constexpr bool is_function_wrapper<std::function<F>> = true;

// T has a single operator(), which takes or returns Tensors. std::function's deduction guide reads
// its signature.
template <class T>
concept CallsOnTensors = requires {
  &T::operator();
}
&&concerns_tensors<decltype(std::function(std::declval<const T&>()))>;

template <class T>
consteval bool is_unwalkable_module() {
  if constexpr (std::is_trivially_copyable_v<T> || is_function_wrapper<T> ||
                node_kind<T> != NodeKind::opaque) {
    return false;
  } else {
    return HasForward<T> || CallsOnTensors<T>;
  }
}

// A parameter, a buffer, or a type that can only be a module. T may be incomplete or void, as a
// pointee.
template <class T>
concept PartOfModule = requires {
  sizeof(T);
  requires std::derived_from<T, Parameter> || std::derived_from<T, Buffer> || HasForward<T> ||
      CallsOnTensors<T>;
};

template <class Held>
struct NoHiddenParametersIn;

// Compiles if skipping a T loses no parameter that a walk could know of.
template <class T>
consteval void require_no_hidden_parameters() {
  using Plain = std::remove_const_t<T>;
  if constexpr (!std::is_void_v<typename Pointee<Plain>::type>) {
    static_assert(
        !PartOfModule<typename Pointee<Plain>::type>,
        "lockstep: a raw pointer or std::reference_wrapper to a module or parameter, or a "
        "std::span of such, does not own it, and it would be neither found nor moved nor "
        "replicated: hold it by value (a copy shares its parameters) or in std::shared_ptr; if it "
        "is no part of this module, leave it out in a public static member template visit_members "
        "(examples/guides/your_own.md)");
  } else if constexpr (holds_only<Plain>) {
    NoHiddenParametersIn<typename Holder<Plain>::Held>::require();
  } else if constexpr (std::is_unbounded_array_v<Plain>) {
    static_assert(!walkable<std::remove_extent_t<Plain>>,
                  "lockstep: the length of an array behind a pointer is not known: hold modules "
                  "and parameters in a std::vector");
  } else if constexpr (node_kind<Plain> == NodeKind::members) {
    NoHiddenParametersIn<decltype(tie_members(std::declval<Plain&>()))>::require();
  } else if constexpr (std::is_class_v<Plain>) {
    static_assert(
        !is_unwalkable_module<Plain>() || !std::is_abstract_v<Plain>,
        "lockstep: the parameters behind a pointer to an abstract class of modules cannot "
        "be found, since they are members of the classes derived from it: hold a "
        "std::variant of those classes in its place, as in "
        "std::vector<std::variant<Conv, Norm>>");
    static_assert(
        !is_unwalkable_module<Plain>() || std::is_abstract_v<Plain>,
        "lockstep: this module's parameters cannot be found, because it is no plain aggregate (it "
        "has constructors, private members, virtual functions or a virtual base, or is a lambda "
        "with captures): make it a struct with its layers as members, or declare the public static "
        "member template visit_members in it (examples/guides/your_own.md)");
  }
}

template <class... T>
struct NoHiddenParametersIn<std::tuple<T...>> {
  static consteval void require() {
    (require_no_hidden_parameters<std::remove_reference_t<T>>(), ...);
  }
};

// The same for a type that is meant to be a module: it must be clear whether it holds parameters.
template <class M>
consteval void require_walkable_module() {
  require_no_hidden_parameters<M>();
  static_assert(!std::is_class_v<M> || node_kind<M> != NodeKind::opaque ||
                    std::is_trivially_copyable_v<M> || is_unwalkable_module<M>(),
                "lockstep: the parameters of this module cannot be found: make it a struct with "
                "its layers as members, or declare the public static member template visit_members "
                "in it (examples/guides/your_own.md)");
}

}  // namespace lockstep::detail
