// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/backward_error.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/error.hpp>

#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <typeinfo>

namespace lockstep::detail {

template <class... E>
void throw_as_same(const std::exception& error, const std::string& text) {
  ((typeid(error) == typeid(E) ? throw E(text) : void()), ...);
}

LOCKSTEP_INLINE void rethrow_from(const Node& node) {
  try {
    throw;
  } catch (const std::exception& error) {
    try {
      const std::string text = str(error.what(), " (in the backward of ", node.name(), " on ",
                                   node.stream().device(), ")");
      throw_as_same<OutOfMemoryError, DeviceError, ShapeError, DtypeError, OperandError, ValueError,
                    IndexError, DataError, AutogradError, ModuleError, Error, std::out_of_range,
                    std::invalid_argument, std::domain_error, std::length_error, std::logic_error,
                    std::overflow_error, std::underflow_error, std::range_error,
                    std::runtime_error>(error, text);
    } catch (const std::bad_alloc&) {
      // No memory for a longer text. Rather the original one than another error.
    }
    throw;
  }
}

}  // namespace lockstep::detail
