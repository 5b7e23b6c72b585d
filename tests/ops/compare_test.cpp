// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/compare.hpp>

#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace lockstep {
namespace compare_test {

TEST(Compare, EqualElementsAreTrue) {
  const Tensor a = tensor({1.0F, 2.0F, std::nanf("")});
  const Tensor result = eq(a, a);
  EXPECT_EQ(result.dtype(), Dtype::boolean);
  EXPECT_EQ(result.to_vector<bool>(), (std::vector<bool>{true, true, false}));
  EXPECT_EQ(eq(a, 2).to_vector<bool>(), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(eq(a.reshape({3, 1}), tensor({2.0F})).sizes(), (Shape{3, 1}));
  EXPECT_EQ(eq(result, result).to_vector<bool>(), (std::vector<bool>{true, true, true}));
  EXPECT_THROW((void)eq(a, arange(3)), DtypeError);
  EXPECT_THROW((void)eq(a, zeros({2})), ShapeError);
}

TEST(Compare, CountsHowManyOfABatchAreRight) {
  const Tensor scores = tensor({0.1F, 0.9F, 0.8F, 0.2F, 0.3F, 0.7F}).reshape({3, 2});
  const Tensor labels = tensor<std::int64_t>({1, 1, 1});
  EXPECT_EQ(sum(eq(argmax(scores, 1), labels)).item<std::int64_t>(), 2);
}

}  // namespace compare_test
}  // namespace lockstep
