// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/thread/reduce_ranks.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

namespace lockstep {
namespace reduce_ranks_test {

// Values of every size, among them those whose mean is rounded, subnormal or none.
template <class T>
std::vector<T> values_of_rank(std::size_t rank, std::size_t count) {
  using Limits = std::numeric_limits<T>;
  std::mt19937 random(static_cast<unsigned>(rank));
  std::vector<T> values = {T{0},          -T{0},         Limits::denorm_min(),
                           Limits::min(), Limits::max(), -Limits::max()};
  if (rank == 1) values[0] = Limits::denorm_min();
  while (values.size() < count) {
    const int exponent = std::uniform_int_distribution<int>(Limits::min_exponent - Limits::digits,
                                                            Limits::max_exponent - 8)(random);
    values.push_back(std::ldexp(std::uniform_real_distribution<T>(-1, 1)(random), exponent));
  }
  return values;
}

template <class T>
void expect_mean_is_sum_divided() {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  const std::size_t count = 5000;  // more than a block, and no whole number of them
  for (const std::size_t ranks : {1u, 2u, 3u, 4u, 5u, 8u}) {
    std::vector<std::vector<T>> inputs;
    std::vector<const void*> from;
    for (std::size_t r = 0; r < ranks; ++r) inputs.push_back(values_of_rank<T>(r, count));
    for (const std::vector<T>& input : inputs) from.push_back(input.data());
    std::vector<T> mean(count);
    void* const to = mean.data();
    distributed::detail::reduce_ranks(dtype_of<T>, distributed::ReduceOp::avg, from, {&to, 1}, 0,
                                      count);
    for (std::size_t i = 0; i < count; ++i) {
      T sum = inputs[0][i];
      for (std::size_t r = 1; r < ranks; ++r) sum += inputs[r][i];
      const T expected = sum / static_cast<T>(ranks);
      ASSERT_EQ(std::bit_cast<Bits>(mean[i]), std::bit_cast<Bits>(expected))
          << "element " << i << " of " << ranks << " ranks: " << mean[i] << ", not " << expected;
    }
  }
}

TEST(ReduceRanks, AMeanIsTheSumDividedToTheBit) {
  expect_mean_is_sum_divided<float>();
  expect_mean_is_sum_divided<double>();
}

}  // namespace reduce_ranks_test
}  // namespace lockstep
