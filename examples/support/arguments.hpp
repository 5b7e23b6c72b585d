// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

// The command line of an example program.
namespace example {

// A command line that means nothing.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Options written as `--name value` or `--name=value`, each bound to a variable that has its
// default. `--help` is one of them.
class Arguments {
 public:
  explicit Arguments(std::string summary) : summary_(std::move(summary)) {}

  template <class T>
  void add(const std::string& name, T& value, const std::string& help) {
    options_.push_back({name, text_of(value), help,
                        [name, &value](std::string_view text) { read(name, text, value); }});
  }

  // Sets the variables. On `--help` prints what there is and leaves the program.
  void parse(int argc, char** argv) const {
    for (int i = 1; i < argc; ++i) {
      const std::string_view argument = argv[i];
      const std::size_t equals = argument.find('=');
      const std::string name(argument.substr(0, equals));
      if (name == "--help") {
        print_help(argv[0]);
        std::exit(EXIT_SUCCESS);
      }
      const Option& option = find(name);
      if (equals != std::string_view::npos) {
        option.read(argument.substr(equals + 1));
      } else if (++i < argc) {
        option.read(argv[i]);
      } else {
        throw UsageError(name + " needs a value");
      }
    }
  }

 private:
  struct Option {
    std::string name;
    std::string default_text;
    std::string help;
    std::function<void(std::string_view)> read;
  };

  template <class T>
  static std::string text_of(const T& value) {
    if constexpr (std::is_arithmetic_v<T>) {
      std::ostringstream out;
      out << value;
      return out.str();
    } else {
      return std::filesystem::path(value).string();
    }
  }

  template <class T>
  static void read(const std::string& name, std::string_view text, T& value) {
    if constexpr (std::is_arithmetic_v<T>) {
      const char* end = text.data() + text.size();
      const auto [last, status] = std::from_chars(text.data(), end, value);
      if (status != std::errc{} || last != end) {
        throw UsageError(name + " needs a " + (std::is_unsigned_v<T> ? "positive " : "") +
                         (std::is_integral_v<T> ? "whole " : "") + "number, not \"" +
                         std::string(text) + "\"");
      }
    } else {
      value = text;
    }
  }

  const Option& find(const std::string& name) const {
    for (const Option& option : options_) {
      if (option.name == name) return option;
    }
    throw UsageError("unknown option \"" + name + "\"");
  }

  void print_help(const char* program) const {
    std::cout << summary_ << "\n\n"
              << "Usage: " << std::filesystem::path(program).filename().string() << " [options]\n";
    for (const Option& option : options_) {
      std::cout << "  " << std::left << std::setw(14) << option.name << ' ' << option.help;
      if (!option.default_text.empty()) std::cout << " (" << option.default_text << ')';
      std::cout << '\n';
    }
    std::cout << "  " << std::setw(14) << "--help"
              << " print this\n";
  }

  std::string summary_;
  std::vector<Option> options_;
};

// What `main` returns: 0 after `program` has run; after an error, which is printed as one line, 2
// for a bad command line and 1 for anything else.
template <class Program>
int run(const char* name, Program program) {
  const std::string prefix = std::filesystem::path(name).filename().string() + ": ";
  try {
    program();
    return EXIT_SUCCESS;
  } catch (const UsageError& error) {
    std::cerr << prefix << error.what() << " (--help lists the options)" << std::endl;
    return 2;
  } catch (const std::exception& error) {
    std::cerr << prefix << error.what() << std::endl;
    return EXIT_FAILURE;
  }
}

}  // namespace example
