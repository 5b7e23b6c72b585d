// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/powersgd_hook.hpp>

#include <lockstep/autograd/engine.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/matmul.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/distributed.hpp>
#include <lockstep/parallel/distributed_hooks.hpp>
#include <lockstep/profile/profiler.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/memory_format.hpp>
#include <lockstep/tensor/random.hpp>

#include "support/devices.hpp"
#include "support/expect_error.hpp"
#include "support/gate.hpp"
#include "support/varied.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep {
namespace distributed_powersgd_test {

using ddp_comm_hooks::powerSGD_hook;
using ddp_comm_hooks::PowerSGDOptions;
using ddp_comm_hooks::PowerSGDState;
using distributed::ProcessGroup;
using testing::all_close;
using testing::first_devices;
using testing::throws;
using testing::varied;
using Values = std::vector<double>;

// The gradient of each weight is what forward is given for it.
struct Weights {
  std::vector<Parameter> weights;
  Tensor forward(const std::vector<Tensor>& gradients) const {
    Tensor sum = (weights[0] * gradients[0]).sum();
    for (std::size_t i = 1; i < weights.size(); ++i) {
      sum = sum + (weights[i] * gradients[i]).sum();
    }
    return sum;
  }
};

using Model = DistributedDataParallel<Weights>;

Weights weights_of(const std::vector<Shape>& shapes, Device device, Dtype dtype = Dtype::f64) {
  Weights module;
  for (const Shape& shape : shapes) {
    module.weights.emplace_back(ones(shape, {.dtype = dtype, .device = device}));
  }
  return module;
}

std::shared_ptr<PowerSGDState> compress(Model& model, PowerSGDOptions options) {
  const auto state = std::make_shared<PowerSGDState>(model.process_group(), options);
  model.register_comm_hook(powerSGD_hook(state));
  return state;
}

// What the hook makes of gradients.
std::vector<Tensor> reduced(Model& model, const std::vector<Tensor>& gradients) {
  model.zero_grad();
  model(gradients).backward();
  std::vector<Tensor> result;
  for (const Parameter& weight : model.module().weights) result.push_back(weight.grad().clone());
  return result;
}

Tensor mean_over_ranks(const ProcessGroup& group, const Tensor& tensor) {
  const Tensor mean = tensor.clone();
  group.all_reduce(mean, distributed::ReduceOp::avg).wait();
  return mean;
}

double norm(const Tensor& tensor) { return std::sqrt(square(tensor).sum().item()); }

// A matrix of rank 2, other numbers on every rank, but the same columns.
Tensor of_rank_two(const ProcessGroup& group, std::size_t seed = 0) {
  const Tensor columns = varied({12, 2}, seed, group.device());
  const auto own = static_cast<std::size_t>(group.rank());
  return matmul(columns, varied({2, 10}, seed + 1 + own, group.device()));
}

TEST(PowerSGD, AMatrixOfSmallRankIsRecovered) {
  for (const std::size_t world : {1u, 2u, 3u}) {
    distributed::run(first_devices(world), [](const ProcessGroup& group) {
      Model model{weights_of({{12, 10}}, group.device()), group};
      compress(model, {.matrix_approximation_rank = 2, .start_powerSGD_iter = 0});
      for (std::size_t step = 0; step < 4; ++step) {
        const Tensor gradient = of_rank_two(group, 10 * step);
        EXPECT_TRUE(
            all_close(reduced(model, {gradient})[0], mean_over_ranks(group, gradient), 0, 1e-12));
      }
    });
  }
}

// Of fewer columns than the approximation has, as where it is 0 at first.
TEST(PowerSGD, AMatrixOfSmallerRankIsRecovered) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    Model model{weights_of({{12, 10}}, group.device()), group};
    compress(model, {.matrix_approximation_rank = 2, .start_powerSGD_iter = 0});
    const Tensor zero = zeros({12, 10}, {.dtype = Dtype::f64, .device = group.device()});
    const Tensor one =
        matmul(varied({12, 1}, 1, group.device()), varied({1, 10}, 2, group.device()));
    for (const Tensor& gradient : {zero, zero, one, zero, of_rank_two(group)}) {
      EXPECT_TRUE(
          all_close(reduced(model, {gradient})[0], mean_over_ranks(group, gradient), 0, 1e-12));
    }
  });
}

