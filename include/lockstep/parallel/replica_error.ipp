// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/replica_error.hpp>

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

namespace lockstep::detail {

template <class E>
class CaughtInReplica : public E, public ReplicaFailure, public std::nested_exception {
 public:
  CaughtInReplica(const std::string& text, std::size_t replica, Device device)
      : E(text), ReplicaFailure(replica, device) {}
};

inline std::string type_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : type.name();
}

LOCKSTEP_INLINE std::string describe(const std::exception_ptr& error, std::size_t replica,
                                     Device device) {
  const auto in = [&](const std::string& type, const std::string& what) {
    return str("Caught ", type, " in replica ", replica, " on device ", device, ".", what);
  };
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return in(type_name(typeid(exception)), str("\n", exception.what()));
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    return in(type ? type_name(*type) : "an exception of unknown type", "");
  }
}

// Throws E for this replica if the exception being handled is one; called within its handler.
template <class E>
void rethrow_as(const std::string& text, std::size_t replica, Device device) {
  try {
    throw;
  } catch (const E&) {
    throw CaughtInReplica<E>(text, replica, device);
  } catch (...) {
  }
}

inline bool is_release(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const ReplicaReleased&) {
    return true;
  } catch (...) {
    return false;
  }
}

LOCKSTEP_INLINE void throw_first_failure(const std::vector<std::exception_ptr>& errors,
                                         const std::vector<Device>& devices) {
  const auto failed = [](const std::exception_ptr& error) { return error && !is_release(error); };
  auto found = std::find_if(errors.begin(), errors.end(), failed);
  if (found == errors.end()) {
    found = std::find_if(errors.begin(), errors.end(), [](const auto& error) { return !!error; });
  }
  if (found == errors.end()) return;
  const auto first = static_cast<std::size_t>(found - errors.begin());
  std::string text = describe(errors[first], first, devices[first]);
  for (std::size_t i = first + 1; i < errors.size(); ++i) {
    if (failed(errors[i])) text += "\nAlso: " + describe(errors[i], i, devices[i]);
  }
  try {
    std::rethrow_exception(errors[first]);
  } catch (...) {
    const auto try_types = [&]<class... E>(std::type_identity<E>...) {
      (rethrow_as<E>(text, first, devices[first]), ...);
    };
    // The most derived first.
    try_types(std::type_identity<OutOfMemoryError>{}, std::type_identity<DeviceError>{},
              std::type_identity<ShapeError>{}, std::type_identity<DtypeError>{},
              std::type_identity<ValueError>{}, std::type_identity<IndexError>{},
              std::type_identity<DataError>{}, std::type_identity<AutogradError>{},
              std::type_identity<ModuleError>{}, std::type_identity<ReplicaReleased>{},
              std::type_identity<Error>{}, std::type_identity<std::out_of_range>{},
              std::type_identity<std::invalid_argument>{}, std::type_identity<std::domain_error>{},
              std::type_identity<std::length_error>{}, std::type_identity<std::logic_error>{},
              std::type_identity<std::overflow_error>{}, std::type_identity<std::underflow_error>{},
              std::type_identity<std::range_error>{}, std::type_identity<std::runtime_error>{});
    throw CaughtInReplica<Error>(text, first, devices[first]);
  }
}

}  // namespace lockstep::detail
