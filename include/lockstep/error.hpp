// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace lockstep {

// The root of every exception that lockstep throws on its own account. The message says what was
// expected, what came, and where (argument path, parameter, replica, device, file and byte).
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A device string that does not parse, an index out of range, tensors on devices that do not fit.
class DeviceError : public Error {
 public:
  using Error::Error;
};

// Shapes that do not fit each other or the operation; both are named.
class ShapeError : public Error {
 public:
  using Error::Error;
};

// A dtype that the operation does not take, or two that do not fit.
class DtypeError : public Error {
 public:
  using Error::Error;
};

// An argument outside its range.
class ValueError : public Error {
 public:
  using Error::Error;
};

// A dimension, index or class label outside its range.
class IndexError : public Error {
 public:
  using Error::Error;
};

// A file that is missing, truncated or corrupt; names the file, the byte and the remedy.
class DataError : public Error {
 public:
  using Error::Error;
};

// A backward pass that cannot be right: no graph, a freed graph, a tensor changed in between.
class AutogradError : public Error {
 public:
  using Error::Error;
};

// A module whose parameters are not as they should be; names the parameter.
class ModuleError : public Error {
 public:
  using Error::Error;
};

namespace detail {

// Strings its arguments together. Meant for messages: kept out of line and out of the way.
template <class... Parts>
[[gnu::cold, gnu::noinline]] std::string str(const Parts&... parts) {
  std::ostringstream out;
  out << std::boolalpha;
  (out << ... << parts);
  return std::move(out).str();
}

template <class E, class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const Parts&... parts) {
  throw E(str(parts...));
}

}  // namespace detail

// Throws E with the parts strung together unless `condition` holds. The parts are formatted only on
// failure, so they may be of any streamable type and cost nothing on the way that holds.
template <class E = Error, class... Parts>
void check(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]]
    detail::fail<E>(parts...);
}

}  // namespace lockstep