// Without what it has along the others, a column is rounding errors that lie along them, too.
TEST(PowerSGD, AMatrixOfEqualNumbersIsRecovered) {
  const auto run = [](const PowerSGDOptions& options, Dtype dtype) {
    distributed::run(first_devices(2), [&](const ProcessGroup& group) {
      Model model{weights_of({{3, 4}}, group.device(), dtype), group};
      compress(model, options);
      const Tensor gradient =
          full({3, 4}, group.rank() + 1, {.dtype = dtype, .device = group.device()});
      const Tensor mean = mean_over_ranks(group, gradient);
      for (int step = 0; step < 5; ++step) {
        EXPECT_TRUE(all_close(reduced(model, {gradient})[0], mean, 0, 1e-5))
            << "rank " << options.matrix_approximation_rank << ", step " << step;
      }
    });
  };
  for (const std::int64_t rank : {1, 2, 3}) {
    for (const bool feeds_back : {true, false}) {
      for (const bool warm : {true, false}) {
        const PowerSGDOptions options{.matrix_approximation_rank = rank,
                                      .start_powerSGD_iter = 0,
                                      .min_compression_rate = 0,
                                      .use_error_feedback = feeds_back,
                                      .warm_start = warm};
        for (const Dtype dtype : {Dtype::f32, Dtype::f64}) run(options, dtype);
      }
    }
  }
}

// Whose squares are 0 in f32.
TEST(PowerSGD, AMatrixOfVerySmallNumbersIsRecovered) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    Model model{weights_of({{12, 10}}, group.device(), Dtype::f32), group};
    compress(model, {.start_powerSGD_iter = 0, .use_error_feedback = false});
    const Tensor gradient =
        (matmul(varied({12, 1}, 1, group.device()), varied({1, 10}, 2, group.device())) * 1e-25)
            .to(Dtype::f32);
    for (int step = 0; step < 3; ++step) {
      const Tensor missed = reduced(model, {gradient})[0].to(Dtype::f64) - gradient.to(Dtype::f64);
      EXPECT_LT(norm(missed), 1e-30);
    }
  });
}

TEST(PowerSGD, WhatIsNotCompressedIsTheMeanAndEveryShapeFits) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    const std::vector<Shape> shapes = {{}, {7}, {3, 3}, {12, 2, 5}, {8, 4, 2, 2}};
    Weights module = weights_of(shapes, group.device());
    module.weights[4] =
        Parameter(module.weights[4].detach().contiguous(MemoryFormat::channels_last));
    Model model{module, group};
    compress(model, {.matrix_approximation_rank = 2, .start_powerSGD_iter = 0});
    const auto own = static_cast<std::size_t>(group.rank());
    const Tensor filters =
        matmul(varied({8, 2}, 5, group.device()), varied({2, 16}, 6 + own, group.device()));
    const std::vector<Tensor> gradients = {
        varied({}, own, group.device()), varied({7}, own, group.device()),
        varied({3, 3}, own, group.device()), of_rank_two(group).reshape({12, 2, 5}),
        filters.reshape({8, 4, 2, 2})};
    for (int step = 0; step < 3; ++step) {
      const std::vector<Tensor> result = reduced(model, gradients);
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        EXPECT_TRUE(all_close(result[i], mean_over_ranks(group, gradients[i]), 0, 1e-12)) << i;
      }
      EXPECT_EQ(model.module().weights[4].grad().strides(), model.module().weights[4].strides());
    }
  });
}

