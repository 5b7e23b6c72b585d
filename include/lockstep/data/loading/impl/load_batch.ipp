// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/relayed_error.hpp>
#include <lockstep/data/loading/load_batch.hpp>
#include <lockstep/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <type_traits>
#include <typeinfo>

namespace lockstep::data::detail {

LOCKSTEP_INLINE void rethrow_naming(const char* what, std::span<const std::int64_t> indices) {
  try {
    throw;
  } catch (const std::exception& error) {
    std::string text = lockstep::detail::str(error.what(), "; ", what);
    constexpr std::size_t kMost = 20;
    for (const std::int64_t index : indices.first(std::min(indices.size(), kMost))) {
      text += ' ' + std::to_string(index);
    }
    if (indices.size() > kMost) text += " ...";
    const auto throw_as = [&]<class E>(std::type_identity<E>) {
      if (typeid(error) == typeid(E)) throw E(text);
    };
    lockstep::detail::OwnErrors::each(throw_as);
    lockstep::detail::ErrorTypes<Error>::each(throw_as);
    lockstep::detail::StandardErrors::each(throw_as);
    throw;
  }
}

}  // namespace lockstep::data::detail
