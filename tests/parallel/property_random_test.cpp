// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/nested/scatterable.hpp>
#include <lockstep/parallel/scatter_gather.hpp>

#include "parallel/property_support.hpp"
#include "support/devices.hpp"
#include "support/sanitizers.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

namespace ls = lockstep;
using ls::testing::first_devices;

namespace property_random_test {

using ls::testing::property::DistinctTensors;
using ls::testing::property::Random;

// A structure that is made up at run time.
struct Tree {
  std::variant<std::monostate, ls::Tensor, double, std::string, std::vector<Tree>,
               std::map<std::string, Tree>>
      value;

  auto fields() const { return std::tie(value); }
};

static_assert(ls::Scatterable<Tree>);

// Grows trees whose tensors have `rows` rows along `dim`.
class Grower {
 public:
  Grower(Random& random, std::int64_t rows, std::int64_t dim)
      : random_(random), rows_(rows), dim_(dim) {}

  Tree grow(int depth = 0) {
    switch (random_.between(depth == 0 ? 7 : 0, depth < 4 ? 10 : 6)) {
      case 0:
        return {std::monostate()};
      case 1:
        return {random_.real()};
      case 2:
        return {std::string("text ") + std::to_string(random_.between(0, 9))};
      case 3:
        return {ls::Tensor()};
      case 4:
      case 5:
      case 6:
        return {leaf()};
      case 7:
      case 8: {
        std::map<std::string, Tree> map;
        for (int n = random_.between(depth < 2 ? 1 : 0, 4); n > 0; --n) {
          const std::string key(1, random_.between('a', 'z'));
          if (!map.contains(key)) map[key] = grow(depth + 1);
        }
        return {map};
      }
      default: {
        std::vector<Tree> list;
        for (int n = random_.between(depth < 2 ? 1 : 0, 4); n > 0; --n)
          list.push_back(grow(depth + 1));
        return {list};
      }
    }
  }

  bool has_leaves() const { return has_leaves_; }

 private:
  // Of a rank that has the dimension; some are views of a larger tensor.
  ls::Tensor leaf() {
    has_leaves_ = true;
    const std::int64_t rank = random_.between<std::int64_t>(dim_ < 0 ? -dim_ : dim_ + 1, 3);
    ls::Shape shape;
    for (std::int64_t d = 0; d < rank; ++d) shape.push_back(random_.between<std::int64_t>(1, 3));
    shape[static_cast<std::size_t>(dim_ < 0 ? dim_ + rank : dim_)] = rows_;
    const bool view = random_.one_in(4);
    const std::int64_t last = rank - 1;
    if (view) shape[static_cast<std::size_t>(last)] += 2;
    const ls::Dtype dtypes[] = {ls::Dtype::f32, ls::Dtype::f64, ls::Dtype::i64};
    const ls::Tensor tensor =
        distinct_.make(shape, dtypes[random_.between(0, 2)], random_.device(8));
    return view ? tensor.narrow(last, 1, shape[static_cast<std::size_t>(last)] - 2) : tensor;
  }

  Random& random_;
  DistinctTensors distinct_;
  std::int64_t rows_;
  std::int64_t dim_;
  bool has_leaves_ = false;
};

TEST(PropertyRandom, GatherIsTheInverseOfScatter) {
  const std::size_t cases = ls::testing::property::cases(ls::testing::kSanitizer ? 1000 : 10'000);
  std::size_t divided = 0;
  for (std::size_t i = 0; i < cases && !HasFailure(); ++i) {
    SCOPED_TRACE(ls::testing::property::name_of_case(i));
    Random random(i);
    const auto dim = random.between<std::int64_t>(-3, 2);
    const auto rows = random.between<std::int64_t>(0, 12);
    Grower grower(random, rows, dim);
    const Tree tree = grower.grow();
    divided += grower.has_leaves() ? 1 : 0;
    ls::testing::property::expect_round_trip(
        tree, first_devices(random.between<std::size_t>(1, 8)),
        grower.has_leaves() ? std::optional(rows) : std::nullopt, dim, random.split(),
        random.device(8));
  }
  EXPECT_GT(divided, cases / 2);
}

// The gradient of Σ wᵢ·xᵢ over what lies in all parts is w; of what lies in parts that do not take
// part it is zero.
TEST(PropertyRandom, GradientOfAWeightedSumOverThePartsIsTheWeights) {
  const std::size_t cases = ls::testing::property::cases(500);
  for (std::size_t i = 0; i < cases && !HasFailure(); ++i) {
    SCOPED_TRACE(ls::testing::property::name_of_case(i));
    Random random(i);
    const auto devices = first_devices(random.between<std::size_t>(1, 8));
    const auto rank = random.between<std::int64_t>(1, 3);
    const auto dim = random.between<std::int64_t>(-rank, rank - 1);
    const ls::Split& split = random.split();

    std::vector<ls::Tensor> inputs;
    std::vector<ls::Tensor> weights;
    for (int n = random.between(1, 3); n > 0; --n) {
      ls::Shape shape;
      for (std::int64_t d = 0; d < rank; ++d) shape.push_back(random.between<std::int64_t>(1, 4));
      shape[static_cast<std::size_t>(dim < 0 ? dim + rank : dim)] = 7;
      inputs.push_back(random.reals(shape, random.device(8)).requires_grad_());
      weights.push_back(random.reals(shape));
    }
    const auto parts = ls::scatter(inputs, devices, dim, split);
    auto weight_parts = ls::scatter(weights, devices, dim, split);
    ls::Tensor total;
    for (std::size_t k = 0; k < parts.size(); ++k) {
      for (std::size_t j = 0; j < inputs.size(); ++j) {
        if (random.one_in(5) && total.defined()) {
          weight_parts[k][j].zero_();
          continue;
        }
        const ls::Tensor term = ls::sum(parts[k][j] * weight_parts[k][j]).to("cpu:0");
        total = total.defined() ? total + term : term;
      }
    }
    total.backward();
    const std::vector<ls::Tensor> expected = ls::gather(weight_parts, "cpu", dim);
    for (std::size_t j = 0; j < inputs.size(); ++j) {
      if (!inputs[j].grad().defined()) {  // none of its parts took part
        EXPECT_EQ(expected[j].to_vector<double>(),
                  std::vector<double>(static_cast<std::size_t>(expected[j].numel()), 0.0));
        continue;
      }
      EXPECT_EQ(inputs[j].grad().device(), inputs[j].device());
      EXPECT_EQ(inputs[j].grad().sizes(), inputs[j].sizes());
      EXPECT_EQ(inputs[j].grad().to_vector<double>(), expected[j].to_vector<double>());
    }
  }
}

}  // namespace property_random_test
