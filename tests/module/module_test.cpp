// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/module.hpp>
#include <lockstep/ops/inplace.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "module/layers.hpp"

// One module of every form through everything that can be done with a module.
namespace lockstep {
namespace module_test {

using testing::Names;
using testing::names_of;
using testing::Noise;
using testing::Norm;
using testing::Scale;
using testing::values_of;

struct Block {
  Scale conv1;
  Norm norm{0.1F};
  Noise dropout;

  Tensor forward(const Tensor& x) { return dropout.forward(norm(conv1.forward(x))); }
};

template <class Inner>
struct Model {
  std::vector<Inner> blocks{2};
  std::shared_ptr<Scale> embedding = std::make_shared<Scale>();
  std::shared_ptr<Scale> unembedding = embedding;
  Parameter head;
  bool training = true;

  Tensor forward(const Tensor& x) { return detail::forward(blocks[1], x); }
};

TEST(ModuleTest, AModelOfManyFormsIsAModule) {
  static_assert(Module<Model<Block>> && ForwardableWith<Model<Block>, Tensor>);
  Model<Block> model;
  const Tensor x = tensor({1.0F});
  EXPECT_TRUE(detail::forward(model, x).is_same(x));
}

TEST(ModuleTest, ItsNamesAreTorchs) {
  const Model<Block> model;
  const Names expected{"blocks.0.conv1.weight", "blocks.0.conv1.bias", "blocks.0.norm.weight",
                       "blocks.1.conv1.weight", "blocks.1.conv1.bias", "blocks.1.norm.weight",
                       "embedding.weight",      "embedding.bias"};
  EXPECT_EQ(names_of(named_parameters(model)), expected);
  EXPECT_EQ(names_of(named_buffers(model)),
            (Names{"blocks.0.norm.running_mean", "blocks.1.norm.running_mean"}));
}

TEST(ModuleTest, ACloneIsLoadedAndChangesItsModeAlone) {
  const Model<Block> model;
  Model<Block> replica = clone(model);
  for (const Parameter& parameter : parameters(replica)) parameter.detach().zero_();
  EXPECT_EQ(values_of(replica.embedding->weight), (std::vector<float>{0, 0}));
  EXPECT_EQ(replica.embedding, replica.unembedding);
  load_state_dict(replica, state_dict(model));
  EXPECT_EQ(values_of(replica.unembedding->weight), (std::vector<float>{1, 2}));
  EXPECT_FALSE(replica.embedding->weight.is_same(model.embedding->weight));
  eval(replica);
  EXPECT_FALSE(replica.training || replica.blocks[0].dropout.training);
  EXPECT_TRUE(model.training && model.blocks[0].dropout.training);
}

}  // namespace module_test
}  // namespace lockstep