// All that was sent, and what is still to be sent, is all that there was: also across the first
// pass, after which the buckets are other ones.
TEST(PowerSGD, ErrorFeedbackLosesNothing) {
  for (const bool warm : {true, false}) {
    distributed::run(first_devices(3), [&](const ProcessGroup& group) {
      Model model{
          weights_of({{12, 10}, {5}, {20, 9}}, group.device()), group, {.bucket_cap_mb = 0}};
      const auto state = compress(model, {.start_powerSGD_iter = 0, .warm_start = warm});
      const auto own = static_cast<std::size_t>(group.rank());
      std::vector<Tensor> sent(3);
      std::vector<Tensor> meant(3);
      for (std::size_t step = 0; step < 6; ++step) {
        const std::vector<Tensor> gradients = {varied({12, 10}, 7 * step + own, group.device()),
                                               varied({5}, 7 * step + own, group.device()),
                                               varied({20, 9}, 7 * step + own, group.device())};
        const std::vector<Tensor> result = reduced(model, gradients);
        for (std::size_t i = 0; i < 3; ++i) {
          const Tensor mean = mean_over_ranks(group, gradients[i]);
          sent[i] = step == 0 ? result[i] : sent[i] + result[i];
          meant[i] = step == 0 ? mean : meant[i] + mean;
        }
      }
      EXPECT_TRUE(all_close(sent[1], meant[1], 0, 1e-12));
      for (const std::size_t i : {0u, 2u}) {
        const Tensor error = state->memory_of(model.module().weights[i]).error;
        EXPECT_TRUE(all_close(sent[i] + mean_over_ranks(group, error), meant[i], 0, 1e-12));
        EXPECT_GT(norm(error), 0.1);
      }
      EXPECT_TRUE(model.logging_data().has_rebuilt_buckets);
    });
  }
}

// What backward has left on its stream is used at the end of the pass on the caller's.
TEST(PowerSGD, WhatItHasLostIsKeptForTheStreamOfTheCaller) {
  distributed::run({"cpu:0"}, [](const ProcessGroup& group) {
    const Device device = group.device();
    Model model{weights_of({{12, 10}}, device), group};
    const auto state = compress(model, {.start_powerSGD_iter = 0});
    const Stream side = pool_stream(device);
    side.wait_stream(current_stream(device));
    Tensor loss;
    {
      const StreamGuard guard(side);
      loss = model(std::vector<Tensor>{varied({12, 10}, 0, device)});
    }
    loss.backward();
    const StateDict dict = state->state_dict(model.parameters());
    const auto error = std::find_if(dict.begin(), dict.end(), [](const NamedTensor& each) {
      return each.name == "state.0.error";
    });
    ASSERT_NE(error, dict.end());
    EXPECT_EQ(error->tensor.impl()->storage->owner(), side);
    EXPECT_TRUE(testing::is_recorded_on(current_stream(device), error->tensor));
  });
}

TEST(PowerSGD, WithoutErrorFeedbackEachPassIsOfItsOwn) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    Model model{weights_of({{12, 10}}, group.device()), group};
    const auto state = compress(model, {.start_powerSGD_iter = 0, .use_error_feedback = false});
    (void)reduced(model, {varied({12, 10}, 1, group.device())});
    EXPECT_FALSE(state->memory_of(model.module().weights[0]).error.defined());
    const Tensor one =
        matmul(varied({12, 1}, 1, group.device()), varied({1, 10}, 2, group.device()));
    EXPECT_TRUE(all_close(reduced(model, {one})[0], one, 0, 1e-12));
  });
}

// How far the best approximation of rank 1 is missed by after 12 passes of one gradient, whose two
// directions are of size 3 and 2.
double missed_after_twelve(bool warm) {
  double missed = 0;
  distributed::run(first_devices(2), [&](const ProcessGroup& group) {
    Model model{weights_of({{12, 10}}, group.device()), group};
    compress(model, {.start_powerSGD_iter = 0, .use_error_feedback = false, .warm_start = warm});
    Values values(120);
    values[0] = 3;
    values[11] = 2;
    const Tensor gradient = from_values(values, {12, 10}, group.device());
    values[11] = 0;
    const Tensor best = from_values(values, {12, 10}, group.device());
    Tensor result;
    for (int step = 0; step < 12; ++step) result = reduced(model, {gradient})[0];
    if (group.rank() == 0) missed = norm(result - best);
  });
  return missed;
}

