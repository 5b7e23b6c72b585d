// SPDX-License-Identifier: Apache-2.0

#include <lockstep/lockstep.hpp>
#include <support/devices.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace ls = lockstep;

// A program whose own functions have the names of the library's. Were one of the library's calls to
// look for its function beside the program's types, it would find one of these, and not compile.
namespace own_program {

struct Input {
  ls::Tensor x;
};
struct Output {
  ls::Tensor y;
};
struct Net {
  ls::nn::Linear layer{2, 2};
  ls::nn::Dropout dropout{0.5};
  ls::Buffer count{ls::zeros({1})};
  Output forward(const Input& input) { return {dropout(layer(input.x))}; }
};
struct Loss {
  ls::Tensor forward(const Output& output, const Input& target) const {
    return ls::mse_loss(output.y, target.x);
  }
};
struct Sample {
  ls::Tensor x;
};
struct Images {
  std::int64_t size() const { return 4; }
  Sample get(std::int64_t /*index*/) const { return {ls::ones({2})}; }
};

#define LOCKSTEP_TAKEN(name)                                   \
  template <class... Args>                                     \
  void name(Loss&, Args&&...) = delete;                        \
  template <class... Args>                                     \
  void name(const Loss&, Args&&...) = delete;                  \
  template <class... Args>                                     \
  void name(std::vector<Loss>&, Args&&...) = delete;           \
  template <class... Args>                                     \
  void name(const ls::Scattered<Input>&, Args&&...) = delete;  \
  template <class... Args>                                     \
  void name(const ls::Scattered<Output>&, Args&&...) = delete; \
  template <class... Args>                                     \
  void name(Net&, Args&&...) = delete;                         \
  template <class... Args>                                     \
  void name(const Net&, Args&&...) = delete;                   \
  template <class... Args>                                     \
  void name(const Input&, Args&&...) = delete;                 \
  template <class... Args>                                     \
  void name(const Output&, Args&&...) = delete;                \
  template <class... Args>                                     \
  void name(const Sample&, Args&&...) = delete;                \
  template <class... Args>                                     \
  void name(const Images&, Args&&...) = delete;                \
  template <class... Args>                                     \
  void name(const std::vector<Net>&, Args&&...) = delete;      \
  template <class... Args>                                     \
  void name(std::vector<Net>&, Args&&...) = delete;            \
  template <class... Args>                                     \
  void name(const std::vector<Output>&, Args&&...) = delete;   \
  template <class... Args>                                     \
  void name(const std::vector<Sample>&, Args&&...) = delete

LOCKSTEP_TAKEN(apply);
LOCKSTEP_TAKEN(backward);
LOCKSTEP_TAKEN(buffers);
LOCKSTEP_TAKEN(call);
LOCKSTEP_TAKEN(check);
LOCKSTEP_TAKEN(clone);
LOCKSTEP_TAKEN(collate);
LOCKSTEP_TAKEN(copy);
LOCKSTEP_TAKEN(data_parallel);
LOCKSTEP_TAKEN(eval);
LOCKSTEP_TAKEN(flatten);
LOCKSTEP_TAKEN(forward);
LOCKSTEP_TAKEN(gather);
LOCKSTEP_TAKEN(init);
LOCKSTEP_TAKEN(load);
LOCKSTEP_TAKEN(load_state_dict);
LOCKSTEP_TAKEN(loss);
LOCKSTEP_TAKEN(merge);
LOCKSTEP_TAKEN(named_buffers);
LOCKSTEP_TAKEN(named_parameters);
LOCKSTEP_TAKEN(parallel_apply);
LOCKSTEP_TAKEN(parameters);
LOCKSTEP_TAKEN(print);
LOCKSTEP_TAKEN(record);
LOCKSTEP_TAKEN(replicate);
LOCKSTEP_TAKEN(reset);
LOCKSTEP_TAKEN(run);
LOCKSTEP_TAKEN(save);
LOCKSTEP_TAKEN(scatter);
LOCKSTEP_TAKEN(set_grad);
LOCKSTEP_TAKEN(split);
LOCKSTEP_TAKEN(state_dict);
LOCKSTEP_TAKEN(step);
LOCKSTEP_TAKEN(to);
LOCKSTEP_TAKEN(train);
LOCKSTEP_TAKEN(visit);
LOCKSTEP_TAKEN(walk);
LOCKSTEP_TAKEN(zero_grad);

}  // namespace own_program

