// SPDX-License-Identifier: Apache-2.0
#include <lockstep/nn/init.hpp>
#include <lockstep/parallel/parallel_apply.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/random.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <vector>

namespace ls = lockstep;

namespace replica_random_test {

using Draw = ls::Tensor (*)();

ls::Tensor rand_of_i64() { return ls::rand({40}, {.dtype = ls::Dtype::i64}, -0x1p62, 0x1p62); }

// What a forward may draw by the default generator.
const std::vector<Draw> kDraws = {
    [] { return ls::rand({40}); },
    [] { return ls::randn({40}); },
    [] { return ls::rand({40}, {.dtype = ls::Dtype::i32}, 0, 1000); },
    rand_of_i64,
    [] { return ls::nn::init::uniform_(ls::empty({40})); },
    [] {
      return ls::nn::init::kaiming_normal_(ls::empty({10, 4}));
    },
};

// A replica that draws when its turn has come.
struct Draws {
  Draw draw = nullptr;
  std::atomic<int>* turn = nullptr;

  std::vector<ls::Tensor> forward(int place) const {
    for (int now = turn->load(); now != place; now = turn->load()) turn->wait(now);
    const ls::Tensor first = draw();
    const ls::Tensor second = draw();
    turn->store(place + 1);
    turn->notify_all();
    return {first, second};
  }
};

std::vector<std::vector<double>> numbers(Draw draw, const std::vector<int>& order) {
  ls::manual_seed(11);
  std::atomic<int> turn{0};
  std::vector<Draws> replicas(order.size(), Draws{draw, &turn});
  std::vector<std::vector<double>> result;
  for (const std::vector<ls::Tensor>& tensors : ls::parallel_apply(replicas, order)) {
    for (const ls::Tensor& tensor : tensors) {
      result.push_back(ls::detail::copy_as(tensor, {.dtype = ls::Dtype::f64}).to_vector<double>());
    }
  }
  return result;
}

TEST(ReplicaRandom, TheOrderOfTheThreadsDecidesNoNumber) {
  for (const Draw draw : kDraws) {
    const std::vector<std::vector<double>> expected = numbers(draw, {0, 1, 2});
    EXPECT_EQ(numbers(draw, {2, 1, 0}), expected);
    EXPECT_EQ(numbers(draw, {1, 2, 0}), expected);
  }
}

TEST(ReplicaRandom, EveryReplicaAndCallHasNumbersOfItsOwn) {
  for (const Draw draw : kDraws) {
    const std::vector<std::vector<double>> found = numbers(draw, {0, 1, 2});
    for (std::size_t i = 0; i < found.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) EXPECT_NE(found[i], found[j]);
    }
  }
}

TEST(ReplicaRandom, TheGeneratorsNumbersStayForItsCaller) {
  ls::manual_seed(11);
  const std::vector<float> expected = ls::rand({10}).to_vector<float>();
  (void)numbers(kDraws[0], {0, 1});
  EXPECT_EQ(ls::rand({10}).to_vector<float>(), expected);
}

// Draws from a generator that its caller gives.
struct DrawsFrom {
  ls::Generator* generator = nullptr;
  ls::Tensor forward(int) const { return ls::randn({5}, {}, *generator); }
};

TEST(ReplicaRandom, AGeneratorThatIsGivenIsDrawnFrom) {
  ls::Generator given(3);
  ls::Generator same(3);
  std::vector<DrawsFrom> replicas(1, DrawsFrom{&given});
  const std::vector<int> inputs(1);
  EXPECT_EQ(ls::parallel_apply(replicas, inputs)[0].to_vector<float>(),
            ls::randn({5}, {}, same).to_vector<float>());
}

}  // namespace replica_random_test
