// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/programs/library_training.hpp"
#include "parallel/programs/program.hpp"
#include "parallel/programs/reference_training.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

// Trains a program both ways and says where they part.
namespace lockstep::testing::programs {

class Comparison {
 public:
  // How the program's two trainings differ; nothing if they agree.
  static std::optional<std::string> difference(const Program& program, Fault fault = nullptr) {
    Comparison comparison(program);
    comparison.compare(LibraryTraining::train(program, fault), ReferenceTraining::train(program));
    return comparison.found_;
  }

 private:
  explicit Comparison(const Program& program) : program_(program) {}

  void compare(const Trained& got, const Trained& expected) {
    for (std::size_t r = 0; r < expected.rounds.size() && !found_; ++r) {
      where_ = "round " + std::to_string(r) + ", ";
      if (r == got.rounds.size()) {
        found_ = where_ + "the library throws: " + got.error;
        return;
      }
      compare(got.rounds[r], expected.rounds[r], expected.errors[r]);
    }
    if (found_) return;
    if (got.rounds.size() > expected.rounds.size()) {
      found_ = "the library does not refuse " + expected.error;
    } else if (got.refused != expected.refused) {
      found_ = "the library throws: " + got.error;
    }
  }

  void compare(const Observed& got, const Observed& expected, const Observed& errors) {
    open_ = open_ || expected.all_open;
    if (got.outputs.size() != expected.outputs.size()) {
      found_ = where_ + "there are " + std::to_string(got.outputs.size()) + " outputs";
      return;
    }
    for (std::size_t k = 0; k < got.outputs.size(); ++k) {
      const std::string name = "output " + std::to_string(k);
      const Plain& output = got.outputs[k];
      if (output.sizes != expected.outputs[k].sizes) found_ = where_ + name + " has another shape";
      agree(name, output.values, expected.outputs[k].values, errors.outputs[k].values);
    }
    if (got.buffers.size() != expected.buffers.size()) found_ = where_ + "modules are missing";
    for (std::size_t m = 0; m < expected.buffers.size() && !found_; ++m) {
      agree("buffer of module " + std::to_string(m), got.buffers[m], expected.buffers[m],
            errors.buffers[m]);
    }
    agree("gradient of input", got.input_gradients, expected.input_gradients,
          errors.input_gradients);
    agree("gradient of parameter", got.gradients, expected.gradients, errors.gradients);
    agree("parameter", got.parameters, expected.parameters, errors.parameters);
  }

  void agree(const std::string& what, const std::vector<std::vector<double>>& got,
             const std::vector<std::vector<double>>& expected,
             const std::vector<std::vector<double>>& errors) {
    if (got.size() != expected.size()) {
      found_ = where_ + "there is another number of " + what;
      return;
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
      agree(what + ' ' + std::to_string(i), got[i], expected[i], errors[i]);
    }
  }

  void agree(const std::string& what, const std::vector<double>& got,
             const std::vector<double>& expected, const std::vector<double>& errors) {
    if (found_) return;
    if (got.size() != expected.size()) {
      found_ = where_ + what + " has " + std::to_string(got.size()) + " elements";
      return;
    }
    double most = 0.01;
    for (const double value : expected) {
      if (std::isfinite(value)) most = std::max(most, std::abs(value));
    }
    open_ = open_ || most > 1e6;  // what differs by a rounding differs by much
    for (std::size_t i = 0; i < got.size() && !open_; ++i) {
      if (std::isnan(got[i]) && std::isnan(expected[i])) continue;
      // In f64 there is room for second derivatives, which have no bound.
      const double allowed = std::max(errors[i], program_.type == Type::f64 ? most * 1e-8 : 0.0);
      if (std::abs(got[i] - expected[i]) <= allowed) continue;
      std::ostringstream text;
      text << where_ << what << ", element " << i << " is " << got[i] << " and has to be "
           << expected[i] << ", give or take " << allowed;
      found_ = text.str();
      return;
    }
  }

  const Program& program_;
  std::string where_;
  bool open_ = false;  // what follows depends on a rounding
  std::optional<std::string> found_;
};

}  // namespace lockstep::testing::programs
