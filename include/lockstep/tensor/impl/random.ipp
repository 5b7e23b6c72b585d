// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/finite.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/device_random.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/element.hpp>
#include <lockstep/tensor/random.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cmath>
#include <cstdint>
#include <ios>
#include <locale>
#include <memory>
#include <mutex>
#include <numbers>
#include <random>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE std::shared_ptr<RandomNumbers>& random_override() {
  thread_local std::shared_ptr<RandomNumbers> numbers;
  return numbers;
}

LOCKSTEP_INLINE RandomNumbers& random_numbers() {
  static RandomNumbers& of_process = *new RandomNumbers;
  RandomNumbers* const own = random_override().get();
  return own ? *own : of_process;
}

LOCKSTEP_INLINE std::shared_ptr<RandomNumbers> copy_random_numbers() {
  RandomNumbers& original = random_numbers();
  auto copy = std::make_shared<RandomNumbers>();
  copy->generator.set_state(original.generator.state());
  copy->devices.set_state(original.devices.state());
  return copy;
}

LOCKSTEP_INLINE void check_uniform(const char* operation, double low, double high, Dtype dtype) {
  check<ValueError>(is_finite(high - low) && low <= high, operation,
                    ": expected finite bounds, the lower one first, got ", low, " and ", high);
  dispatch_all(dtype, [&]<class T>(T) {
    // A whole number is drawn from the first one on.
    const double first = is_floating_point(dtype) ? low : std::ceil(low);
    for (const double number : {first, std::nextafter(high, low)}) {
      bool fits = true;
      if constexpr (is_half<T>) {
        fits = is_finite(static_cast<float>(convert<T>(number)));
      } else if constexpr (!std::is_same_v<T, bool>) {
        fits = reaches<T>(number);
      }
      if (!fits) fail_number<T>(operation, number);
    }
  });
  check<ValueError>(is_floating_point(dtype) || low == high || std::ceil(low) < high, operation,
                    ": expected bounds with a whole number between them for ", dtype, ", got ", low,
                    " and ", high);
}

LOCKSTEP_INLINE double uniform_in(double low, double high, Dtype dtype, Generator& generator) {
  if (!is_floating_point(dtype)) {
    const double first = std::ceil(low);
    const double end = std::ceil(high);
    const double whole = first + std::floor((end - first) * generator.uniform());
    return whole < end ? whole : first;
  }
  const double drawn = low + (high - low) * generator.uniform();
  double rounded = drawn;
  dispatch_all(dtype, [&]<class T>(T) { rounded = convert<double>(convert<T>(drawn)); });
  return rounded < high ? drawn : low;
}

template <class Draw>
Tensor random_tensor(const Shape& shape, const TensorOptions& options, Draw draw) {
  std::vector<double> values(static_cast<std::size_t>(numel(shape)));
  for (double& value : values) value = draw();
  return copy_as(from_values(values, shape), options);
}

}  // namespace lockstep::detail

namespace lockstep {

struct Generator::Engine {
  std::mt19937_64 numbers;
};

LOCKSTEP_INLINE Generator::Generator(std::uint64_t seed)
    : engine_(std::make_unique<Engine>(Engine{std::mt19937_64(seed)})) {}

LOCKSTEP_INLINE Generator::~Generator() = default;

LOCKSTEP_INLINE void Generator::manual_seed(std::uint64_t seed) {
  const std::lock_guard lock(mutex_);
  engine_->numbers.seed(seed);
}

LOCKSTEP_INLINE std::uint64_t Generator::bits() {
  const std::lock_guard lock(mutex_);
  return engine_->numbers();
}

LOCKSTEP_INLINE double Generator::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

LOCKSTEP_INLINE std::uint64_t Generator::below(std::uint64_t bound) {
  check<ValueError>(bound > 0, "Generator: expected a bound of at least 1, got 0");
  const std::uint64_t limit = bound * (UINT64_MAX / bound);
  std::uint64_t draw = bits();
  while (draw >= limit) draw = bits();
  return draw % bound;
}

LOCKSTEP_INLINE std::string Generator::state() {
  std::ostringstream out;
  out.exceptions(std::ios::badbit);  // else a failed allocation would cut the state short
  out.imbue(std::locale::classic());
  const std::lock_guard lock(mutex_);
  out << engine_->numbers;
  return std::move(out).str();
}

LOCKSTEP_INLINE void Generator::set_state(const std::string& state) {
  std::istringstream in(state);
  in.exceptions(std::ios::badbit);
  in.imbue(std::locale::classic());
  std::mt19937_64 engine;
  in >> engine;
  check<ValueError>(!in.fail() && (in >> std::ws).eof(),
                    "Generator: expected a state of its engine, got ", state.size(),
                    " characters of other text");
  const std::lock_guard lock(mutex_);
  engine_->numbers = engine;
}

LOCKSTEP_INLINE void manual_seed(std::uint64_t seed) {
  default_generator().manual_seed(seed);
  detail::device_random().set_state({seed, {}});
}

LOCKSTEP_INLINE Tensor rand(const Shape& shape, const TensorOptions& options, double low,
                            double high, Generator& generator) {
  detail::check_uniform("rand", low, high, options.dtype);
  return detail::random_tensor(
      shape, options, [&] { return detail::uniform_in(low, high, options.dtype, generator); });
}

LOCKSTEP_INLINE Tensor randn(const Shape& shape, const TensorOptions& options,
                             Generator& generator) {
  if (!is_floating_point(options.dtype)) {
    detail::fail_dtype("randn", "a floating-point dtype", options.dtype);
  }
  return detail::random_tensor(shape, options, [&] { return generator.normal(); });
}

}  // namespace lockstep
