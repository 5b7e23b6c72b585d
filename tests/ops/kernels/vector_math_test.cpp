// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/kernels/vector_math.hpp>
#include <lockstep/ops/kernels/vector_rows.hpp>

#include "support/sanitizers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

namespace lockstep {
namespace vector_math_test {

using detail::vectorized::best_instructions;
using detail::vectorized::Instructions;

constexpr std::int64_t kMostUnits = 4;

template <class T>
using Each = void (*)(const T* in, T* out, std::size_t n, Instructions by);

template <class T>
T wide_sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}

template <class T>
T wide_normal_erf(T x) {
  return std::erf(x / std::sqrt(T{2}));
}

// A function, and the same in more digits.
struct Function {
  const char* name;
  Each<float> floats;
  Each<double> doubles;
  double (*exact)(double);
  long double (*more_exact)(long double);
};

void floats_normal_erf(const float* in, float* out, std::size_t n, Instructions) {
  detail::vectorized::normal_erf(in, out, n);
}

const std::array<Function, 7> kFunctions{
    {{"exp", detail::vectorized::exp, detail::vectorized::exp, std::exp, std::exp},
     {"log", detail::vectorized::log, detail::vectorized::log, std::log, std::log},
     {"log1p", detail::vectorized::log1p, detail::vectorized::log1p, std::log1p, std::log1p},
     {"tanh", detail::vectorized::tanh, detail::vectorized::tanh, std::tanh, std::tanh},
     {"normal_erf", floats_normal_erf, detail::vectorized::normal_erf, wide_normal_erf,
      wide_normal_erf},
     {"sqrt", detail::vectorized::sqrt, detail::vectorized::sqrt, std::sqrt, std::sqrt},
     {"sigmoid", detail::vectorized::sigmoid, detail::vectorized::sigmoid, wide_sigmoid,
      wide_sigmoid}}};

std::vector<Instructions> all_instructions() {
  std::vector<Instructions> all;
  for (int i = 0; i <= static_cast<int>(best_instructions()); ++i) {
    all.push_back(static_cast<Instructions>(i));
  }
  return all;
}

std::string where(const char* name, Instructions by) {
  return std::string(name) + " by instructions " + std::to_string(static_cast<int>(by));
}

// How many numbers of this type lie from one to the other; both zeros are one number.
template <class T>
std::int64_t units_between(T a, T b) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  const auto place = [](T x) {
    const auto bits = static_cast<std::int64_t>(std::bit_cast<Bits>(x));
    return bits < 0 ? std::numeric_limits<Bits>::min() - bits : bits;
  };
  return std::abs(place(a) - place(b));
}

template <class T>
bool same_number(T a, T b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

// The greatest distance of the results from those expected; NaN only where that is expected.
template <class T>
void expect_close(const std::string& what, const std::vector<T>& x, const std::vector<T>& found,
                  const std::vector<T>& expected) {
  std::int64_t worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(found[i]) || std::isnan(expected[i])) {
      ASSERT_TRUE(same_number(found[i], expected[i])) << what << " at " << x[i];
      continue;
    }
    const std::int64_t units = units_between(found[i], expected[i]);
    if (units <= worst) continue;
    worst = units;
    at = i;
  }
  EXPECT_LE(worst, kMostUnits) << what << " at " << x[at] << ": " << found[at] << " for "
                               << expected[at];
}

// The bounds are of rounding, in which a sanitizer sees nothing: fewer numbers are looked at there,
// by steps that stay odd, so that all bits change.
constexpr unsigned kFewer = testing::kSanitizer ? 11 : 1;

// Every so-manieth of all floats, closer where the functions are not nearly constant or linear.
std::vector<float> sample_of_floats() {
  std::vector<float> all;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 8009 * kFewer) {
    all.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  const std::uint32_t first = std::bit_cast<std::uint32_t>(0x1p-9F);
  const std::uint32_t last = std::bit_cast<std::uint32_t>(0x1p7F);
  for (std::uint32_t bits = first; bits < last; bits += 401 * kFewer) {
    all.push_back(std::bit_cast<float>(bits));
    all.push_back(-all.back());
  }
  return all;
}

