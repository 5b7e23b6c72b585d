// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/distributed.hpp>

#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/nn/embedding.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/distributed_hooks.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/sparse.hpp>

#include "parallel/layers.hpp"
#include "support/devices.hpp"
#include "support/expect_error.hpp"
#include "support/gate.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace distributed_sparse_test {

using distributed::ProcessGroup;
using testing::f64;
using testing::first_devices;
using testing::throws;
using Values = std::vector<double>;
using Numbers = std::vector<std::int64_t>;

// A table of which few rows are used, and a layer on top of it.
struct Words {
  nn::Embedding table;
  Parameter weight{f64({1, 2, 3}, {1, 3})};
  Tensor forward(const Tensor& words) const { return linear(table(words), weight, {}); }
};

Words make_words(bool sparse = true) {
  Words model{.table = {6, 3, {.sparse = sparse, .dtype = Dtype::f64}}};
  const NoGradGuard guard;
  model.table.weight.copy_(arange(18, {.dtype = Dtype::f64}).reshape({6, 3}));
  return model;
}

// What `body(group)` returns on each of the first host devices.
template <class Body>
auto on_ranks(std::size_t count, Body body) {
  std::vector<decltype(body(std::declval<const ProcessGroup&>()))> results(count);
  distributed::run(first_devices(count), [&](const ProcessGroup& group) {
    results[static_cast<std::size_t>(group.rank())] = body(group);
  });
  return results;
}

Tensor words(const ProcessGroup& group, const Numbers& values) {
  return from_values(values, {static_cast<std::int64_t>(values.size())}, group.device());
}

// The words of rank r in step s: some of them twice, some on several ranks.
Tensor words_of(const ProcessGroup& group, std::int64_t step = 0) {
  const std::int64_t r = group.rank();
  return words(group, {r % 6, (r + 1) % 6, r % 6, (2 * r + step) % 6});
}

Values dense(const Tensor& tensor) { return tensor.to_dense().to_vector<double>(); }

TEST(DistributedDataParallel, DD18ASparseGradientIsAveragedAndStaysSparse) {
  struct Result {
    Numbers rows;
    Values values;
  };
  const auto results = on_ranks(2, [](const ProcessGroup& group) {
    nn::Embedding table{4, 2, {.sparse = true, .dtype = Dtype::f64}};
    DistributedDataParallel model{table, group};
    model(words(group, {group.rank()})).sum().backward();
    const Tensor grad = table.weight.grad();
    EXPECT_TRUE(grad.is_sparse());
    EXPECT_EQ(grad.device(), group.device());
    return Result{grad.indices().to_vector<std::int64_t>(), grad.values().to_vector<double>()};
  });
  for (const Result& result : results) {
    EXPECT_EQ(result.rows, (Numbers{0, 1}));
    EXPECT_EQ(result.values, (Values{0.5, 0.5, 0.5, 0.5}));
  }
}

// Three steps of training with and without sparse gradients: the same gradients and weights, to
// the bit, on every rank.
template <class Step>
void expect_as_dense(std::size_t ranks, const DistributedDataParallelOptions& options, Step step) {
  const auto train = [&](bool sparse) {
    return on_ranks(ranks, [&](const ProcessGroup& group) {
      DistributedDataParallel model{make_words(sparse), group, options};
      optim::SGD sgd{model.parameters(), {.lr = 0.125}};
      Values seen;
      for (std::int64_t s = 0; s < 3; ++s) {
        sgd.zero_grad();
        step(model, group, s);
        for (const Parameter& parameter : model.parameters()) {
          if (!parameter.grad().defined()) continue;
          const Values grad = dense(parameter.grad());
          seen.insert(seen.end(), grad.begin(), grad.end());
        }
        EXPECT_EQ(model.module().table.weight.grad().is_sparse(), sparse);
        sgd.step();
        const Values weight = model.module().table.weight.template to_vector<double>();
        seen.insert(seen.end(), weight.begin(), weight.end());
      }
      return seen;
    });
  };
  const auto sparse = train(true);
  const auto expected = train(false);
  for (std::size_t r = 0; r < ranks; ++r) EXPECT_EQ(sparse[r], expected[r]) << "rank " << r;
}

