// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/finite.hpp>
#include <lockstep/never_destroyed.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/current_replica.hpp>
#include <lockstep/tensor/device_random.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/element.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/random.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ios>
#include <locale>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

namespace lockstep {

struct Generator::Engine {
  std::mt19937_64 numbers;
};

}  // namespace lockstep

namespace lockstep::detail {

LOCKSTEP_INLINE std::shared_ptr<RandomNumbers>& random_override() {
  thread_local std::shared_ptr<RandomNumbers> numbers;
  return numbers;
}

LOCKSTEP_INLINE RandomNumbers& random_numbers() {
  RandomNumbers* const own = random_override().get();
  return own ? *own : never_destroyed<RandomNumbers>();
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
    // Whole numbers are drawn from the first one on.
    const double first = is_floating_point(dtype) ? low : std::ceil(low);
    for (const double number : {first, std::nextafter(high, low)}) {
      check_fits<T>(operation, number);
    }
  });
  const double whole = std::ceil(low);
  check<ValueError>(is_floating_point(dtype) || whole < high || (whole == low && low == high),
                    operation, ": expected bounds with a whole number between them for ", dtype,
                    ", got ", low, " and ", high);
}

// True if an engine can reach this state, which the standard library has read: some word is not 0
// (the first counts by its upper bits alone), and the position after the words, which libstdc++ and
// libc++ write, is valid.
inline bool is_reachable(const std::string& state) {
  std::istringstream in(state);
  in.imbue(std::locale::classic());
  bool any = false;
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < std::mt19937_64::state_size && in >> number; ++i) {
    any = any || (i == 0 ? number >> 31 : number) != 0;
  }
  return any && (!(in >> number) || number <= std::mt19937_64::state_size);
}

// The curve exp(−x²/2) covered by 256 layers of equal area. Layer i > 0 reaches from 0 to edge[i],
// and in height from the curve at edge[i] to the curve at edge[i + 1]; layer 0 is what lies below
// edge[1]'s height, and the tail.
struct Ziggurat {
  static constexpr std::size_t kLayers = 256;
  std::array<double, kLayers + 1> edge;
  std::array<double, kLayers + 1> height;  // of the curve at the edge

  Ziggurat() {
    constexpr double kTail = 3.6541528853610088;  // where it begins
    constexpr double kArea = 0.00492867323399;    // of a layer
    edge[0] = kArea / curve(kTail);               // the rectangle of layer 0's height and area
    edge[1] = kTail;
    for (std::size_t i = 1; i + 1 < kLayers; ++i) {
      edge[i + 1] = std::sqrt(-2 * std::log(kArea / edge[i] + curve(edge[i])));
    }
    edge[kLayers] = 0;
    for (std::size_t i = 0; i <= kLayers; ++i) height[i] = curve(edge[i]);
  }

  static double curve(double x) { return std::exp(-x * x / 2); }
};

LOCKSTEP_INLINE double normal_of(RandomBits bits) {
  const auto& [edge, height] = never_destroyed<Ziggurat>();
  while (true) {
    const std::uint64_t draw = bits();
    const std::size_t layer = draw % Ziggurat::kLayers;
    // Uniform in [−1, 1), by other bits than the layer.
    const double side = static_cast<double>(static_cast<std::int64_t>(draw) >> 11) * 0x1p-52;
    const double x = side * edge[layer];
    if (std::abs(x) < edge[layer + 1]) return x;  // below the curve at any height
    if (layer == 0) {
      double beyond = 0;
      double limit = 0;
      do {
        beyond = -std::log(1 - uniform_of(bits)) / edge[1];
        limit = -std::log(1 - uniform_of(bits));
      } while (2 * limit < beyond * beyond);
      return std::copysign(edge[1] + beyond, side);
    }
    const double y = height[layer] + uniform_of(bits) * (height[layer + 1] - height[layer]);
    if (y < Ziggurat::curve(x)) return x;
  }
}

// Uniform in [0, bound), without bias; `bound` is not 0.
inline std::uint64_t below_of(std::uint64_t bound, RandomBits bits) {
  const std::uint64_t limit = bound * (UINT64_MAX / bound);
  std::uint64_t draw = bits();
  while (draw >= limit) draw = bits();
  return draw % bound;
}