TEST(PowerSGD, AWarmStartFindsTheBestApproximation) {
  EXPECT_LT(missed_after_twelve(true), 1e-3);
  EXPECT_GT(missed_after_twelve(false), 1e-2);
}

TEST(PowerSGD, TheFirstPassesAreReducedAsTheyAre) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    Model model{weights_of({{12, 10}, {12, 10}}, group.device()), group, {.bucket_cap_mb = 0}};
    const auto state = compress(model, {.start_powerSGD_iter = 3});
    for (std::size_t step = 0; step < 4; ++step) {
      const Tensor gradient = varied({12, 10}, step, group.device());
      const double missed = norm(reduced(model, {gradient, gradient})[1] - gradient);
      if (step < 3) {
        EXPECT_LT(missed, 1e-12);
      } else {
        EXPECT_GT(missed, 0.1);
      }
      EXPECT_EQ(state->iter(), static_cast<std::int64_t>(step) + 1);
    }
  });
}

std::uint64_t all_reduced_bytes(const std::vector<profile::FunctionEvent>& events) {
  std::uint64_t sum = 0;
  for (const profile::FunctionEvent& event : events) {
    if (event.name == "all_reduce") sum += event.bytes;
  }
  return sum;
}

TEST(PowerSGD, SendsThinMatrices) {
  for (const bool compressed : {false, true}) {
    profile::Profiler profiler;
    distributed::run(first_devices(2), [&](const ProcessGroup& group) {
      Model model{weights_of({{40, 30}, {40}}, group.device()), group, {.static_graph = true}};
      const auto state = compress(
          model, {.matrix_approximation_rank = 2, .start_powerSGD_iter = compressed ? 0 : 1000});
      (void)reduced(model, {varied({40, 30}, 1, group.device()), varied({40}, 1, group.device())});
      const PowerSGDState::CompressionStats stats = state->compression_stats();
      EXPECT_EQ(stats.numel_before_compression, compressed ? 1240 : 0);
      EXPECT_EQ(stats.numel_after_compression, compressed ? 2 * 70 + 40 : 0);
      EXPECT_NEAR(stats.compression_rate, compressed ? 1240.0 / 180 : 0, 1e-12);
    });
    profiler.stop();
    // Of two ranks, in f64; and two i32 in which they tell each other what they have used.
    const std::uint64_t elements = compressed ? 180 : 1240;
    EXPECT_EQ(all_reduced_bytes(profiler.events()), 2 * (8 * elements + 2 * 4));
  }
}

TEST(PowerSGD, MatricesForWhichItDoesNotPayAreSentAsTheyAre) {
  distributed::run(first_devices(1), [](const ProcessGroup& group) {
    // 2 · (8 + 8) = 32, and 64 is just twice as much.
    Model model{weights_of({{8, 8}, {9, 8}}, group.device()), group};
    const auto state = compress(model, {.matrix_approximation_rank = 2, .start_powerSGD_iter = 0});
    (void)reduced(model, {varied({8, 8}, 1, group.device()), varied({9, 8}, 1, group.device())});
    EXPECT_EQ(state->compression_stats().numel_after_compression, 64 + 2 * 17);
  });
}

struct Mlp {
  nn::Linear fc1;
  nn::Linear fc2;
  Tensor forward(const Tensor& x) const { return fc2(tanh(fc1(x))); }
};

// The losses of rank 0, and the parameters of every rank.
struct Trained {
  Values losses;
  std::vector<Values> parameters;
};