// A gradient of another stream, whose values have strides, so that they are read by a kernel.
TEST(DistributedDataParallel, DD18ASparseGradientIsKeptForTheStreamThatSendsIt) {
  distributed::run({"cpu:0"}, [&](const ProcessGroup& group) {
    Words module = make_words();
    const Stream side = pool_stream(group.device());
    Tensor own;
    module.table.weight.register_post_accumulate_grad_hook([&](const Tensor& weight) {
      const Tensor values = detail::empty_on(side, {3, 2}, Dtype::f64).fill_(1).t();
      own = detail::make_sparse(words(group, {1, 4}).reshape({1, 2}), values, weight.sizes(), true);
      weight.set_grad(own);
    });
    DistributedDataParallel model{std::move(module), group};
    model(words(group, {1, 4})).sum().backward();
    EXPECT_EQ(dense(model.module().table.weight.grad()),
              (Values{0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0}));
    EXPECT_TRUE(testing::is_recorded_on(current_stream(group.device()), own.values()));
  });
}

TEST(DistributedDataParallel, DD18SparseGradientsAreTheDenseOnes) {
  for (const std::size_t ranks : {1u, 2u, 3u}) {
    expect_as_dense(ranks, {}, [](auto& model, const ProcessGroup& group, std::int64_t step) {
      model(words_of(group, step)).sum().backward();
    });
  }
}

TEST(DistributedDataParallel, DD18SparseGradientsWithAStaticGraph) {
  expect_as_dense(2, {.static_graph = true},
                  [](auto& model, const ProcessGroup& group, std::int64_t step) {
                    model(words_of(group, step)).sum().backward();
                  });
}

TEST(DistributedDataParallel, DD18SparseGradientsAccumulateInNoSync) {
  expect_as_dense(2, {}, [](auto& model, const ProcessGroup& group, std::int64_t step) {
    {
      const auto guard = model.no_sync();
      model(words_of(group, step)).sum().backward();
    }
    model(words_of(group, step + 1)).sum().backward();
  });
}

TEST(DistributedDataParallel, DD18AGradientThatIsThereIsAddedTo) {
  expect_as_dense(2, {}, [](auto& model, const ProcessGroup& group, std::int64_t step) {
    model(words_of(group, step)).sum().backward();
    model(words_of(group, step + 1)).sum().backward();
  });
}

// Two tables around a layer, so that sparse and dense gradients take turns.
struct Tables {
  Words first = make_words();
  Parameter weight{f64({1, 2}, {2, 1})};
  nn::Embedding second{5, 2, {.sparse = true, .dtype = Dtype::f64}};
  Tensor forward(const Tensor& words) const {
    return linear(first.forward(words), weight, {}) * second(words);
  }
};

TEST(DistributedDataParallel, DD18EachSparseGradientHasABucketOfItsOwn) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    DistributedDataParallel model{Tables{}, group};
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      model(words(group, {group.rank(), 3, 4})).sum().backward();
      const Tables& tables = model.module();
      EXPECT_EQ(tables.first.table.weight.grad().indices().to_vector<std::int64_t>(),
                (Numbers{0, 1, 3, 4}));
      EXPECT_EQ(tables.second.weight.grad().indices().to_vector<std::int64_t>(),
                (Numbers{0, 1, 3, 4}));
      EXPECT_FALSE(tables.weight.grad().is_sparse());
    }
    const DDPLoggingData log = model.logging_data();
    EXPECT_EQ(log.initial_bucket_sizes.size(), 3u);
    EXPECT_EQ(log.rebuilt_bucket_sizes.size(), 3u);
  });
}

TEST(ProcessGroup, SparseTensorsAreRefused) {
  distributed::run(first_devices(1), [](const ProcessGroup& group) {
    const Tensor tensor = sparse_coo_tensor(from_values<std::int64_t>({1}, {1, 1}, group.device()),
                                            ones({1, 2}, {.device = group.device()}), {3, 2});
    EXPECT_TRUE(throws<ValueError>([&] { group.all_reduce(tensor).wait(); },
                                   "expected a dense tensor, got a sparse one of shape [3, 2]"));
    EXPECT_TRUE(
        throws<ValueError>([&] { group.broadcast(tensor).wait(); }, "expected a dense tensor"));
  });
}

TEST(DistributedDataParallel, DD18ARankMayHaveNoRows) {
  const auto rows = on_ranks(3, [](const ProcessGroup& group) {
    DistributedDataParallel model{make_words(), group};
    model(words(group, group.rank() == 1 ? Numbers{} : Numbers{5})).sum().backward();
    const Tensor grad = model.module().table.weight.grad();
    EXPECT_EQ(grad.values().template to_vector<double>(), (Values{2 / 3., 4 / 3., 6 / 3.}));
    return grad.indices().template to_vector<std::int64_t>();
  });
  EXPECT_EQ(rows, std::vector<Numbers>(3, {5}));
  const auto none = on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{make_words(), group};
    model(words(group, {})).sum().backward();
    return model.module().table.weight.grad().indices().numel();
  });
  EXPECT_EQ(none, (Numbers{0, 0}));
}

