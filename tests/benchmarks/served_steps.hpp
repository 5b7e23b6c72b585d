// SPDX-License-Identifier: Apache-2.0
//
// What `compare` asks its C++ programs for: rounds of named steps. A program sleeps until a line
// `NAME SAMPLES CALLS` arrives on its standard input, takes SAMPLES times the time of CALLS calls
// of that step and answers with one line, the median time of a call in microseconds. Needs nothing
// of lockstep, so that the peers' programs are measured by the same code.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace compare {

struct Step {
  std::function<void()> call;
  // Called before each sample and not timed; a sample is then one call.
  std::function<void()> before = nullptr;
  // What it returns is kept during a round, such as a thread that runs beside it.
  std::function<std::shared_ptr<void>()> beside = nullptr;
};

struct Order {
  std::string name;
  long samples = 1;
  long calls = 1;
};

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Steps that are made when they are first asked for.
class Steps {
 public:
  using Make = std::function<Step()>;

  void add(const std::string& name, Make make) { makers_[name] = std::move(make); }

  Step& at(const std::string& name) {
    const auto found = made_.find(name);
    if (found != made_.end()) return found->second;
    const auto maker = makers_.find(name);
    if (maker == makers_.end()) throw std::invalid_argument("there is no step " + name);
    return made_.emplace(name, maker->second()).first->second;
  }

 private:
  std::map<std::string, Make> makers_;
  std::map<std::string, Step> made_;
};

// Runs `order` and returns each sample's time of a call in microseconds.
inline std::vector<double> samples_of(Step& step, const Order& order) {
  using Clock = std::chrono::steady_clock;
  const std::shared_ptr<void> beside = step.beside ? step.beside() : nullptr;
  const long calls = step.before ? 1 : order.calls;
  std::vector<double> samples;
  for (long sample = 0; sample < order.samples; ++sample) {
    if (step.before) step.before();
    const Clock::time_point start = Clock::now();
    for (long call = 0; call < calls; ++call) step.call();
    const std::chrono::duration<double, std::micro> taken = Clock::now() - start;
    samples.push_back(taken.count() / static_cast<double>(calls));
  }
  return samples;
}

// The next order, or nothing at the end of the input.
inline std::optional<Order> next_order() {
  std::string line;
  if (!std::getline(std::cin, line)) return std::nullopt;
  Order order;
  std::istringstream(line) >> order.name >> order.samples >> order.calls;
  return order;
}

inline void answer(double microseconds) {
  std::cout.precision(9);
  std::cout << microseconds << std::endl;
}

// An error is an answer too: whoever asks leaves that figure out.
template <class Body>
void answer_or_say_why(Body body) {
  try {
    answer(body());
  } catch (const std::exception& error) {
    std::string text = error.what();
    std::cout << "error: " << text.substr(0, text.find('\n')) << std::endl;
  }
}

inline void serve(Steps& steps) {
  while (const std::optional<Order> order = next_order()) {
    answer_or_say_why([&] { return median(samples_of(steps.at(order->name), *order)); });
  }
}

}  // namespace compare
