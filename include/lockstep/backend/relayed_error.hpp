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

// A base of every exception that replaces another: the type by which users catch it. It has no
// virtual functions, since each would be compiled for every relayed type.
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

// An E that can be made from a text.
template <class E>
using WithText = std::conditional_t<std::is_same_v<E, std::bad_alloc>, BadAllocWithText, E>;

// An E that says where it comes from. The Source brings the base std::nested_exception; a base of
// its own here would cost a table and two destructors per relayed type. `Base` is a template
// parameter because nvcc initialises a base named by an alias after the others.
template <class E, class Source, class Base = WithText<E>>
class RelayedError final : public Base, public Source, public CaughtAs {
 public:
  RelayedError(const std::string& text, const Source& source)
      : Base(text), Source(source), CaughtAs{&typeid(E)} {}
};

// A description of an exception for threads other than the one that threw it. (The exception itself
// is not shared: ThreadSanitizer does not see how the standard library counts its references.)
struct DescribedError {
  // "type: what", as far as known.
  std::string text() const { return what ? type_name() + ": " + *what : type_name(); }
  // The type as users know it.
  std::string type_name() const {
    if (!type) return "an exception of unknown type";
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> demangled(
        abi::__cxa_demangle(type->name(), nullptr, nullptr, &status), &std::free);
    return status == 0 ? demangled.get() : type->name();
  }

  const std::type_info* type = nullptr;     // null for a foreign exception
  std::shared_ptr<const std::string> what;  // null if it has no text, or memory ran out
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

// Types of exceptions made from a text alone, the most derived first.
template <class... E>
struct ErrorTypes {
  template <class Visit>
  static void each(const Visit& visit) {
    (visit(std::type_identity<E>()), ...);
  }
};
// The types of lockstep/error.hpp except Error itself, the base of others, and those of
// <stdexcept>.
using OwnErrors = ErrorTypes<OutOfMemoryError, DeviceError, ShapeError, DtypeError, OperandError,
                             ValueError, IndexError, DataError, AutogradError, ModuleError>;
using StandardErrors = ErrorTypes<std::out_of_range, std::invalid_argument, std::domain_error,
                                  std::length_error, std::logic_error, std::overflow_error,
                                  std::underflow_error, std::range_error, std::runtime_error>;

// Rethrows the exception being handled with another text, `text(exception)`, and the same type. An
// exception that is neither of lockstep/error.hpp nor of <stdexcept>, such as std::bad_alloc or a
// user's own, keeps its text.
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
      // No memory for a longer text: the original exception is thrown.
    }
    throw;
  }
}

// Throws, in place of `error`, an exception with the text `text()` that is also a Source and has
// `error` nested: `source()` is called while `error` is being handled. It derives from the type of
// `error` or its nearest base that can be made from a text: one of lockstep's, including Special,
// std::bad_alloc, one of <stdexcept>'s, or else Error. If memory runs out, throws `error` itself.
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

// Whether an error with a Consequence nested in it is a consequence, too.
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

// Relays one of several threads' errors (null for none): preferably the first that neither is nor
// nests a Consequence, else the first that is not a Consequence, else the first. `source_of(i)` is
// thread i's Source, `text_of(i)` its text, followed by the texts of the others that are not
// Consequences. Does nothing if there is no error.
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
