// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/error.hpp>

#include <cxxabi.h>

#include <cstddef>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

namespace lockstep::detail {

// A base of each exception that is thrown in place of another one: the type as which users catch
// it.
//
// Without virtual functions, as each of those is compiled for every type that is relayed.
struct CaughtAs {
  const std::type_info* caught_as;
};

class BadAllocWithText : public std::bad_alloc {
 public:
  explicit BadAllocWithText(const std::string& text) : text_(text) {}
  const char* what() const noexcept override { return text_.what(); }

 private:
  std::runtime_error text_;  // copies of it throw nothing
};

// An E that is made from a text.
template <class E>
using WithText = std::conditional_t<std::is_same_v<E, std::bad_alloc>, BadAllocWithText, E>;

// An E that says where it comes from. A Source has a base std::nested_exception: a base of its own
// here would be a table and two more destructors for each type that is relayed. The base is a
// template parameter, since nvcc initialises a base that is named by an alias after the other
// bases.
template <class E, class Source, class Base = WithText<E>>
class RelayedError final : public Base, public Source, public CaughtAs {
 public:
  RelayedError(const std::string& text, const Source& source)
      : Base(text), Source(source), CaughtAs{&typeid(E)} {}
};

// What an exception says, for other threads than the one that has thrown it: the exception itself
// is not shared, since the standard library counts its references where ThreadSanitizer does not
// see.
struct DescribedError {
  // "type: what", as far as they are known.
  std::string text() const { return what ? type_name() + ": " + *what : type_name(); }
  // The type by which users know it.
  std::string type_name() const {
    if (!type) return "an exception of unknown type";
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> demangled(
        abi::__cxa_demangle(type->name(), nullptr, nullptr, &status), &std::free);
    return status == 0 ? demangled.get() : type->name();
  }

  const std::type_info* type = nullptr;     // null if it is not one of C++
  std::shared_ptr<const std::string> what;  // null if it has no text, or there was no memory for it
};
inline DescribedError described(const std::exception_ptr& error) noexcept {
  DescribedError result;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    const auto* const relayed = dynamic_cast<const CaughtAs*>(&exception);
    result.type = relayed ? relayed->caught_as : &typeid(exception);
    try {
      result.what = std::make_shared<const std::string>(exception.what());
    } catch (...) {  // no memory
    }
  } catch (...) {
    result.type = abi::__cxa_current_exception_type();
  }
  return result;
}

// Types of exceptions that are made from a text alone, the most derived first.
template <class... E>
struct ErrorTypes {
  // Calls `visit(std::type_identity<E>())` for each.
  template <class Visit>
  static void each(const Visit& visit) {
    (visit(std::type_identity<E>()), ...);
  }
};
// The types of lockstep/error.hpp but Error itself, from which others of lockstep's derive; and
// those of <stdexcept>.
using OwnErrors = ErrorTypes<OutOfMemoryError, DeviceError, ShapeError, DtypeError, OperandError,
                             ValueError, IndexError, DataError, AutogradError, ModuleError>;
using StandardErrors = ErrorTypes<std::out_of_range, std::invalid_argument, std::domain_error,
                                  std::length_error, std::logic_error, std::overflow_error,
                                  std::underflow_error, std::range_error, std::runtime_error>;

// Rethrows the exception that is being handled with another text, `text(exception)`.
//
// The type stays the same. So the text of an exception whose type is neither of lockstep/error.hpp
// nor of <stdexcept>, such as std::bad_alloc or one of the user's own, stays as it is.
template <class Text>
[[noreturn]] void rethrow_as(const Text& text) {
  try {
    throw;
  } catch (const std::exception& error) {
    try {
      const std::string said = text(error);
      const auto throw_if = [&]<class E>(std::type_identity<E>) {
        if (typeid(error) == typeid(E)) throw E(said);
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

// Throws, in the place of `error`, one that says `text()` and is a Source too: `source()`, which is
// called where `error` is being handled, so that this is nested within it. It derives from the type
// of `error`, or the nearest base of it that is made from a text alone: one of lockstep's, Special
// among them, std::bad_alloc, or one of <stdexcept>'s; from Error, where there is none. Without
// memory for that it throws `error` itself.
template <class Special, class SourceOf, class Text>
[[noreturn]] void relay(const std::exception_ptr& error, const SourceOf& source, const Text& text) {
  using Source = decltype(source());
  try {
    const std::string said = text();
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& caught) {
      const auto relay_as = [&]<class E>(std::type_identity<E>) {
        if (dynamic_cast<const E*>(&caught)) throw RelayedError<E, Source>(said, source());
      };
      OwnErrors::each(relay_as);
      ErrorTypes<Special, Error, std::bad_alloc>::each(relay_as);
      StandardErrors::each(relay_as);
      throw RelayedError<Error, Source>(said, source());
    } catch (...) {
      throw RelayedError<Error, Source>(said, source());
    }
  } catch (const Source&) {
    throw;
  } catch (...) {
    std::rethrow_exception(error);
  }
}

// Whether an error that has a Consequence nested in it is a consequence, too.
enum class NestedConsequence { counts, does_not_count };

// True for a Consequence of another thread's error.
template <class Consequence>
bool is_consequence(const std::exception_ptr& error, NestedConsequence nested) {
  try {
    std::rethrow_exception(error);
  } catch (const Consequence&) {
    return true;
  } catch (const std::nested_exception& outer) {
    return nested == NestedConsequence::counts && outer.nested_ptr() &&
           is_consequence<Consequence>(outer.nested_ptr(), nested);
  } catch (...) {
    return false;
  }
}

// Relays one of several threads' errors, null where a thread has none: the first that neither is a
// Consequence nor has one nested in it; else the first that is no Consequence; else the first. Of
// thread i `source_of(i)` is the Source and `text_of(i)` the text; behind it stand the texts of the
// others that are no Consequence. Does nothing if there is no error.
template <class Consequence, class SourceOf, class TextOf>
void relay_first(const std::vector<std::exception_ptr>& errors, NestedConsequence nested,
                 const SourceOf& source_of, const TextOf& text_of) {
  const auto failed = [nested](const std::exception_ptr& error) {
    return error && !is_consequence<Consequence>(error, nested);
  };
  auto found = find_if(errors, [](const std::exception_ptr& error) {
    return error && !is_consequence<Consequence>(error, NestedConsequence::counts);
  });
  if (found == errors.end()) found = find_if(errors, failed);
  if (found == errors.end()) {
    found = find_if(errors, [](const std::exception_ptr& error) { return error != nullptr; });
  }
  if (found == errors.end()) return;
  const auto first = static_cast<std::size_t>(found - errors.begin());
  const auto source = [&] { return source_of(first); };
  relay<Consequence>(*found, source, [&] {
    std::string text = text_of(first);
    for (std::size_t i = 0; i < errors.size(); ++i) {
      if (i != first && failed(errors[i])) text += "\nAlso: " + text_of(i);
    }
    return text;
  });
}

}  // namespace lockstep::detail
