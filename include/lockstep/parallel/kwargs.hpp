// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>

namespace lockstep {

// Keyword arguments of a call: a plain struct of named fields, which the module's forward takes as
// its last argument. Fields that the caller does not name keep the struct's defaults.
//
// **Torch counterpart.** **kwargs of a module's forward.
// **Example.**
//   struct Options { ls::Tensor mask = {}; double scale = 1; };
//   ls::Tensor Net::forward(const ls::Tensor& x, const Options& options);
//   model(x, ls::kwargs(Options{.mask = mask}));
template <class T>
struct Kwargs {
  T values;
};

template <class T>
Kwargs<T> kwargs(T values) {
  return {std::move(values)};
}

// Keywords known only at run time: the module's forward takes this instead of a struct and looks
// them up by name.
using KwargsMap =
    std::map<std::string,
             std::variant<std::monostate, Tensor, double, std::int64_t, bool, std::string>>;

}  // namespace lockstep
