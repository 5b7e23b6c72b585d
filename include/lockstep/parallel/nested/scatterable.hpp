// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/module/concepts.hpp>
#include <lockstep/module/visit.hpp>
#include <lockstep/module/walk/reflect.hpp>
#include <lockstep/module/walk/structure.hpp>
#include <lockstep/module/walk/walk_rules.hpp>
#include <lockstep/parallel/nested/leaves.hpp>
#include <lockstep/parallel/replicas/shared_by_replicas.hpp>
#include <lockstep/parallel/scattered.hpp>
#include <lockstep/parallel/tensor_traits.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <ostream>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

// Decides which types scatter and gather take.
//
// Whatever the walk does not enter goes to every device as it is: right for a constant, but
// silently wrong for tensors. So types are refused at compile time, unless shared_by_replicas is
// set, that hold tensors where the walk does not go, look like a tensor without tensor_traits, or
// have inaccessible members. Accepted all the same: classes of the standard library such as
// std::any, functors that hide their members, and pointers to modules, incomplete types or classes
// that hide theirs.
namespace lockstep::detail::nested {

// Why a type is refused.
enum class Obstacle {
  none,
  not_assignable,
  pointer,     // a raw or smart pointer, or a reference_wrapper
  container,   // one that the walk does not enter
  scattered,   // parts for several devices
  functor,     // such as a module: its tensors have no rows of a batch
  unreadable,  // an aggregate whose members cannot be found
  incomplete_traits,
  no_traits,
  hidden,  // a class with inaccessible members
  key,
  array,
  not_copyable
};

// The types that a type holds, as far as known, and the reason to refuse it if any of them holds
// tensors; unreadable and hidden ones are refused anyway. `none` if the walk enters the type, or if
// nothing is known.
template <Obstacle reason, class... T>
struct Content {};

// Stands for a tensor among the types that a type holds.
enum class TensorItself {};

// The children of a standard library structure.
template <class... T>
consteval auto content_of_children(const std::tuple<T...>* /*children*/) {
  return Content<Obstacle::none, T...>();
}

// The members of a plain struct, as tie_members gives them. Its type is const, so that a const
// reference looks like a const member.
template <Obstacle reason, class... T>
consteval auto content_of_members(const std::tuple<T&...>* /*members*/) {
  return Content<reason, T...>();
}
template <class T>
using Members = const decltype(tie_members(std::declval<T&>()));

// False for a type without a size or whose definition is still to come, as a pointee may be.
template <class T>
concept Complete = std::is_object_v<T> && requires {
  sizeof(T);
};

// Trivially copyable types own no tensor, and assignable ones have no reference to one.
template <class T>
concept PlainData = std::is_trivially_copyable_v<T> && std::is_copy_assignable_v<T>;

// Whether a class of another library, which the walk does not enter, holds tensors although its
// declaration does not show it. Set by the header that adapts the library.
template <class T>
inline constexpr bool is_foreign_container = false;

// Whether the type's name is one of the standard library's. Private members of these hold no
// tensors, or, as in std::any, none that can be asked for.
template <class T>
consteval bool is_of_standard_library() {
  std::string_view text = __PRETTY_FUNCTION__;  // "... [with T = std::any]"
  text.remove_prefix(text.find('=') + 1);
  text.remove_prefix(text.find_first_not_of(' '));
  return text.starts_with("std::");
}

// Whether every device gets a class with inaccessible members as it is. Set by headers that adapt
// another library for its classes without tensors.
template <class T>
inline constexpr bool is_shared_as_is = is_of_standard_library<T>();

// A class that may own tensors in inaccessible members: private ones, those of a class with
// constructors, or those that only the hook visit_members shows.
template <class T>
concept MayHideTensors = std::is_class_v<T> && !std::is_aggregate_v<T> && !std::is_empty_v<T> &&
                         !PlainData<T> && std::copy_constructible<T> &&
                         !std::convertible_to<const T&, std::string_view> && !is_shared_as_is<T>;

// A class that has a shape and owns memory, as other libraries' tensors and matrices do.
template <class T>
concept LooksLikeTensor =
    std::is_class_v<T> && !std::is_trivially_copyable_v<T> && !HasForward<T> &&
    (
        requires(const T& t) { t.sizes(); } || requires(const T& t) { t.shape(); } ||
        requires(const T& t) { t.dims(); } || requires(const T& t) { t.dim(); } ||
        requires(const T& t) { t.ndim(); } ||
        requires(const T& t) {
          t.rows();
          t.cols();
        });

template <class T>
consteval auto find_content() {
  if constexpr (shared_by_replicas<T>) {
    return Content<Obstacle::none>();
  } else if constexpr (!std::is_void_v<typename Pointee<T>::type> &&
                       !requires { typename T::value_type; }) {  // a span is a container below
    return Content<Obstacle::pointer, typename Pointee<T>::type>();
  } else if constexpr (std::is_array_v<T>) {
    return Content<Obstacle::container, std::remove_all_extents_t<T>>();
  } else if constexpr (!Complete<T>) {
    return Content<Obstacle::none>();
  } else if constexpr (HasTensorTraits<T> || std::derived_from<T, Tensor>) {
    return Content<Obstacle::none, TensorItself>();
  } else if constexpr (is_foreign_container<T>) {
    return Content<Obstacle::container, Tensor>();
  } else if constexpr (Structure<T>::form != Form::none) {
    return content_of_children(static_cast<const typename Structure<T>::Children*>(nullptr));
  } else if constexpr (!std::is_class_v<T>) {
    return Content<Obstacle::none>();
  } else if constexpr (HasForward<T> || HasCallOperator<T>) {
    if constexpr (HasVisitMembers<T>) {
      return Content<Obstacle::functor, Tensor>();  // layers have the hook for their tensors
    } else if constexpr (std::is_aggregate_v<T> && !PlainData<T> && Reflectable<T>) {
      return content_of_members<Obstacle::functor>(static_cast<Members<T>*>(nullptr));
    } else {
      return Content<Obstacle::none>();
    }
  } else if constexpr (StructLike<T>) {
    return content_of_members<Obstacle::none>(static_cast<Members<T>*>(nullptr));
  } else if constexpr (std::is_aggregate_v<T> && !PlainData<T>) {
    return Content<Obstacle::unreadable>();
  } else if constexpr (is_scattered<T>) {
    return Content<Obstacle::scattered, typename T::value_type>();
  } else if constexpr (requires { typename T::mapped_type; }) {
    return Content<Obstacle::container, typename T::key_type, typename T::mapped_type>();
  } else if constexpr (requires { typename T::value_type; }) {
    return Content<Obstacle::container, typename T::value_type>();
  } else if constexpr (requires { typename T::element_type; }) {
    return Content<Obstacle::pointer, typename T::element_type>();
  } else if constexpr (MayHideTensors<T>) {
    return Content<Obstacle::hidden>();
  } else {
    return Content<Obstacle::none>();
  }
}

template <class T>
using ContentIn = decltype(find_content<std::remove_cv_t<T>>());

// Whether a T holds tensors or points to them. `Outer` lists the types on the way to T, since types
// may contain themselves behind a pointer. Structs of plain data are skipped: C libraries' ones
// often cannot be reflected.
template <class T, class... Outer>
consteval bool find_tensors();

template <class... Outer, Obstacle reason, class... T>
consteval bool find_tensors_in(Content<reason, T...> /*content*/) {
  if constexpr (reason == Obstacle::functor) return false;  // a pointer to one may be shared
  return (find_tensors<std::remove_cvref_t<T>, Outer...>() || ...);
}

template <class T, class... Outer>
consteval bool find_tensors() {
  if constexpr (std::is_same_v<T, TensorItself>) {
    return true;
  } else if constexpr ((std::is_same_v<T, Outer> || ...)) {
    return false;
  } else if constexpr (!Complete<T> && !std::is_array_v<T>) {
    return false;
  } else if constexpr (std::is_class_v<T> && std::is_aggregate_v<T> && PlainData<T>) {
    return false;
  } else {
    return find_tensors_in<T, Outer...>(ContentIn<T>());
  }
}

template <class T>
inline constexpr bool holds_tensors = find_tensors<std::remove_cvref_t<T>>();

// Why a type is refused, and the type at fault; compilers print this with the message.
template <Obstacle reason, class Culprit = void>
struct Found {
  static constexpr Obstacle obstacle = reason;
};

// The entries of a map are walked in the order of their keys, and error messages print these.
template <class Key>
concept WalkableKey = requires(const Key& a, const Key& b, std::ostream& out) {
  { a < b } -> std::convertible_to<bool>;
  requires std::convertible_to<const Key&, std::string_view> || requires { out << a; };
};

template <class T, class... Outer>
consteval auto find_obstacle();

// Whether a T, held by a container that is not divided, is or contains a class with inaccessible
// members.
template <class T, class... Outer>
consteval bool hides_tensors() {
  if constexpr (!Complete<T>) {
    return false;
  } else {
    return decltype(find_obstacle<T, Outer...>())::obstacle == Obstacle::hidden;
  }
}

template <class... Outer>
consteval auto find_first_obstacle(Content<Obstacle::none> /*content*/) {
  return Found<Obstacle::none>();
}
template <class... Outer, class First, class... Rest>
consteval auto find_first_obstacle(Content<Obstacle::none, First, Rest...> /*content*/) {
  using Result = decltype(find_obstacle<First, Outer...>());
  if constexpr (Result::obstacle != Obstacle::none) {
    return Result();
  } else {
    return find_first_obstacle<Outer...>(Content<Obstacle::none, Rest...>());
  }
}
// The first obstacle in what a `Plain` holds.
template <class Plain, class... Outer, Obstacle reason, class... T>
consteval auto find_obstacle_in(Content<reason, T...> content) {
  if constexpr (reason == Obstacle::none) {
    return find_first_obstacle<Plain, Outer...>(content);
  } else if constexpr (reason == Obstacle::functor) {
    constexpr bool has_tensors =
        ((holds_tensors<T> ||
          decltype(find_obstacle<std::remove_cvref_t<T>, Plain, Outer...>())::obstacle ==
              Obstacle::functor) ||
         ...);
    constexpr Obstacle obstacle = has_tensors ? Obstacle::functor : Obstacle::none;
    return Found<obstacle, Plain>();
  } else if constexpr (reason == Obstacle::unreadable || reason == Obstacle::hidden ||
                       (holds_tensors<T> || ...)) {
    return Found<reason, Plain>();
  } else if constexpr (reason == Obstacle::container) {
    constexpr bool hides = (hides_tensors<T, Plain, Outer...>() || ...);
    constexpr Obstacle obstacle = hides ? Obstacle::hidden : Obstacle::none;
    return Found<obstacle, Plain>();
  } else {
    return Found<Obstacle::none>();
  }
}

template <class T, class... Outer>
consteval auto find_obstacle() {
  using Plain = std::remove_cvref_t<T>;
  if constexpr ((std::is_same_v<Plain, Outer> || ...)) {
    return Found<Obstacle::none>();
  } else if constexpr (HasTensorTraits<Plain> && !TensorLike<Plain> && !shared_by_replicas<Plain>) {
    return Found<Obstacle::incomplete_traits, Plain>();
  } else if constexpr (!std::is_same_v<T, Plain> && holds_tensors<T>) {
    return Found<Obstacle::not_assignable, T>();
  } else if constexpr (LooksLikeTensor<Plain> && !holds_tensors<Plain> &&
                       !shared_by_replicas<Plain>) {
    return Found<Obstacle::no_traits, Plain>();
  } else {
    using Result = decltype(find_obstacle_in<Plain, Outer...>(ContentIn<Plain>()));
    if constexpr (Result::obstacle != Obstacle::none) {
      return Result();
    } else if constexpr (std::is_array_v<Plain> && sizeof...(Outer) > 0) {
      return Found<Obstacle::none>();  // copied with the struct that has it as a member
    } else if constexpr (std::is_array_v<Plain>) {
      return Found<Obstacle::array, Plain>();
    } else if constexpr (!std::copy_constructible<Plain>) {
      return Found<Obstacle::not_copyable, Plain>();
    } else if constexpr (Structure<Plain>::form == Form::map) {
      using Key = typename Plain::key_type;
      constexpr Obstacle obstacle = WalkableKey<Key> ? Obstacle::none : Obstacle::key;
      return Found<obstacle, Key>();
    } else {
      return Found<Obstacle::none>();
    }
  }
}

template <class T>
consteval void explain(Found<Obstacle::none, T> /*found*/) {}

template <class T>
consteval void explain(Found<Obstacle::incomplete_traits, T> /*found*/) {
  require_whole_traits<T>();
}

template <Obstacle obstacle, class Culprit>
consteval void explain(Found<obstacle, Culprit> /*found*/) {
  static_assert(obstacle != Obstacle::not_assignable,
                "lockstep: cannot be divided among devices: it has tensors that are const or "
                "references, which cannot be replaced by chunks: hold them by value (a copy of a "
                "Tensor shares its data)");
  static_assert(obstacle != Obstacle::pointer,
                "lockstep: cannot be divided among devices: it points to tensors, and all of them "
                "would go to every device: hold them by value, in std::optional or in std::vector "
                "(a copy of a Tensor shares its data)");
  static_assert(obstacle != Obstacle::container,
                "lockstep: cannot be divided among devices: it is a container of tensors that is "
                "not divided, and all of them would go to every device: use std::vector, "
                "std::array, std::map or std::unordered_map, or specialise tensor_traits for it");
  static_assert(obstacle != Obstacle::scattered,
                "lockstep: cannot be divided among devices: it has a Scattered inside, which has "
                "one part for each device already: pass that as an argument of its own");
  static_assert(obstacle != Obstacle::functor,
                "lockstep: cannot be divided among devices: it is a module or functor, whose "
                "tensors are neither divided nor moved: make it a member of the module that is "
                "called, or set lockstep::shared_by_replicas for it");
  static_assert(obstacle != Obstacle::no_traits,
                "lockstep: cannot be divided among devices: it looks like a tensor, and all of it "
                "would go to every device: specialise lockstep::tensor_traits for it, or set "
                "lockstep::shared_by_replicas if this is meant");
  static_assert(obstacle != Obstacle::unreadable,
                "lockstep: cannot be divided among devices: this struct may have tensors, but its "
                "members cannot be found: it may have no members in a base class, none that are "
                "references, and at most 64");
  static_assert(obstacle != Obstacle::hidden,
                "lockstep: cannot be divided among devices: this class may have tensors in members "
                "that cannot be seen, and all of them would go to every device: hold them in the "
                "public members of a plain struct, or specialise lockstep::tensor_traits for it; "
                "if every device is to get all of it, set lockstep::shared_by_replicas for it or "
                "hold it in std::shared_ptr");
  static_assert(obstacle != Obstacle::key,
                "lockstep: cannot be divided among devices: the keys of this map need operator< "
                "and operator<<, as its entries are walked in their order and named in errors");
  static_assert(obstacle != Obstacle::array,
                "lockstep: cannot be divided among devices: a C array cannot be copied: use "
                "std::string, std::array or std::vector");
  static_assert(obstacle != Obstacle::not_copyable,
                "lockstep: cannot be divided among devices: this type cannot be copied, but each "
                "device gets a copy of its own: what all of them are to share can be held in "
                "std::shared_ptr");
}

}  // namespace lockstep::detail::nested

namespace lockstep {

// A type of which each device can get a part: it is copyable and has no tensors where they would
// not be divided, such as behind a pointer, in a std::deque or in an aggregate that cannot be
// reflected, nor inaccessible members that may hold some.
template <class T>
concept Scatterable =
    decltype(detail::nested::find_obstacle<T>())::obstacle == detail::nested::Obstacle::none;

namespace detail {

// Compiles if T is Scatterable; otherwise the message says why not, and what to use instead.
template <class T>
consteval void require_scatterable() {
  nested::explain(nested::find_obstacle<T>());
}

}  // namespace detail

}  // namespace lockstep
