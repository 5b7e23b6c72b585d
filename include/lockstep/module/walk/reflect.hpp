// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/module/walk/reflect_bindings.hpp>

#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

// Finds the members of a plain aggregate, without macros and without a base class.
//
// How many there are: T{a, b, c} compiles if and only if T has at least three members, so it tries
// ever more initialisers that convert to anything. Where they are: a structured binding of that
// many names. What they are called: compilers print the address of a member in __PRETTY_FUNCTION__
// with the member's name.
//
// A wrong count does not compile, since a structured binding needs the exact number of names.
// require_reflectable() refuses what cannot be counted.
namespace lockstep::detail {

// The most members of a reflected aggregate, and the most with each element of a C array counted.
inline constexpr std::size_t kMaxMembers = 64;
inline constexpr std::size_t kMaxInitializers = 128;

// Converts to anything. The conversion is const so that it loses against, rather than ties with, a
// converting constructor template of the target (std::any, std::optional), as the initialiser is
// not.
struct AnyInit {
  explicit AnyInit(std::size_t index);
  template <class T>
  operator T() const;
};

// Converts to nothing: only a type that takes anything takes it.
struct NoInit {
  explicit NoInit(std::size_t index);
};

// Converts only to base classes of T, or only to the empty ones. An aggregate's base is initialised
// like a member.
template <class T, bool empty_ones = false>
struct BaseInit {
  explicit BaseInit(std::size_t index);
  template <class Base>
  requires(std::is_base_of_v<Base, T> && !std::is_same_v<Base, T> &&
           (!empty_ones || std::is_empty_v<Base>))
  operator Base() const;
};

// g++ warns under -Wconversion that a constructor was chosen over AnyInit's conversion.
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#endif

template <class T, class First, class FirstIndices, class RestIndices>
inline constexpr bool initializable = false;

template <class T, class First, std::size_t... i, std::size_t... j>
inline constexpr bool
    initializable<T, First, std::index_sequence<i...>, std::index_sequence<j...>> = requires {
  T{First{i}..., AnyInit{j}...};
};

template <class T, class Before, class Inside, class After>
inline constexpr bool initializable_nested = false;

template <class T, std::size_t... i, std::size_t... j, std::size_t... k>
inline constexpr bool initializable_nested<T, std::index_sequence<i...>, std::index_sequence<j...>,
                                           std::index_sequence<k...>> = requires {
  T{AnyInit{i}..., {AnyInit{j}...}, AnyInit{k}...};
};

#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

// T{First × first, AnyInit × rest} compiles.
template <class T, class First, std::size_t first, std::size_t rest>
inline constexpr bool takes =
    initializable<T, First, std::make_index_sequence<first>, std::make_index_sequence<rest>>;

// T{AnyInit × before, {AnyInit × inside}, AnyInit × after} compiles.
template <class T, std::size_t before, std::size_t inside, std::size_t after>
inline constexpr bool takes_nested =
    initializable_nested<T, std::make_index_sequence<before>, std::make_index_sequence<inside>,
                         std::make_index_sequence<after>>;

// The most initialisers that T takes; kMaxInitializers + 1 if it takes more, or none can be found.
// A member without default constructor makes all shorter lists fail, so the search continues until
// the first success; a C array of such members makes lists fail that end within it, so it continues
// a little after each success, too.
template <class T, std::size_t n = 0, std::size_t best = kMaxInitializers + 1>
consteval std::size_t count_initializers() {
  constexpr std::size_t look_ahead = 8;
  constexpr bool found = best <= kMaxInitializers;
  if constexpr (found ? n > best + look_ahead : n > 8 * sizeof(T)) {
    return best;
  } else if constexpr (n > kMaxInitializers) {
    return takes<T, AnyInit, n, 0> ? n : best;
  } else if constexpr (takes<T, AnyInit, n, 0>) {
    return count_initializers<T, n + 1, n>();
  } else {
    return count_initializers<T, n + 1, best>();
  }
}

// How many of T's n initialisers the element at `at` takes: one, or a C array's number of elements,
// because inner braces may be left out. Braces for an array of k leave room for exactly n - at - k
// initialisers after them; for every other member they leave room for n - at - 1.
template <class T, std::size_t n, std::size_t at, std::size_t k = 1>
consteval std::size_t initializers_of_member() {
  if constexpr (k == 1) {
    // Most members take {}. Nothing else is tried then: giving a std::vector an element would
    // compile the copying of elements.
    if constexpr (takes_nested<T, at, 0, n - at - 1>) {
      return 1;
    } else if constexpr (takes_nested<T, at, 1, n - at - 1>) {
      return 1;
    } else {
      return initializers_of_member<T, n, at, 2>();
    }
  } else if constexpr (at + k > n) {
    return 1;
  } else if constexpr (takes_nested<T, at, k, n - at - k>) {
    return takes_nested<T, at, k, n - at - k + 1> ? 1 : k;
  } else {
    return initializers_of_member<T, n, at, k + 1>();
  }
}

template <class T, std::size_t n, std::size_t at>
consteval std::size_t count_members_from() {
  if constexpr (at >= n) {
    return 0;
  } else {
    return 1 + count_members_from<T, n, at + initializers_of_member<T, n, at>()>();
  }
}

// The number of T's n initialisers that are for base classes.
template <class T, std::size_t n, std::size_t k = 0>
consteval std::size_t count_bases() {
  if constexpr (k == n) {
    return k;
  } else if constexpr (takes<T, BaseInit<T>, k + 1, n - k - 1> &&
                       !takes<T, NoInit, k + 1, n - k - 1>) {
    return count_bases<T, n, k + 1>();
  } else {
    return k;
  }
}

enum class Reflection { possible, no_aggregate, not_countable, too_many, base_with_members };

struct Members {
  Reflection reflection;
  std::size_t count;
};

template <class T>
consteval Members find_members() {
  if constexpr (!std::is_class_v<T> || !std::is_aggregate_v<T>) {
    return {Reflection::no_aggregate, 0};
  } else {
    constexpr std::size_t n = count_initializers<T>();
    if constexpr (n > kMaxInitializers) {
      return {
          takes<T, AnyInit, kMaxInitializers, 0> ? Reflection::too_many : Reflection::not_countable,
          0};
    } else if constexpr (takes_nested<T, n, 0, 0> || (n == 0 && !std::is_empty_v<T>)) {
      return {Reflection::not_countable, 0};  // A further member takes {}, but not AnyInit.
    } else {
      constexpr std::size_t bases = count_bases<T, n>();
      constexpr std::size_t count = count_members_from<T, n, bases>();
      if constexpr (bases > 0 && !takes<T, BaseInit<T, true>, bases, n - bases>) {
        return {Reflection::base_with_members, 0};
      } else {
        return {count > kMaxMembers ? Reflection::too_many : Reflection::possible, count};
      }
    }
  }
}

template <class T>
inline constexpr Members members_of = find_members<std::remove_cv_t<T>>();

template <class T>
inline constexpr bool is_reflectable = members_of<T>.reflection == Reflection::possible;

// Compiles if T's members can be found; otherwise the message says why not, and what to do.
template <class T>
consteval void require_reflectable() {
  constexpr Reflection reflection = members_of<T>.reflection;
  static_assert(
      reflection != Reflection::no_aggregate,
      "lockstep: the members of this type cannot be found, because it is no plain aggregate (it "
      "has constructors, private members or virtual functions): declare the public static member "
      "template visit_members in it (examples/guides/your_own.md)");
  static_assert(
      reflection != Reflection::not_countable,
      "lockstep: the members of this struct cannot be counted: it has a reference (hold modules "
      "and tensors by value, as copies share their parameters, or in std::shared_ptr), or a member "
      "with a constructor template that takes anything by const reference: declare the public "
      "static member template visit_members in it (examples/guides/your_own.md)");
  static_assert(reflection != Reflection::too_many,
                "lockstep: this struct has more than 64 members, or more than 128 with the "
                "elements of its C arrays: group them in structs or std::array, or declare the "
                "public static member template visit_members (examples/guides/your_own.md)");
  static_assert(
      reflection != Reflection::base_with_members,
      "lockstep: this struct has members in a base class: make the base a member, or declare the "
      "public static member template visit_members (examples/guides/your_own.md)");
}

// The number of T's members; a C array is one member.
template <class T>
inline constexpr std::size_t member_count = members_of<T>.count;

// References to all members in the order of declaration: a tuple of M& (const M& if `object` is
// const). A compiler error here about the number of names means a bit-field, an anonymous union, or
// a member that nothing converts to: declare visit_members.
template <class T>
constexpr auto tie_members(T& object) {
  require_reflectable<std::remove_cv_t<T>>();
  return bind_members<member_count<T>>(object);
}

// Never defined, and its T never constructed: only addresses inside it are formed, at compile time.
// The struct around T allows types of internal or no linkage (anonymous namespaces, functions).
template <class T>
struct NeverConstructed {
  const T lockstep_object;
};

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wundefined-internal"
#pragma clang diagnostic ignored "-Wundefined-var-template"
#endif

template <class T>
extern const NeverConstructed<T> never_constructed;

// clang 14 takes the address of a member as a template argument only inside a class.
template <class M>
struct MemberAddress {
  M* address;
};

template <class T, std::size_t index>
constexpr auto member_address() {
  auto& member = std::get<index>(tie_members(never_constructed<T>.lockstep_object));
  return MemberAddress<std::remove_reference_t<decltype(member)>>{&member};
}

template <auto member>
constexpr std::string_view signature() {
  return __PRETTY_FUNCTION__;
}

// A text in which the compiler names T's member number `index`.
template <class T, std::size_t index>
constexpr std::string_view signature_of_member() {
  return signature<member_address<T, index>()>();
}

#if defined(__clang__)
#pragma clang diagnostic pop
#endif

constexpr std::string_view leading_name(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size() &&
         (text[length] == '_' || (text[length] >= '0' && text[length] <= '9') ||
          (text[length] >= 'a' && text[length] <= 'z') ||
          (text[length] >= 'A' && text[length] <= 'Z') ||
          static_cast<unsigned char>(text[length]) >= 0x80)) {
    ++length;
  }
  return text.substr(0, length);
}