template <class Register>
Trained train(const Register& add_hook) {
  Trained result;
  result.parameters.resize(2);
  manual_seed(3);
  const Mlp first{nn::Linear(16, 32), nn::Linear(32, 16)};
  distributed::run(first_devices(2), [&](const ProcessGroup& group) {
    DistributedDataParallel model{
        group.rank() == 0 ? first : Mlp{nn::Linear(16, 32), nn::Linear(32, 16)}, group};
    add_hook(model);
    optim::SGD sgd{model.parameters(), {.lr = 0.2, .momentum = 0.9}};
    const auto own = static_cast<std::size_t>(group.rank());
    const Tensor x = varied<float>({32, 16}, own, group.device());
    const Tensor target = tanh(x * 2);
    for (int step = 0; step < 50; ++step) {
      sgd.zero_grad();
      const Tensor loss = square(model(x) - target).mean();
      loss.backward();
      sgd.step();
      const Tensor mean = mean_over_ranks(group, loss.detach());
      if (own == 0) result.losses.push_back(mean.item());
    }
    for (const Parameter& parameter : model.parameters()) {
      for (const double value : parameter.to(Dtype::f64).template to_vector<double>()) {
        result.parameters[own].push_back(value);
      }
    }
  });
  return result;
}

TEST(PowerSGD, LearnsNearlyWhatUncompressedGradientsDo) {
  const Trained plain = train([](auto&) {});
  const Trained compressed = train([](auto& model) {
    model.register_comm_hook(powerSGD_hook(std::make_shared<PowerSGDState>(
        model.process_group(),
        PowerSGDOptions{.matrix_approximation_rank = 2, .start_powerSGD_iter = 2})));
  });
  EXPECT_EQ(compressed.parameters[0], compressed.parameters[1]) << "the same bits on every rank";
  EXPECT_NE(compressed.parameters[0], plain.parameters[0]);
  EXPECT_LT(plain.losses.back(), 0.1 * plain.losses.front());
  EXPECT_LT(compressed.losses.back(), 0.1 * compressed.losses.front());
}

TEST(PowerSGD, TwoRunsGiveTheSameBits) {
  const auto run = [] {
    return train([](auto& model) {
      model.register_comm_hook(powerSGD_hook(std::make_shared<PowerSGDState>(
          model.process_group(), PowerSGDOptions{.start_powerSGD_iter = 1})));
    });
  };
  EXPECT_EQ(run().parameters, run().parameters);
}

TEST(PowerSGD, HalfPrecisionIsCompressedInSingle) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    Model model{weights_of({{12, 10}}, group.device(), Dtype::f32), group};
    const auto state = std::make_shared<PowerSGDState>(
        group, PowerSGDOptions{.matrix_approximation_rank = 2, .start_powerSGD_iter = 0});
    model.register_comm_hook(ddp_comm_hooks::bf16_compress_wrapper(powerSGD_hook(state)));
    const Tensor gradient = of_rank_two(group).to(Dtype::f32);
    EXPECT_TRUE(
        all_close(reduced(model, {gradient})[0], mean_over_ranks(group, gradient), 0.02, 0.02));
    EXPECT_EQ(state->memory_of(model.module().weights[0]).error.dtype(), Dtype::f32);
  });
}

TEST(PowerSGD, ARankWithoutInputsStillSendsWhatItHasLost) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    Model model{weights_of({{12, 10}}, group.device()), group};
    const auto state = compress(model, {.start_powerSGD_iter = 0});
    const auto own = static_cast<std::size_t>(group.rank());
    const Tensor gradient = varied({12, 10}, own, group.device());
    Tensor sent = zeros_like(gradient);
    model.join([&] {
      for (std::size_t step = 0; step < 1 + 3 * own; ++step) {
        sent = sent + reduced(model, {gradient})[0];
      }
    });
    group.broadcast(sent, 1).wait();
    const Tensor meant = mean_over_ranks(group, gradient * (1.0 + 3 * group.rank()));
    const Tensor error = state->memory_of(model.module().weights[0]).error;
    EXPECT_TRUE(all_close(sent + mean_over_ranks(group, error), meant, 0, 1e-11));
  });
}

// A state of its own, as of a process that has been started again.
StateDict copy_of(const StateDict& dict) {
  StateDict result;
  for (const NamedTensor& each : dict) result.push_back({each.name, each.tensor.clone()});
  return result;
}

