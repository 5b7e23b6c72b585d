// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/compare.hpp>

#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
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

// Every relation of every pair of some numbers, as C++ has it: two tensors, stretched and not, and
// a tensor and a number.
template <class T>
void expect_relations(const std::vector<T>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  const Tensor column = from_values(values, {count, 1}, Device("cpu:0"));
  const Tensor row = from_values(values, {count}, Device("cpu:0"));
  const Tensor repeated = expand(row, {count, count}).contiguous();
  const Tensor full_column = expand(column, {count, count}).contiguous();
  const auto expect = [&](auto relation, auto holds) {
    std::vector<bool> expected;
    for (const T x : values) {
      for (const T y : values) expected.push_back(holds(x, y));
    }
    const Tensor result = relation(column, row);
    EXPECT_EQ(result.dtype(), Dtype::boolean);
    EXPECT_EQ(result.sizes(), (Shape{count, count}));
    EXPECT_EQ(result.template to_vector<bool>(), expected);
    EXPECT_EQ(relation(full_column, repeated).template to_vector<bool>(), expected);
    for (std::size_t j = 0; j < values.size(); ++j) {
      const std::vector<bool> found =
          relation(row, static_cast<double>(values[j])).template to_vector<bool>();
      for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(found[i], holds(values[i], values[j])) << values[i] << " and " << values[j];
      }
    }
  };
  expect([](const Tensor& a, auto b) { return eq(a, b); }, [](T x, T y) { return x == y; });
  expect([](const Tensor& a, auto b) { return ne(a, b); }, [](T x, T y) { return x != y; });
  expect([](const Tensor& a, auto b) { return lt(a, b); }, [](T x, T y) { return x < y; });
  expect([](const Tensor& a, auto b) { return le(a, b); }, [](T x, T y) { return x <= y; });
  expect([](const Tensor& a, auto b) { return gt(a, b); }, [](T x, T y) { return x > y; });
  expect([](const Tensor& a, auto b) { return ge(a, b); }, [](T x, T y) { return x >= y; });
}

TEST(Compare, EveryRelationIsThatOfTheNumbers) {
  expect_relations<float>({-1, 0, 2.5F, INFINITY});
  expect_relations<double>({-1, 0, 1e300, -INFINITY});
  expect_relations<std::int64_t>({-1, 0, 7});
  expect_relations<std::int32_t>({-1, 0, 7});
}

TEST(Compare, ANanIsUnequalAndNeitherLessNorGreater) {
  const Tensor x = tensor({1.0F});
  const Tensor nan = tensor({std::nanf("")});
  for (const Tensor& y : {x, nan}) {
    EXPECT_TRUE(ne(nan, y).item<bool>());
    for (const auto relation : {static_cast<Tensor (*)(const Tensor&, const Tensor&)>(eq),
                                static_cast<Tensor (*)(const Tensor&, const Tensor&)>(lt),
                                static_cast<Tensor (*)(const Tensor&, const Tensor&)>(le),
                                static_cast<Tensor (*)(const Tensor&, const Tensor&)>(gt),
                                static_cast<Tensor (*)(const Tensor&, const Tensor&)>(ge)}) {
      EXPECT_FALSE(relation(nan, y).item<bool>());
      EXPECT_FALSE(relation(y, nan).item<bool>());
    }
  }
}

TEST(Compare, TakesEveryDtypeAndRecordsNothing) {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::u8}) {
    const Tensor x = tensor({0.0F, 2.0F, 200.0F}).to(dtype);
    EXPECT_EQ(gt(x, 1).to_vector<bool>(), (std::vector<bool>{false, true, true})) << dtype;
    EXPECT_EQ(le(x, x.narrow(0, 1, 1)).to_vector<bool>(), (std::vector<bool>{true, true, false}))
        << dtype;
  }
  const Tensor truth = eq(tensor({1.0F, 0.0F}), 1);
  EXPECT_EQ(lt(truth, 1).to_vector<bool>(), (std::vector<bool>{false, true}));
  EXPECT_FALSE(lt(ones({2}).requires_grad_(), 2).requires_grad());
  EXPECT_THROW((void)lt(arange(2), 0.5), DtypeError);
  EXPECT_THROW((void)lt(ones({2}), zeros({2}, {.device = "cpu:1"})), DeviceError);
}

TEST(Compare, CountsHowManyOfABatchAreRight) {
  const Tensor scores = tensor({0.1F, 0.9F, 0.8F, 0.2F, 0.3F, 0.7F}).reshape({3, 2});
  const Tensor labels = tensor<std::int64_t>({1, 1, 1});
  EXPECT_EQ(sum(eq(argmax(scores, 1), labels)).item<std::int64_t>(), 2);
}

TEST(Compare, ANumberTakesTheTensorsDtype) {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    const Tensor x = full({1}, 0.1).to(dtype);
    EXPECT_TRUE(eq(x, 0.1).to_vector<bool>()[0]) << dtype;
    EXPECT_TRUE(le(x, 0.1).to_vector<bool>()[0] && ge(x, 0.1).to_vector<bool>()[0]) << dtype;
  }
}

}  // namespace compare_test
}  // namespace lockstep
