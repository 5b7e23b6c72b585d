// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/module/visit.hpp>
#include <lockstep/module/walk/structure.hpp>
#include <lockstep/parallel/replicas/shared_by_replicas.hpp>
#include <lockstep/parallel/tensor_traits.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>

// Nested arguments and results: a walk to the tensors in them, the leaves.
namespace lockstep::detail::nested {

// Where in a structure a walk is, as a list of steps on the stack: args[1].mask
class Path {
 public:
  explicit Path(std::string_view root) : name_(root) {}
  Path(const Path& parent, std::string_view member) : parent_(&parent), name_(member) {}
  Path(const Path& parent, std::size_t index) : parent_(&parent), index_(index) {}
  Path(const Path& parent, Unnamed /*child*/) : Path(parent) {}

  // Made without a std::ostream, which is slow: a plan keeps the text of a path for each call's
  // arguments.
  std::string text() const {
    std::string steps;
    append_to(steps);
    return steps;
  }
  friend std::ostream& operator<<(std::ostream& out, const Path& path) {
    return out << path.text();
  }

 private:
  void append_to(std::string& steps) const {
    if (!parent_) {
      steps += name_;
      return;
    }
    parent_->append_to(steps);
    if (name_.data()) {
      steps.append(1, '.').append(name_);
    } else {
      steps.append(1, '[').append(std::to_string(index_)).append(1, ']');
    }
  }

  const Path* parent_ = nullptr;
  std::string_view name_;
  std::size_t index_ = 0;
};

// A number, an enumerator or a string: never structure, and comparable.
template <class T>
concept PlainValue =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::convertible_to<const T&, std::string_view>;

// Calls `visit(leaf, path)` for every tensor in `value` that is defined, in an order that depends
// on the structure alone. `value` may be const or not; what is neither tensor nor structure is
// passed over, and of a plain struct with the hook what this does not list.
template <class T, class Visit>
void for_each_leaf(T& value, const Path& path, Visit& visit) {
  using Plain = std::remove_const_t<T>;
  if constexpr (shared_by_replicas<Plain>) {
    return;
  } else if constexpr (TensorLike<Plain>) {
    if (tensor_traits<Plain>::defined(value)) visit(value, path);
  } else if constexpr (HasTensorTraits<Plain>) {
    require_whole_traits<Plain>();
  } else if constexpr (std::derived_from<Plain, Tensor>) {  // a Parameter, a Buffer
    for_each_leaf(
        static_cast<std::conditional_t<std::is_const_v<T>, const Tensor&, Tensor&>>(value), path,
        visit);
  } else if constexpr (form_of<Plain> == Form::members && HasVisitMembers<Plain>) {
    for_each_member(value, [&](std::string_view name, auto& member) {
      for_each_leaf(member, Path(path, name), visit);
    });
  } else {
    for_each_child(value, [&](const auto& name, auto& child, const auto& /*step*/) {
      for_each_leaf(child, Path(path, name), visit);
    });
  }
}

}  // namespace lockstep::detail::nested
