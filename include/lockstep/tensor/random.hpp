// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/device_random.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cmath>
#include <cstdint>
#include <locale>
#include <memory>
#include <mutex>
#include <numbers>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// A source of random numbers whose sequence depends on the seed alone: the 64-bit Mersenne Twister
// of the standard, and distributions of our own, since the standard leaves theirs open.
//
// **Torch counterpart.** torch::Generator; the sequences differ.
// **Threads and exceptions.** Any thread may draw; `mutex_` guards the engine. Which thread draws
// first is theirs to settle.
class Generator {
 public:
  explicit Generator(std::uint64_t seed = 67280421310721) : engine_(seed) {}

  void manual_seed(std::uint64_t seed) {
    const std::lock_guard lock(mutex_);
    engine_.seed(seed);
  }
  std::uint64_t bits() {
    const std::lock_guard lock(mutex_);
    return engine_();
  }
  // Uniform in [0, 1), a multiple of 2⁻⁵³.
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  // Standard normal, by Box and Muller's transform of two uniform numbers.
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }
  // Uniform in [0, bound), without bias.
  std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t limit = bound * (UINT64_MAX / bound);
    std::uint64_t draw = bits();
    while (draw >= limit) draw = bits();
    return draw % bound;
  }

  // Where the sequence is, as text.
  //
  // **Torch counterpart.** torch::Generator::get_state.
  std::string state() {
    std::ostringstream out;
    out.imbue(std::locale::classic());
    const std::lock_guard lock(mutex_);
    out << engine_;
    return std::move(out).str();
  }
  // Goes on where `state` was taken; a ValueError if that is no state, which changes nothing.
  //
  // **Torch counterpart.** torch::Generator::set_state.
  void set_state(const std::string& state) {
    std::istringstream in(state);
    in.imbue(std::locale::classic());
    std::mt19937_64 engine;
    in >> engine;
    check<ValueError>(!in.fail() && (in >> std::ws).eof(),
                      "Generator: expected a state of its engine, got ", state.size(),
                      " characters of other text");
    const std::lock_guard lock(mutex_);
    engine_ = engine;
  }

 private:
  std::mutex mutex_;
  std::mt19937_64 engine_;
};

namespace detail {

// All random numbers of a program: those drawn on the host, and those that kernels draw.
struct RandomNumbers {
  Generator generator;
  DeviceRandom devices;
};

// The numbers that this thread draws in place of the process's, for a thread that is a program of
// its own; null in almost every thread.
inline std::shared_ptr<RandomNumbers>& random_override() {
  thread_local std::shared_ptr<RandomNumbers> numbers;
  return numbers;
}

inline RandomNumbers& random_numbers() {
  static RandomNumbers& of_process = *new RandomNumbers;
  RandomNumbers* const own = random_override().get();
  return own ? *own : of_process;
}

inline DeviceRandom& device_random() { return random_numbers().devices; }

// Numbers of its own that go on where those of this thread are.
inline std::shared_ptr<RandomNumbers> copy_random_numbers() {
  RandomNumbers& original = random_numbers();
  auto copy = std::make_shared<RandomNumbers>();
  copy->generator.set_state(original.generator.state());
  copy->devices.set_state(original.devices.state());
  return copy;
}

}  // namespace detail

// The generator used where none is given: one for the process, but for each rank of
// distributed::run a copy of its caller's.
inline Generator& default_generator() { return detail::random_numbers().generator; }

// **Torch counterpart.** torch::manual_seed.
inline void manual_seed(std::uint64_t seed) {
  default_generator().manual_seed(seed);
  detail::device_random().manual_seed(seed);
}

namespace detail {

template <class Draw>
Tensor random_tensor(const Shape& shape, const TensorOptions& options, Draw draw) {
  std::vector<double> values(static_cast<std::size_t>(numel(shape)));
  for (double& value : values) value = draw();
  Tensor result = empty(shape, options);
  copy_into(result, from_values(values, shape));
  return result;
}

}  // namespace detail

// Uniform in [low, high). Drawn on the host, so every device gets the same numbers.
//
// **Torch counterpart.** torch::rand.
inline Tensor rand(const Shape& shape, const TensorOptions& options = {}, double low = 0,
                   double high = 1, Generator& generator = default_generator()) {
  return detail::random_tensor(shape, options,
                               [&] { return low + (high - low) * generator.uniform(); });
}

// Normal with mean 0 and deviation 1. Drawn on the host, so every device gets the same numbers.
//
// **Torch counterpart.** torch::randn.
inline Tensor randn(const Shape& shape, const TensorOptions& options = {},
                    Generator& generator = default_generator()) {
  return detail::random_tensor(shape, options, [&] { return generator.normal(); });
}

}  // namespace lockstep
