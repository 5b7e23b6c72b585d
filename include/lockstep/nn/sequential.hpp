// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/module/concepts.hpp>
#include <lockstep/module/visit.hpp>

#include <cstddef>
#include <string>
#include <tuple>
#include <utility>

namespace lockstep::nn {

// Runs modules one after another, each on the result of the one before; the first takes any number
// of arguments. Modules are held by value and may be of any types, lambdas without captures
// included. They are named by position: "0.weight", "0.bias", "2.weight".
//
// A copy shares its parameters with the original. `Sequential{other}` of a Sequential is a copy of
// it, not one that holds it.
//
// **Torch counterpart.** torch.nn.Sequential.
// **Example.** nn::Sequential net{nn::Linear{784, 512}, nn::ReLU{}, nn::Linear{512, 10}};
template <class... Modules>
requires(sizeof...(Modules) > 0) class Sequential {
  static_assert((Module<Modules> && ...),
                "lockstep: nn::Sequential takes copyable modules and lambdas: nn::ReLU{} in place "
                "of a function such as relu");

 public:
  explicit Sequential(Modules... modules) : modules_(std::move(modules)...) {}

  template <class... Args>
  auto forward(Args&&... args) {
    return run<0>(modules_, std::forward<Args>(args)...);
  }
  template <class... Args>
  auto forward(Args&&... args) const {
    return run<0>(modules_, std::forward<Args>(args)...);
  }
  template <class... Args>
  auto operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }
  template <class... Args>
  auto operator()(Args&&... args) const {
    return forward(std::forward<Args>(args)...);
  }

  static constexpr std::size_t size() { return sizeof...(Modules); }
  template <std::size_t index>
  auto& get() {
    return std::get<index>(modules_);
  }
  template <std::size_t index>
  const auto& get() const {
    return std::get<index>(modules_);
  }

  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    [&]<std::size_t... index>(std::index_sequence<index...>) {
      (static_cast<void>(visit(std::to_string(index), std::get<index>(self.modules_))), ...);
    }
    (std::index_sequence_for<Modules...>{});
  }

 private:
  template <std::size_t index, class Tuple, class... Args>
  static auto run(Tuple& modules, Args&&... args) {
    if constexpr (index + 1 == sizeof...(Modules)) {
      return detail::forward(std::get<index>(modules), std::forward<Args>(args)...);
    } else {
      return run<index + 1>(modules,
                            detail::forward(std::get<index>(modules), std::forward<Args>(args)...));
    }
  }

  std::tuple<Modules...> modules_;
};

}  // namespace lockstep::nn
