// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/distributed/rank_failure.hpp>
#include <lockstep/error.hpp>

#include <cxxabi.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <vector>

namespace lockstep::distributed::detail {

template <class E>
class CaughtInRank : public E, public RankFailure, public std::nested_exception {
 public:
  CaughtInRank(const std::string& text, int rank, Device device)
      : E(text), RankFailure(rank, device) {}
};

LOCKSTEP_INLINE std::string describe(const std::exception_ptr& error) {
  const auto demangled = [](const std::type_info& type) -> std::string {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> name(
        abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
    return status == 0 ? name.get() : type.name();
  };
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return demangled(typeid(exception)) + ": " + exception.what();
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    return type ? demangled(*type) : "an exception of unknown type";
  }
}

// Throws E for this rank if the exception being handled is one; called within its handler.
template <class E>
void rethrow_as(const std::string& text, int rank, Device device) {
  try {
    throw;
  } catch (const E&) {
    throw CaughtInRank<E>(text, rank, device);
  } catch (...) {
  }
}

inline bool is_rank_gone(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const RankGone&) {
    return true;
  } catch (...) {
    return false;
  }
}

LOCKSTEP_INLINE void throw_first_failure(const std::vector<std::exception_ptr>& errors,
                                         const std::vector<Device>& devices) {
  const auto failed = [](const std::exception_ptr& error) { return error && !is_rank_gone(error); };
  auto found = std::find_if(errors.begin(), errors.end(), failed);
  if (found == errors.end()) {
    found = std::find_if(errors.begin(), errors.end(), [](const auto& error) { return !!error; });
  }
  if (found == errors.end()) return;
  const auto first = static_cast<std::size_t>(found - errors.begin());
  const std::string cause = describe(errors[first]);
  std::string text =
      lockstep::detail::str("rank ", first, " on device ", devices[first], " threw ", cause);
  for (std::size_t i = first + 1; i < errors.size(); ++i) {
    if (!failed(errors[i])) continue;
    const std::string other = describe(errors[i]);
    text += lockstep::detail::str("\nAlso: rank ", i, " on device ", devices[i], " threw ",
                                  other == cause ? "the same" : other);
  }
  try {
    std::rethrow_exception(*found);
  } catch (...) {
    const int rank = static_cast<int>(first);
    const auto try_types = [&]<class... E>(std::type_identity<E>...) {
      (rethrow_as<E>(text, rank, devices[first]), ...);
    };
    // The most derived first.
    try_types(std::type_identity<OutOfMemoryError>{}, std::type_identity<DeviceError>{},
              std::type_identity<ShapeError>{}, std::type_identity<DtypeError>{},
              std::type_identity<ValueError>{}, std::type_identity<IndexError>{},
              std::type_identity<DataError>{}, std::type_identity<AutogradError>{},
              std::type_identity<ModuleError>{}, std::type_identity<RankGone>{},
              std::type_identity<Error>{}, std::type_identity<std::out_of_range>{},
              std::type_identity<std::invalid_argument>{}, std::type_identity<std::domain_error>{},
              std::type_identity<std::length_error>{}, std::type_identity<std::logic_error>{},
              std::type_identity<std::overflow_error>{}, std::type_identity<std::underflow_error>{},
              std::type_identity<std::range_error>{}, std::type_identity<std::runtime_error>{});
    throw CaughtInRank<Error>(text, rank, devices[first]);
  }
}

}  // namespace lockstep::distributed::detail
