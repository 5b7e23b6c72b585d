// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/clone.hpp>
#include <lockstep/module/parameters.hpp>

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "module/layers.hpp"

namespace lockstep {
namespace clone_test {

using testing::Names;
using testing::Norm;
using testing::Scale;

struct Net {
  Scale plain;
  std::shared_ptr<Scale> encoder = std::make_shared<Scale>();
  std::shared_ptr<Scale> decoder = encoder;
  std::map<std::string, std::vector<std::shared_ptr<Norm>>> norms;
  std::shared_ptr<std::mutex> mutex = std::make_shared<std::mutex>();
  float temperature = 1;

  Tensor forward(const Tensor& x) { return x; }
};

TEST(CloneStructure, SharedModulesGetObjectsOfTheirOwn) {
  Net net;
  net.temperature = 2;
  net.norms["a"].push_back(std::make_shared<Norm>(0.1F));
  const Net copy = clone_structure(net);
  EXPECT_NE(copy.encoder, net.encoder);
  EXPECT_NE(copy.norms.at("a")[0], net.norms["a"][0]);
  EXPECT_EQ(copy.temperature, 2);
  EXPECT_EQ(net.encoder.use_count(), 2);
  EXPECT_EQ(net.norms["a"][0].use_count(), 1);
}

TEST(CloneStructure, TiedModulesStayTiedWithinTheCopy) {
  const Net net;
  const Net copy = clone_structure(net);
  EXPECT_EQ(copy.encoder, copy.decoder);
  EXPECT_EQ(copy.encoder.use_count(), 2);
}

TEST(CloneStructure, TensorsAndWhatIsNoModuleAreShared) {
  const Net net;
  const Net copy = clone_structure(net);
  EXPECT_TRUE(copy.plain.weight.is_same(net.plain.weight));
  EXPECT_TRUE(copy.encoder->weight.is_same(net.encoder->weight));
  EXPECT_EQ(copy.mutex, net.mutex);
}

struct Chain {
  Parameter weight = testing::parameter({1});
  std::shared_ptr<Chain> next;
  std::shared_ptr<const Scale> constant = std::make_shared<Scale>();
  std::shared_ptr<std::vector<std::shared_ptr<Norm>>> list;
};

TEST(CloneStructure, PointersWithinSharedObjectsAreFollowed) {
  Chain chain;
  chain.next = std::make_shared<Chain>();
  chain.next->next = std::make_shared<Chain>();
  chain.list = std::make_shared<std::vector<std::shared_ptr<Norm>>>();
  chain.list->push_back(std::make_shared<Norm>(0.1F));
  const Chain copy = clone_structure(chain);
  EXPECT_NE(copy.next, chain.next);
  EXPECT_NE(copy.next->next, chain.next->next);
  EXPECT_NE(copy.constant, chain.constant);
  EXPECT_NE(copy.list, chain.list);
  EXPECT_NE(copy.list->at(0), chain.list->at(0));
}

TEST(CloneStructure, ACycleIsClonedAsACycle) {
  Chain chain;
  chain.next = std::make_shared<Chain>();
  chain.next->next = chain.next;
  const Chain copy = clone_structure(chain);
  EXPECT_NE(copy.next, chain.next);
  EXPECT_EQ(copy.next->next, copy.next);
  chain.next->next.reset();
  copy.next->next.reset();
}

TEST(Rebind, VisitsEveryHandleOnce) {
  Net net;
  net.norms["a"].push_back(std::make_shared<Norm>(0.1F));
  net.plain.bias = net.encoder->bias;
  Names parameters;
  Names buffers;
  rebind(net, [&]<class Handle>(std::string_view path, Handle&) {
    (std::is_same_v<Handle, Parameter> ? parameters : buffers).emplace_back(path);
  });
  EXPECT_EQ(parameters, (Names{"plain.weight", "plain.bias", "encoder.weight", "encoder.bias",
                               "norms.a.0.weight"}));
  EXPECT_EQ(buffers, (Names{"norms.a.0.running_mean"}));
}

TEST(Rebind, AClonesHandlesAreReplacedWithoutTouchingTheOriginal) {
  Net net;
  net.plain.bias = net.encoder->bias;
  net.decoder.reset();
  Net copy = clone_structure(net);
  std::map<const void*, Tensor> replaced;
  rebind(copy, [&](std::string_view, Tensor& handle) {
    Tensor& tensor = replaced[handle.impl().get()];
    if (!tensor.defined()) tensor = zeros_like(handle);
    handle = tensor;
  });
  EXPECT_EQ(replaced.size(), 3U);
  EXPECT_FALSE(copy.encoder->weight.is_same(net.encoder->weight));
  EXPECT_TRUE(copy.plain.bias.is_same(copy.encoder->bias));
  EXPECT_TRUE(net.plain.bias.is_same(net.encoder->bias));
  EXPECT_EQ(testing::values_of(net.encoder->weight), (std::vector<float>{1, 2}));
  EXPECT_EQ(testing::values_of(copy.encoder->weight), (std::vector<float>{0, 0}));
}

TEST(Rebind, LeavesAbsentHandlesOut) {
  struct WithoutBias {
    Parameter weight = testing::parameter({1});
    Parameter bias;
    std::optional<Buffer> buffer = Buffer();
  } net;
  int calls = 0;
  rebind(net, [&](std::string_view, Tensor&) { ++calls; });
  EXPECT_EQ(calls, 1);
}

}  // namespace clone_test
}  // namespace lockstep