LOCKSTEP_INLINE double uniform_in(double low, double high, Dtype dtype, RandomBits bits) {
  if (!is_floating_point(dtype)) {
    const double first = std::ceil(low);
    const double end = std::ceil(high);
    const double whole = first + std::floor((end - first) * uniform_of(bits));
    return whole < end ? whole : first;
  }
  const double drawn = low + (high - low) * uniform_of(bits);
  double rounded = drawn;
  dispatch_all(dtype, [&]<class T>(T) { rounded = convert<double>(convert<T>(drawn)); });
  return rounded < high ? drawn : low;
}

// The same for i64 with bounds beyond which doubles skip whole numbers. It computes modulo 2⁶⁴, the
// width of the widest range.
inline std::int64_t whole_in(double low, double high, RandomBits bits) {
  const auto whole = [](double bound) {
    const double up = std::ceil(bound);
    return up < 0x1p63 ? static_cast<std::uint64_t>(static_cast<std::int64_t>(up))
                       : std::uint64_t{1} << 63;
  };
  const std::uint64_t first = whole(low);
  if (low == high) return static_cast<std::int64_t>(first);
  const std::uint64_t width = whole(high) - first;
  return static_cast<std::int64_t>(first + (width == 0 ? bits() : below_of(width, bits)));
}

LOCKSTEP_INLINE void with_random_bits(Generator& generator, Device device,
                                      FunctionRef<void(RandomBits)> fill) {
  if (!current_replica.group || &generator != &default_generator()) {
    const std::lock_guard lock(generator.mutex_);
    return fill(generator.engine_->numbers);
  }
  const RandomRange number = device_random().take(device, current_replica.index, 1);
  const RandomRange sequence{number.bits(0), 0};
  fill([&sequence, i = std::size_t{0}]() mutable { return sequence.bits(i++); });
}

template <class Draw>
Tensor random_tensor(const Shape& shape, const TensorOptions& options, Generator& generator,
                     Draw draw) {
  using Value = std::invoke_result_t<Draw, RandomBits>;
  const Tensor values = empty(shape, {.dtype = dtype_of<Value>});
  const std::span all(values.mutable_data_ptr<Value>(), static_cast<std::size_t>(values.numel()));
  with_random_bits(generator, options.device, [&](RandomBits bits) {
    for (Value& value : all) value = draw(bits);
  });
  return copy_as(values, options);
}

}  // namespace lockstep::detail

namespace lockstep {

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

LOCKSTEP_INLINE double Generator::uniform() {
  return detail::uniform_of([this] { return bits(); });
}

LOCKSTEP_INLINE double Generator::normal() {
  return detail::normal_of([this] { return bits(); });
}

LOCKSTEP_INLINE std::uint64_t Generator::below(std::uint64_t bound) {
  check<ValueError>(bound > 0, "Generator: expected a bound of at least 1, got 0");
  return detail::below_of(bound, [this] { return bits(); });
}

LOCKSTEP_INLINE std::string Generator::state() {
  std::ostringstream out;
  out.exceptions(std::ios::badbit);  // so that a failed allocation throws
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
  check<ValueError>(!in.fail() && (in >> std::ws).eof() && detail::is_reachable(state),
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
  if (options.dtype == Dtype::i64 && std::max({-low, high, high - low}) > 0x1p53) {
    return detail::random_tensor(shape, options, generator, [&](detail::RandomBits bits) {
      return detail::whole_in(low, high, bits);
    });
  }
  return detail::random_tensor(shape, options, generator, [&](detail::RandomBits bits) {
    return detail::uniform_in(low, high, options.dtype, bits);
  });
}

LOCKSTEP_INLINE Tensor randn(const Shape& shape, const TensorOptions& options,
                             Generator& generator) {
  if (!is_floating_point(options.dtype)) {
    detail::fail_dtype("randn", "a floating-point dtype", options.dtype);
  }
  return detail::random_tensor(shape, options, generator, detail::normal_of);
}

}  // namespace lockstep
