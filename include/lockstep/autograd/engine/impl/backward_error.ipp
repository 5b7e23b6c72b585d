// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/backward_error.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/backend/relayed_error.hpp>
#include <lockstep/error.hpp>

#include <exception>
#include <new>
#include <string>
#include <type_traits>
#include <typeinfo>

namespace lockstep::detail {

LOCKSTEP_INLINE void rethrow_from(const Node& node) {
  try {
    throw;
  } catch (const std::exception& error) {
    try {
      const std::string text = str(error.what(), " (in the backward of ", node.name(), " on ",
                                   node.stream().device(), ")");
      const auto throw_if = [&]<class E>(std::type_identity<E>) {
        if (typeid(error) == typeid(E)) throw E(text);
      };
      OwnErrors::each(throw_if);
      throw_if(std::type_identity<Error>());
      StandardErrors::each(throw_if);
    } catch (const std::bad_alloc&) {
      // There is no memory for a longer text: the original exception is thrown.
    }
    throw;
  }
}

}  // namespace lockstep::detail
