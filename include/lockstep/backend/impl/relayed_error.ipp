// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/relayed_error.hpp>

#include <cxxabi.h>

#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <typeinfo>

namespace lockstep::detail {

LOCKSTEP_INLINE DescribedError described(const std::exception_ptr& error) noexcept {
  DescribedError result;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    const auto* const relayed = dynamic_cast<const CaughtAs*>(&exception);
    result.type = relayed ? &relayed->caught_as() : &typeid(exception);
    try {
      result.what = std::make_shared<const std::string>(exception.what());
    } catch (...) {  // no memory
    }
  } catch (...) {
    result.type = abi::__cxa_current_exception_type();
  }
  return result;
}

LOCKSTEP_INLINE std::string DescribedError::type_name() const {
  if (!type) return "an exception of unknown type";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(type->name(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? demangled.get() : type->name();
}

}  // namespace lockstep::detail