Model model_of(const ProcessGroup& group) {
  return Model{weights_of({{12, 10}, {3}, {9, 8}}, group.device()), group};
}

std::vector<Tensor> gradients_of(const ProcessGroup& group, std::size_t step) {
  const std::size_t seed = 100 * step + 10 * static_cast<std::size_t>(group.rank());
  return {varied({12, 10}, seed, group.device()), varied({3}, seed + 1, group.device()),
          varied({9, 8}, seed + 2, group.device())};
}

TEST(PowerSGD, ATrainingThatGoesOnFromItsStateHasTheSameBits) {
  for (const bool warm_start : {true, false}) {
    distributed::run(first_devices(2), [&](const ProcessGroup& group) {
      Model model = model_of(group);
      const auto state = compress(model, {.matrix_approximation_rank = 2,
                                          .start_powerSGD_iter = 1,
                                          .warm_start = warm_start,
                                          .random_seed = 7});
      StateDict saved;
      std::vector<std::vector<Tensor>> expected;
      for (std::size_t step = 0; step < 5; ++step) {
        if (step == 3) saved = copy_of(state->state_dict(model.parameters()));
        expected.push_back(reduced(model, gradients_of(group, step)));
      }
      Model again = model_of(group);
      const auto loaded = compress(again, {});
      EXPECT_EQ(loaded->options().random_seed, 0U);
      // Random numbers are drawn in the order of the buckets, which a first pass makes anew.
      if (!warm_start) (void)reduced(again, gradients_of(group, 9));
      loaded->load_state_dict(saved, again.parameters());
      EXPECT_EQ(loaded->iter(), 3);
      EXPECT_EQ(loaded->options().matrix_approximation_rank, 2);
      EXPECT_EQ(loaded->options().random_seed, 7U);
      for (std::size_t step = 3; step < 5; ++step) {
        const std::vector<Tensor> got = reduced(again, gradients_of(group, step));
        for (std::size_t i = 0; i < got.size(); ++i) {
          EXPECT_EQ(got[i].to_vector<double>(), expected[step][i].to_vector<double>());
        }
      }
      EXPECT_EQ(loaded->compression_stats().numel_after_compression,
                state->compression_stats().numel_after_compression);
    });
  }
}

