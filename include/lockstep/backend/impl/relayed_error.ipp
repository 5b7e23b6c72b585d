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

LOCKSTEP_INLINE DescribedError described(const std::exception_ptr& error) {
  const auto name = [](const std::type_info& type) -> std::string {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> demangled(
        abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
    return status == 0 ? demangled.get() : type.name();
  };
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    const auto* const relayed = dynamic_cast<const Relayed*>(&exception);
    return {name(relayed ? relayed->caught_as() : typeid(exception)), exception.what()};
  } catch (...) {
    const std::type_info* const type = abi::__cxa_current_exception_type();
    return {type ? name(*type) : "an exception of unknown type", {}};
  }
}

}  // namespace lockstep::detail