// A model that leaves its table out where the argument is empty.
struct Choice {
  Words words = make_words();
  Parameter other{f64({1}, {1})};
  Tensor forward(const Tensor& numbers) const {
    return numbers.numel() > 0 ? words.forward(numbers).sum() * other : other * 2;
  }
};

TEST(DistributedDataParallel, DD18UnusedOnSomeRanksAndOnAll) {
  const auto results = on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{Choice{}, group, {.find_unused_parameters = true}};
    const Parameter& weight = model.module().words.table.weight;
    Values seen;
    model(words(group, group.rank() == 0 ? Numbers{4} : Numbers{})).sum().backward();
    seen = dense(weight.grad());
    const Tensor before = weight.grad();
    model(words(group, {})).sum().backward();  // nobody uses it: it stays what it was
    EXPECT_TRUE(weight.grad().is_same(before));
    return seen;
  });
  Values expected(18, 0.0);
  for (std::size_t j = 0; j < 3; ++j) expected[12 + j] = (static_cast<double>(j) + 1) / 2;
  EXPECT_EQ(results[0], expected);
  EXPECT_EQ(results[1], expected);
}

TEST(DistributedDataParallel, DD18OneThatHasJoinedHasNoRows) {
  const auto results = on_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model{make_words(), group};
    std::vector<Values> seen;
    const auto train = [&](bool divide_by_all) {
      model.join(
          [&] {
            for (int i = 0; i <= group.rank(); ++i) {
              model.zero_grad();
              model(words(group, {i})).sum().backward();
            }
          },
          {.divide_by_initial_world_size = divide_by_all});
      seen.push_back(dense(model.module().table.weight.grad()));
    };
    train(true);
    train(false);
    return seen;
  });
  Values half(18, 0.0);
  Values whole(18, 0.0);
  for (std::size_t j = 0; j < 3; ++j) {
    whole[3 + j] = static_cast<double>(j) + 1;
    half[3 + j] = whole[3 + j] / 2;
  }
  for (const auto& seen : results) EXPECT_EQ(seen, (std::vector<Values>{half, whole}));
}

TEST(DistributedDataParallel, DD18HooksAreRefusedSinceTheySeeDenseBuckets) {
  distributed::run(first_devices(1), [](const ProcessGroup& group) {
    DistributedDataParallel model{make_words(), group};
    EXPECT_TRUE(
        throws<ValueError>([&] { model.register_comm_hook(ddp_comm_hooks::allreduce_hook(group)); },
                           "register_comm_hook: a hook reduces buckets of dense gradients",
                           "0 (table.weight) are sparse"));
  });
}

TEST(DistributedDataParallel, DD18RanksMustAgreeOnWhatIsSparse) {
  const auto messages = on_ranks(2, [](const ProcessGroup& group) -> std::string {
    try {
      DistributedDataParallel model{make_words(group.rank() == 1), group};
    } catch (const ModuleError& error) {
      return error.what();
    }
    return "no exception";
  });
  for (const std::string& message : messages) {
    EXPECT_EQ(message,
              "DistributedDataParallel: parameter 0, \"table.weight\", is of shape [6, 3], strides "
              "[3, 1] and f64 on rank 0, but of shape [6, 3], strides [3, 1] and f64, with sparse "
              "gradients on rank 1");
  }
}

TEST(DistributedDataParallel, DD18AGradientOfTheOtherKindIsAnError) {
  distributed::run(first_devices(1), [](const ProcessGroup& group) {
    const Words unmarked = make_words();
    expect_sparse_gradient(unmarked.table.weight, false);
    DistributedDataParallel model{unmarked, group};
    EXPECT_TRUE(throws<ModuleError>([&] { model(words(group, {1})).sum().backward(); },
                                    "Expected variable to have dense gradient",
                                    "0 (table.weight) is not marked by expect_sparse_gradient"));
    const Words marked = make_words(false);
    expect_sparse_gradient(marked.table.weight);
    DistributedDataParallel other{marked, group};
    EXPECT_TRUE(throws<ModuleError>([&] { other(words(group, {1})).sum().backward(); },
                                    "Expected variable to have sparse gradient",
                                    "0 (table.weight) is marked by expect_sparse_gradient"));
  });
}

}  // namespace distributed_sparse_test
}  // namespace lockstep