namespace {

using ls::testing::first_devices;

using own_program::Input;
using own_program::Net;
using own_program::Output;

TEST(Lookup, AModulesFunctionsAreTheLibrarys) {
  Net net;
  ls::eval(net);
  EXPECT_FALSE(net.dropout.training);
  ls::train(net);
  ls::zero_grad(net);
  ls::load_state_dict(net, ls::state_dict(net));
  Net copy = ls::clone(net);
  ls::to(copy, first_devices(1)[0]);
  EXPECT_EQ(ls::parameters(copy).size() + ls::buffers(copy).size(), 3U);
  EXPECT_EQ(ls::named_parameters(copy).size() + ls::named_buffers(copy).size(), 3U);
}

TEST(Lookup, TheFourPrimitivesCallTheLibrarysFunctions) {
  const std::vector<ls::Device> devices = first_devices(2);
  Net net;
  ls::to(net, devices[0]);
  auto inputs = ls::scatter(Input{ls::ones({4, 2})}, devices);
  auto replicas = ls::replicate(net, devices);
  const auto outputs = ls::parallel_apply(replicas, inputs);
  EXPECT_EQ(ls::gather(outputs, devices[0]).y.sizes(), (ls::Shape{4, 2}));
}

TEST(Lookup, WrappedModulesCallTheLibrarysFunctions) {
  const std::vector<ls::Device> devices = first_devices(2);
  ls::DataParallel model{Net(), devices, {.buffers = ls::ReplicaBuffers::merged}};
  model.eval();
  EXPECT_FALSE(model.module().dropout.training);
  EXPECT_EQ(model(Input{ls::ones({4, 2})}).y.sizes(), (ls::Shape{4, 2}));
  EXPECT_EQ(ls::data_parallel(model.module(), Input{ls::ones({4, 2})}, devices).y.sizes(),
            (ls::Shape{4, 2}));
  ls::distributed::run(devices, [](ls::distributed::ProcessGroup group) {
    ls::DistributedDataParallel ranked{Net(), std::move(group)};
    EXPECT_EQ(ranked(Input{ls::ones({4, 2})}).y.sizes(), (ls::Shape{4, 2}));
  });
}

TEST(Lookup, CriteriaAndShorterFormsCallTheLibrarysFunctions) {
  const std::vector<ls::Device> devices = first_devices(2);
  ls::DataParallelModel model{Net(), devices};
  ls::DataParallelCriterion criterion{own_program::Loss()};
  EXPECT_EQ(criterion(model(Input{ls::ones({4, 2})}), Input{ls::zeros({4, 2})}).dim(), 0);
  const auto outputs = model(Input{ls::ones({4, 2})});
  EXPECT_EQ(ls::gather(outputs, devices[0]).y.sizes(), (ls::Shape{4, 2}));
  EXPECT_EQ(ls::data_parallel(model.module(), Input{ls::ones({4, 2})}, devices, devices[0]).y.dim(),
            2);
}

TEST(Lookup, LoadersCallTheLibrarysFunctions) {
  ls::data::DataLoader loader{own_program::Images(), {.batch_size = 2, .num_workers = 1}};
  std::size_t batches = 0;
  for (const auto& batch : loader) {
    EXPECT_EQ(batch.x.sizes(), (ls::Shape{2, 2}));
    ++batches;
  }
  EXPECT_EQ(batches, 2U);
}

// What is in detail has namesakes of the public functions, and these layers have bases there.
template <class Layer>
void expect_replicas(Layer layer) {
  using namespace lockstep;
  to(layer, first_devices(1)[0]);
  auto replicas = replicate(layer, first_devices(2));
  static_assert(std::is_same_v<decltype(replicas), std::vector<Layer>>);
  EXPECT_EQ(replicas.size(), 2U);
}

TEST(Lookup, UnqualifiedCallsWithTheLibrarysLayersFindThePublicFunctions) {
  expect_replicas(ls::nn::Sequential(ls::nn::Linear{2, 2}, ls::nn::BatchNorm1d{2}));
  expect_replicas(ls::nn::BatchNorm2d{2});
  expect_replicas(ls::nn::LSTM{2, 2});
}

}  // namespace
