// SPDX-License-Identifier: Apache-2.0
#include <lockstep/cuda/libraries/bounded_cache.hpp>

#include <gtest/gtest.h>

#include <stdexcept>

namespace lockstep::cuda {
namespace bounded_cache_test {

TEST(BoundedCache, MakesAValueOnce) {
  BoundedCache<int, int> cache(8);
  int made = 0;
  const auto make = [&] { return 10 + made++; };
  EXPECT_EQ(cache.find_or(1, make), 10);
  EXPECT_EQ(cache.find_or(2, make), 11);
  EXPECT_EQ(cache.find_or(1, make), 10);
  EXPECT_EQ(made, 2);
}

TEST(BoundedCache, NeverHoldsMoreThanItsCapacity) {
  BoundedCache<int, int> cache(8);
  for (int i = 0; i < 1000; ++i) {
    cache.find_or(i, [&] { return i; });
    EXPECT_LE(cache.size(), 8U);
  }
}

TEST(BoundedCache, WhatIsUsedStaysAndTheRestIsForgotten) {
  BoundedCache<int, int> cache(8);
  int made = 0;
  const auto use = [&](int key) { return cache.find_or(key, [&] { return ++made; }); };
  const int first = use(0);
  for (int i = 1; i < 100; ++i) {
    use(i);
    ASSERT_EQ(use(0), first) << "after key " << i;
  }
  EXPECT_EQ(made, 100);
  use(1);
  EXPECT_EQ(made, 101);
}

TEST(BoundedCache, AValueThatCannotBeMadeIsNotRemembered) {
  BoundedCache<int, int> cache(2);
  EXPECT_THROW(cache.find_or(1, []() -> int { throw std::runtime_error("no"); }),
               std::runtime_error);
  EXPECT_EQ(cache.find_or(1, [] { return 5; }), 5);
}

}  // namespace bounded_cache_test
}  // namespace lockstep::cuda