TEST(PowerSGD, AStateThatDoesNotFitChangesNothing) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    Model model = model_of(group);
    const auto state = compress(model, {.start_powerSGD_iter = 0});
    const auto refuses = [&](const auto& change, const auto&... parts) {
      StateDict dict = copy_of(state->state_dict(model.parameters()));
      change(dict);
      EXPECT_TRUE(
          throws<ModuleError>([&] { state->load_state_dict(dict, model.parameters()); }, parts...));
    };
    (void)reduced(model, gradients_of(group, 0));
    const StateDict before = copy_of(state->state_dict(model.parameters()));
    const auto named = [](StateDict& dict, const char* name) -> Tensor& {
      for (NamedTensor& each : dict) {
        if (each.name == name) return each.tensor;
      }
      throw Error("no such name");
    };
    refuses([](StateDict& dict) { dict.erase(dict.begin()); }, "missing: iter");
    refuses(
        [](StateDict& dict) {
          std::erase_if(dict, [](const NamedTensor& each) { return each.name == "random_state"; });
        },
        "missing: random_state");
    refuses([](StateDict& dict) { dict.push_back({"state.1.q", ones({2})}); }, "state.1");
    refuses(
        [&](StateDict& dict) {
          named(dict, "state.0.error") = ones({10, 12});
        },
        "state.0.error has shape");
    refuses([&](StateDict& dict) { named(dict, "random_state") = ones({3}); },
            "random_state has to be of u8, and is of f32");
    for (const char* name : {"state.0.error", "state.0.random", "state.0.q"}) {
      for (const Dtype dtype : {Dtype::i64, Dtype::boolean, Dtype::f16}) {
        refuses(
            [&](StateDict& dict) {
              Tensor& tensor = named(dict, name);
              tensor = tensor.to(dtype);
            },
            detail::str(name, " has to be of f32 or f64, and is of ", dtype));
      }
    }
    StateDict other = copy_of(before);
    named(other, "random_state").fill_(65);
    EXPECT_TRUE(
        throws<ValueError>([&] { state->load_state_dict(other, model.parameters()); }, "state"));
    named(other = copy_of(before), "min_compression_rate").fill_(-1);
    EXPECT_TRUE(throws<ValueError>([&] { state->load_state_dict(other, model.parameters()); },
                                   "min_compression_rate"));
    named(other = copy_of(before), "matrix_approximation_rank").fill_(-1);
    EXPECT_TRUE(throws<ValueError>([&] { state->load_state_dict(other, model.parameters()); },
                                   "matrix_approximation_rank to be at least 1, got -1"));
    for (const char* name : {"iter", "numel_before_compression", "numel_after_compression"}) {
      named(other = copy_of(before), name).fill_(-5);
      EXPECT_TRUE(throws<ModuleError>([&] { state->load_state_dict(other, model.parameters()); },
                                      std::string(name) + " is negative"));
      named(other = copy_of(before), name).fill_(INT64_MAX);
      EXPECT_TRUE(throws<ModuleError>([&] { state->load_state_dict(other, model.parameters()); },
                                      std::string(name) + " is too large"));
    }
    const StateDict after = state->state_dict(model.parameters());
    ASSERT_EQ(after.size(), before.size());
    for (std::size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(after[i].name, before[i].name);
      EXPECT_EQ(after[i].tensor.to(Dtype::f64).to_vector<double>(),
                before[i].tensor.to(Dtype::f64).to_vector<double>())
          << before[i].name;
    }
  });
}

TEST(PowerSGD, AStateOfAnotherPrecisionGoesOnInThatOfTheGradients) {
  distributed::run(first_devices(2), [](const ProcessGroup& group) {
    Model model = model_of(group);
    const auto state = compress(model, {.start_powerSGD_iter = 0});
    (void)reduced(model, gradients_of(group, 0));
    const StateDict before = copy_of(state->state_dict(model.parameters()));
    const auto next = [&](Dtype dtype) {
      StateDict dict = copy_of(before);
      for (NamedTensor& each : dict) {
        if (each.name.starts_with("state.")) each.tensor = each.tensor.to(dtype);
      }
      state->load_state_dict(dict, model.parameters());
      (void)reduced(model, gradients_of(group, 1));
      return state->state_dict(model.parameters());
    };
    const StateDict same = next(before.back().tensor.dtype());
    for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
      const StateDict other = next(dtype);
      ASSERT_EQ(other.size(), same.size());
      for (std::size_t i = 0; i < same.size(); ++i) {
        EXPECT_EQ(other[i].tensor.dtype(), same[i].tensor.dtype()) << same[i].name;
        EXPECT_TRUE(
            all_close(other[i].tensor.to(Dtype::f64), same[i].tensor.to(Dtype::f64), 1e-4, 1e-5))
            << same[i].name;
      }
    }
  });
}

TEST(PowerSGD, NumbersThatMakeNoSenseAreRefused) {
  const auto refuses = [](const PowerSGDOptions& options, const char* name) {
    EXPECT_TRUE(throws<ValueError>([&] { PowerSGDState({}, options); }, name, "at least"));
  };
  refuses({.matrix_approximation_rank = 0}, "matrix_approximation_rank");
  refuses({.start_powerSGD_iter = -1}, "start_powerSGD_iter");
  refuses({.min_compression_rate = std::nan("")}, "min_compression_rate");
  refuses({.orthogonalization_epsilon = -1}, "orthogonalization_epsilon");
  EXPECT_TRUE(throws<ValueError>([] { (void)powerSGD_hook(nullptr); }, "null"));
}

}  // namespace distributed_powersgd_test
}  // namespace lockstep
