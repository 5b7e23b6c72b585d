// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <exception>
#include <initializer_list>
#include <ios>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace lockstep {

// The base of every exception that lockstep itself throws. The message says what was expected, what
// came, and where (argument path, parameter, replica, device, file and byte).
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A device string that does not parse, a device that does not exist, or tensors on devices that do
// not match each other or the operation.
struct DeviceError : Error {
  using Error::Error;
};

// A GPU has too little free memory for an allocation. Memory allocated before stays valid.
//
// **Torch counterpart.** torch.OutOfMemoryError.
struct OutOfMemoryError : DeviceError {
  using DeviceError::DeviceError;
};

// Shapes that do not match each other or the operation; both are named.
struct ShapeError : Error {
  using Error::Error;
};

// A dtype that the operation does not take, or two that do not match.
struct DtypeError : Error {
  using Error::Error;
};

// An argument outside its range.
struct ValueError : Error {
  using Error::Error;
};

// A tensor that the operation cannot read: an undefined one, or a sparse one instead of a dense
// one.
struct OperandError : ValueError {
  using ValueError::ValueError;
};

// A dimension, index or class label outside its range.
struct IndexError : Error {
  using Error::Error;
};

// A file that is missing, truncated or corrupt; names the file, the byte and the remedy.
struct DataError : Error {
  using Error::Error;
};

// A backward pass that cannot be right: no graph, a freed graph, a tensor changed in between.
struct AutogradError : Error {
  using Error::Error;
};

// A module with invalid parameters; names the parameter.
struct ModuleError : Error {
  using Error::Error;
};

namespace detail {

// A part of a message: a reference to text, or to a value of any streamable type.
class Part {
 public:
  template <class T>
  explicit Part(const T& value) : value_(&value), print_(&print_as<T>) {}
  explicit Part(const char* text) : value_(text), print_(&print_text) {}
  void print(std::ostream& out) const { print_(out, value_); }

 private:
  template <class T>
  static void print_as(std::ostream& out, const void* value) {
    out << *static_cast<const T*>(value);
  }
  static void print_text(std::ostream& out, const void* text) {
    out << static_cast<const char*>(text);
  }

  const void* value_;
  void (*print_)(std::ostream& out, const void* value);
};

// Concatenates the text of parts of any types. One function serves the hundreds of messages of a
// program.
[[gnu::cold, gnu::noinline]] inline std::string join_parts(std::initializer_list<Part> parts) {
  std::ostringstream out;
  out.exceptions(std::ios::badbit);   // so that a failed allocation throws
  out.imbue(std::locale::classic());  // some of it is for other processes to read
  out << std::boolalpha;
  for (const Part& part : parts) part.print(out);
  return std::move(out).str();
}

// Concatenates the text of its arguments. For messages: it is cold and never inlined.
template <class... Parts>
[[gnu::cold, gnu::noinline]] std::string str(const Parts&... parts) {
  return join_parts({Part(parts)...});
}

template <class E>
[[noreturn, gnu::cold, gnu::noinline]] void throw_joined(std::initializer_list<Part> parts) {
  throw E(join_parts(parts));
}

// Inlined, since a list of references is less to compile than a function for each message.
template <class E, class... Parts>
[[noreturn, gnu::always_inline]] inline void fail(const Parts&... parts) {
  throw_joined<E>({Part(parts)...});
}

// Calls `body` and returns what it throws, or null.
template <class Body>
[[nodiscard]] std::exception_ptr thrown_by(const Body& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

// Calls `body` with each element, even after it has thrown. Returns what it threw first, or null.
template <class Range, class Body>
[[nodiscard]] std::exception_ptr first_thrown_by(Range&& range, const Body& body) noexcept {
  std::exception_ptr first;
  for (auto& element : range) {
    const std::exception_ptr thrown = thrown_by([&] { body(element); });
    if (!first) first = thrown;
  }
  return first;
}

}  // namespace detail

// Throws E with the concatenated parts unless `condition` is true. Parts are of any streamable
// types and are formatted only on failure.
template <class E, class... Parts>
void check(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]]
    detail::fail<E>(parts...);
}

}  // namespace lockstep
