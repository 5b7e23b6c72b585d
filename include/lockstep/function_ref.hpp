// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

namespace lockstep::detail {

template <class Signature>
class FunctionRef;

// A reference to a callable of any type, for code that is compiled once. It must not outlive the
// callable. Like C++26's std::function_ref.
template <class Result, class... Args>
class FunctionRef<Result(Args...)> {
 public:
  FunctionRef() = default;  // must not be called
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, FunctionRef> &&
           requires(F & function, Args... args) {
             static_cast<Result>(function(std::forward<Args>(args)...));
           }) FunctionRef(F&& function)
      : object_(const_cast<void*>(reinterpret_cast<const void*>(std::addressof(function)))),
        call_([](void* object, Args... args) -> Result {
          return static_cast<Result>((*reinterpret_cast<std::remove_reference_t<F>*>(object))(
              std::forward<Args>(args)...));
        }) {}

  Result operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_ = nullptr;
  Result (*call_)(void* object, Args... args) = nullptr;
};

}  // namespace lockstep::detail
