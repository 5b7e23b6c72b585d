// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine/thread_state.hpp>

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/inference_mode.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/ops/loss.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/parallel/parallel_apply.hpp>
#include <lockstep/parallel/replicate.hpp>
#include <lockstep/tensor/random.hpp>

#include "parallel/layers.hpp"
#include "support/devices.hpp"
#include "support/expect_error.hpp"
#include "support/varied.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace ls = lockstep;
using ls::testing::f64;
using ls::testing::first_devices;
using ls::testing::L0;
using ls::testing::throws;
using ls::testing::x5;
using ls::testing::y5;

namespace thread_state_test {

using Values = std::vector<double>;

// All that a thread may have set, as it sees it.
struct Seen {
  bool grad = ls::is_grad_enabled();
  bool inference = ls::is_inference_mode_enabled();
  bool autocast = ls::is_autocast_enabled();
  ls::Dtype dtype = ls::autocast_dtype();
  ls::Stream stream = ls::current_stream("cpu:1");
  friend bool operator==(const Seen&, const Seen&) = default;
};

struct Sees {
  Seen forward(int) const { return {}; }
};

std::vector<Seen> seen_by_replicas() {
  std::vector<Sees> modules(4);
  return ls::parallel_apply(modules, std::vector<int>(4));
}

TEST(ThreadState, P09ReplicasSeeAutocastAndItsDtype) {
  {
    const ls::AutocastGuard guard(ls::Dtype::f16);
    for (const Seen& seen : seen_by_replicas()) {
      EXPECT_TRUE(seen.autocast);
      EXPECT_EQ(seen.dtype, ls::Dtype::f16);
    }
    const ls::AutocastGuard off(false);
    for (const Seen& seen : seen_by_replicas()) EXPECT_FALSE(seen.autocast);
  }
  for (const Seen& seen : seen_by_replicas()) {
    EXPECT_FALSE(seen.autocast);
    EXPECT_EQ(seen.dtype, ls::Dtype::bf16);
  }
}

TEST(ThreadState, P10ReplicasAreInInferenceMode) {
  {
    const ls::InferenceModeGuard guard;
    for (const Seen& seen : seen_by_replicas()) {
      EXPECT_TRUE(seen.inference);
      EXPECT_FALSE(seen.grad);
    }
  }
  for (const Seen& seen : seen_by_replicas()) {
    EXPECT_FALSE(seen.inference);
    EXPECT_TRUE(seen.grad);
  }
}

TEST(ThreadState, P10OutputsOfReplicasAreInferenceTensors) {
  const auto devices = first_devices(4);
  L0 module;
  for (const ls::NamedParameter& named : ls::named_parameters(module)) {
    named.tensor.set_data(named.tensor.to(devices[0]));
  }
  std::vector<ls::Tensor> inputs;
  for (const ls::Device device : devices) inputs.push_back(x5().to(device));
  const auto outputs = [&] {
    std::vector<L0> replicas = ls::replicate(module, devices);
    return ls::parallel_apply(replicas, inputs);
  };
  {
    const ls::InferenceModeGuard guard;
    for (const ls::Tensor& output : outputs()) {
      EXPECT_TRUE(output.is_inference());
      EXPECT_EQ(output.to_vector<double>(), y5());
    }
  }
  for (const ls::Tensor& output : outputs()) {
    EXPECT_FALSE(output.is_inference());
    EXPECT_TRUE(output.requires_grad());
  }
}

// What two other libraries keep for each thread.
template <int library>
thread_local int foreign_mode = 0;

template <int library>
struct ForeignScope {
  explicit ForeignScope(int mode) : before(foreign_mode<library>) { foreign_mode<library> = mode; }
  ForeignScope(const ForeignScope&) = delete;
  ForeignScope& operator=(const ForeignScope&) = delete;
  ~ForeignScope() { foreign_mode<library> = before; }
  const int before;
};

template <int library>
ls::detail::ForeignThreadState foreign_state(
    []() -> ls::detail::ForeignThreadState::Handle {
      return std::make_shared<int>(foreign_mode<library>);
    },
    [](const ls::detail::ForeignThreadState::Handle& mode)
        -> ls::detail::ForeignThreadState::Handle {
      return std::make_shared<ForeignScope<library>>(*static_cast<const int*>(mode.get()));
    });
template ls::detail::ForeignThreadState foreign_state<0>;
template ls::detail::ForeignThreadState foreign_state<1>;

struct SeesForeign {
  int forward(int) const { return 10 * foreign_mode<0> + foreign_mode<1>; }
};

TEST(ThreadState, ThatOfOtherLibrariesGoesAlong) {
  const auto seen = [] {
    std::vector<SeesForeign> modules(4);
    return ls::parallel_apply(modules, std::vector<int>(4));
  };
  EXPECT_EQ(seen(), std::vector<int>(4, 0));
  foreign_mode<0> = 3;
  foreign_mode<1> = 4;
  EXPECT_EQ(seen(), std::vector<int>(4, 34));
  const ls::detail::ThreadState state = ls::detail::ThreadState::capture();
  foreign_mode<0> = foreign_mode<1> = 0;
  {
    const ls::detail::ThreadState::Scope scope(state);
    EXPECT_EQ(SeesForeign().forward(0), 34);
  }
  EXPECT_EQ(SeesForeign().forward(0), 0);
  EXPECT_EQ(seen(), std::vector<int>(4, 0));
}

TEST(ThreadState, TheScopeSetsEverythingAndPutsItBack) {
  std::optional<ls::detail::ThreadState> state;
  std::optional<Seen> expected;
  std::thread([&] {
    const ls::InferenceModeGuard inference;
    const ls::GradModeGuard grad(true);
    const ls::AutocastGuard autocast(ls::Dtype::f16);
    const ls::StreamGuard stream(ls::pool_stream("cpu:1"));
    expected.emplace();
    state = ls::detail::ThreadState::capture();
  }).join();
  const Seen before;
  {
    const ls::detail::ThreadState::Scope scope(*state);
    EXPECT_EQ(Seen(), *expected);
  }
  EXPECT_EQ(Seen(), before);
  EXPECT_NE(before, *expected);
}

TEST(ThreadState, AWorkerKeepsNothingOfAReplicaThatThrew) {
  struct Throws {
    int forward(int i) const {
      const ls::AutocastGuard guard(ls::Dtype::f16);
      if (i > 0) throw ls::ValueError("as asked");
      return i;
    }
  };
  {
    std::vector<Throws> modules(4);
    const ls::InferenceModeGuard guard;
    EXPECT_TRUE(throws<ls::ValueError>(
        [&] {
          ls::parallel_apply(modules, std::vector<int>{0, 1, 2, 3});
        },
        "as asked"));
  }
  for (const Seen& seen : seen_by_replicas()) EXPECT_EQ(seen, Seen());
}

struct Net {
  ls::nn::Linear fc1{4, 8};
  ls::nn::Linear fc2{8, 3};
  ls::Tensor forward(const ls::Tensor& x) const { return fc2(ls::relu(fc1(x))); }
};

TEST(ThreadState, P09AModelOnSeveralDevicesComputesInTheDtypeOfAutocast) {
  const ls::Tensor x = ls::testing::varied<float>({8, 4}, 0, ls::Device());
  const ls::Tensor labels = ls::tensor<std::int64_t>({0, 1, 2, 0, 1, 2, 0, 1}, "cpu:0");
  Net net;
  ls::to(net, ls::Device("cpu:0"));
  const auto gradients = [&](std::size_t count) {
    ls::zero_grad(net);
    ls::DataParallel model{net, first_devices(count)};  // shares the parameters
    ls::Tensor loss;
    {
      const ls::AutocastGuard guard(ls::Dtype::f16);
      const ls::Tensor out = model(x);
      EXPECT_EQ(out.dtype(), ls::Dtype::f16);
      loss = ls::cross_entropy(out, labels);
    }
    loss.backward();
    std::vector<ls::Tensor> grads;
    for (const ls::Parameter& parameter : model.parameters()) {
      EXPECT_EQ(parameter.dtype(), ls::Dtype::f32);
      grads.push_back(parameter.grad());
    }
    return grads;
  };
  const std::vector<ls::Tensor> one = gradients(1);
  for (const std::size_t count : {2U, 4U}) {
    const std::vector<ls::Tensor> several = gradients(count);
    for (std::size_t i = 0; i < one.size(); ++i) {
      EXPECT_EQ(several[i].dtype(), ls::Dtype::f32);
      EXPECT_TRUE(ls::testing::all_close(several[i], one[i], 0.01, 1e-3));
    }
  }
}

TEST(ThreadState, TheRandomNumbersOfARankGoAlongAndDoNotStay) {
  const auto numbers = ls::detail::copy_random_numbers();
  ls::detail::random_override() = numbers;
  const ls::detail::ThreadState state = ls::detail::ThreadState::capture();
  ls::detail::random_override() = nullptr;
  for (int time = 0; time < 2; ++time) {
    {
      const ls::detail::ThreadState::Scope scope(state);
      EXPECT_EQ(ls::detail::random_override(), numbers);
    }
    EXPECT_EQ(ls::detail::random_override(), nullptr);
  }
}

// What a model keeps from call to call must not be what the first call's mode would make of it.
TEST(ThreadState, AModelUsedInInferenceModeFirstIsTrainedAfterwards) {
  for (const std::size_t count : {2U, 4U}) {
    std::optional<ls::DataParallel<L0>> model;
    {
      L0 module;
      const ls::InferenceModeGuard guard;
      model.emplace(std::move(module), first_devices(count));  // which moves the parameters
      const ls::Tensor y = (*model)(x5());
      EXPECT_EQ(y.to_vector<double>(), y5());
      EXPECT_TRUE(y.is_inference());
      for (const ls::Parameter& parameter : model->parameters()) {
        EXPECT_FALSE(parameter.is_inference());
      }
    }
    ls::optim::SGD sgd{model->parameters(), {.lr = 0.5, .momentum = 0.5}};
    const auto step = [&] {
      sgd.zero_grad();
      (*model)(x5()).sum().backward();
      EXPECT_EQ(model->module().weight.grad().to_vector<double>(), (Values{3, 3, 3, 3}));
      EXPECT_EQ(model->module().bias.grad().to_vector<double>(), (Values{5, 5}));
      EXPECT_FALSE(model->module().bias.grad().is_inference());
    };
    step();
    {
      const ls::InferenceModeGuard guard;
      sgd.step();  // makes the momentum
      EXPECT_TRUE((*model)(x5()).is_inference());
    }
    EXPECT_EQ(model->module().bias.to_vector<double>(), (Values{-2, -3}));
    step();
    sgd.step();
    EXPECT_EQ(model->module().bias.to_vector<double>(), (Values{-5.75, -6.75}));
  }
}

}  // namespace thread_state_test