struct NameProbe {
  int lockstep_first;
  int lockstep_second;
};

// What follows the name, such as ")}]": the same for every member.
inline constexpr std::size_t kSignatureTail = [] {
  constexpr std::string_view name = "lockstep_first";
  constexpr std::string_view text = signature_of_member<NameProbe, 0>();
  return text.size() - text.rfind(name) - name.size();
}();

// nvcc's front end prints all members of the tie instead of the requested one:
// "...lockstep_object.lockstep_first.lockstep_second) -2)}]".
inline constexpr bool kSignatureNamesAll =
    signature_of_member<NameProbe, 0>().find("lockstep_second") != std::string_view::npos;

template <class T, std::size_t index>
constexpr std::string_view find_member_name() {
  std::string_view text = signature_of_member<T, index>();
  if (kSignatureNamesAll) {
    text.remove_prefix(text.rfind("lockstep_object"));
    for (std::size_t i = 0; i <= index; ++i) {
      text.remove_prefix(text.find('.') + 1);
    }
    return leading_name(text);
  }
  text.remove_suffix(kSignatureTail);
  while (leading_name(text) != text) {
    text.remove_prefix(leading_name(text).size() + 1);
  }
  return text;
}

// The name of T's member number `index`, as written in its declaration.
template <class T, std::size_t index>
inline constexpr std::string_view member_name = find_member_name<std::remove_cv_t<T>, index>();

}  // namespace lockstep::detail