TEST(VectorMath, FloatsAreWithinFourUnitsOfTheCorrectlyRoundedNumber) {
  const std::vector<float> x = sample_of_floats();
  std::vector<float> expected(x.size());
  std::vector<float> found(x.size());
  for (const Function& function : kFunctions) {
    std::transform(x.begin(), x.end(), expected.begin(), [&](float at) {
      return static_cast<float>(function.exact(static_cast<double>(at)));
    });
    for (const Instructions by : all_instructions()) {
      function.floats(x.data(), found.data(), x.size(), by);
      expect_close(where(function.name, by), x, found, expected);
    }
  }
}

TEST(VectorMath, DoublesAreWithinFourUnitsOfTheCorrectlyRoundedNumber) {
  std::mt19937_64 random(1);
  std::vector<double> x;
  for (unsigned i = 0; i < 100'000 / kFewer; ++i) {
    const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
    x.insert(x.end(), {std::bit_cast<double>(random()), 16 * unit - 8, 1500 * unit - 750});
  }
  std::vector<double> expected(x.size());
  std::vector<double> found(x.size());
  for (const Function& function : kFunctions) {
    std::transform(x.begin(), x.end(), expected.begin(), [&](double at) {
      return static_cast<double>(function.more_exact(static_cast<long double>(at)));
    });
    for (const Instructions by : all_instructions()) {
      function.doubles(x.data(), found.data(), x.size(), by);
      expect_close(where(function.name, by), x, found, expected);
    }
  }
}

template <class T>
void expect_the_numbers_at_the_limits(Each<T> each, const Function& function) {
  using Limits = std::numeric_limits<T>;
  std::vector<T> x{
      T{0},          Limits::infinity(), Limits::quiet_NaN(), Limits::denorm_min(), T{1},
      Limits::max(), Limits::min(),      Limits::min() / 4,   Limits::epsilon()};
  for (std::size_t i = x.size(); i-- > 0;) x.push_back(-x[i]);
  std::vector<T> found(x.size());
  for (const Instructions by : all_instructions()) {
    each(x.data(), found.data(), x.size(), by);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto expected = static_cast<T>(function.more_exact(static_cast<long double>(x[i])));
      EXPECT_TRUE(same_number(found[i], expected) ||
                  units_between(found[i], expected) <= kMostUnits)
          << where(function.name, by) << " at " << x[i] << ": " << found[i];
      if (!std::isfinite(expected) || expected == 0) {
        EXPECT_TRUE(same_number(found[i], expected))
            << where(function.name, by) << " at " << x[i] << ": " << found[i];
      }
    }
  }
}

TEST(VectorMath, NaNInfinityZeroAndSubnormalNumbersGiveWhatTheyShould) {
  for (const Function& function : kFunctions) {
    expect_the_numbers_at_the_limits<float>(function.floats, function);
    expect_the_numbers_at_the_limits<double>(function.doubles, function);
  }
}

// The same number in a place of its own.
template <class T>
void expect_that_places_do_not_matter(Each<T> each, const char* name) {
  std::mt19937_64 random(2);
  std::vector<T> x(140);
  for (T& at : x) at = static_cast<T>(static_cast<double>(random() >> 11) * 0x1p-51);
  for (const Instructions by : all_instructions()) {
    std::vector<T> whole(x.size());
    each(x.data(), whole.data(), x.size(), by);
    for (std::size_t begin = 0; begin < 3; ++begin) {
      for (std::size_t n = 0; n + begin <= x.size(); ++n) {
        std::vector<T> part(x.size(), T{7});
        each(x.data() + begin, part.data() + begin, n, by);
        const auto same = [&](std::size_t i) {
          const bool inside = i >= begin && i < begin + n;
          return same_number(part[i], inside ? whole[i] : T{7});
        };
        for (std::size_t i = 0; i < x.size(); ++i) {
          ASSERT_TRUE(same(i)) << where(name, by) << ", number " << i << " of " << n << " from "
                               << begin << " on";
        }
      }
    }
    std::vector<T> in_place = x;
    each(in_place.data(), in_place.data(), x.size(), by);
    EXPECT_EQ(in_place, whole) << where(name, by);
  }
}

TEST(VectorMath, TheSameBitsComeInEveryPlaceAndNothingElseIsWritten) {
  for (const Function& function : kFunctions) {
    expect_that_places_do_not_matter<float>(function.floats, function.name);
    expect_that_places_do_not_matter<double>(function.doubles, function.name);
  }
}

}  // namespace vector_math_test
}  // namespace lockstep
