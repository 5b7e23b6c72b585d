// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/inference_mode.hpp>
#include <lockstep/module/clone.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/memory_format.hpp>
#include <lockstep/tensor/sparse.hpp>

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "module/layers.hpp"
#include "support/expect_error.hpp"

namespace lockstep {
namespace clone_test {

using testing::Names;
using testing::Norm;
using testing::Scale;
using testing::values_of;
using Floats = std::vector<float>;

struct Net {
  Scale plain;
  std::shared_ptr<Scale> encoder = std::make_shared<Scale>();
  std::shared_ptr<Scale> decoder = encoder;
  std::map<std::string, std::vector<std::shared_ptr<Norm>>> norms;
  std::shared_ptr<std::mutex> mutex = std::make_shared<std::mutex>();
  float temperature = 1;

  Tensor forward(const Tensor& x) { return x; }
};

// A copy as replicate makes it, before it puts tensors of its own into it.
template <class M>
M clone_structure(const M& module) {
  M copy = module;
  detail::walk_module(copy, detail::UnsharingVisitor());
  return copy;
}

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

// What all copies are to share, and a struct that contains itself.
struct Notes {
  std::mutex mutex;
  std::vector<std::string> lines;
};
struct Tree {
  std::string name;
  std::vector<Tree> children;
};
struct Noted {
  Scale scale;
  std::shared_ptr<Notes> notes = std::make_shared<Notes>();
  const std::shared_ptr<Notes> same = notes;
  std::shared_ptr<Tree> tree = std::make_shared<Tree>();
  Tensor forward(const Tensor& x) { return scale.forward(x); }
};

TEST(CloneStructure, StructsThatHoldNoPartOfAModuleAreShared) {
  const Noted noted;
  const Noted copy = clone(noted);
  EXPECT_FALSE(copy.scale.weight.is_same(noted.scale.weight));
  EXPECT_EQ(copy.notes, noted.notes);
  EXPECT_EQ(copy.same, noted.notes);
  EXPECT_EQ(copy.tree, noted.tree);
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

TEST(Clone, HasMemoryOfItsOwn) {
  Net net;
  net.norms["a"].push_back(std::make_shared<Norm>(0.1F));
  const Net copy = clone(net);
  ASSERT_EQ(testing::names_of(state_dict(copy)), testing::names_of(state_dict(net)));
  for (const Parameter& parameter : parameters(net)) parameter.detach().mul_(0);
  for (const Buffer& buffer : buffers(net)) buffer.fill_(7);
  EXPECT_EQ(values_of(copy.plain.weight), (Floats{1, 2}));
  EXPECT_EQ(values_of(copy.encoder->weight), (Floats{1, 2}));
  EXPECT_EQ(values_of(copy.norms.at("a")[0]->running_mean()), Floats{0});
}

// Holds its layer behind a pointer, and lists it without the pointer.
class Hidden {
 public:
  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("weight", self.scale_->weight);
  }
  Tensor forward(const Tensor& x) { return scale_->forward(x); }

 private:
  std::shared_ptr<Scale> scale_ = std::make_shared<Scale>();
};

TEST(Clone, AHookThatListsWhatAPointerPointsToIsRefusedAndLosesNothing) {
  const Hidden module;
  const Parameter weight = parameters(module)[0];
  EXPECT_TRUE(testing::throws<ModuleError>([&] { (void)clone(module); }, "\"weight\"",
                                           "visit_members lists a pointer itself"));
  EXPECT_TRUE(parameters(module)[0].is_same(weight));
}

TEST(Clone, KeepsWhatIsTiedTied) {
  Net net;
  net.plain.bias = net.encoder->bias;
  net.encoder->weight =
      Parameter(net.plain.weight.detach());  // another variable on the same memory
  const Net copy = clone(net);
  EXPECT_EQ(copy.encoder, copy.decoder);
  EXPECT_TRUE(copy.plain.bias.is_same(copy.encoder->bias));
  EXPECT_FALSE(copy.encoder->weight.is_same(copy.plain.weight));
  copy.plain.weight.detach().mul_(3);
  EXPECT_EQ(values_of(copy.encoder->weight), (Floats{3, 6}));
  EXPECT_EQ(values_of(net.plain.weight), (Floats{1, 2}));
}

TEST(Clone, OfPartsOfOneMemoryHasEachPart) {
  const Tensor both = testing::parameter({1, 2, 3, 4}).detach();
  Scale halves;
  halves.weight = Parameter(both.narrow(0, 0, 2));
  halves.bias = Parameter(both.narrow(0, 2, 2));
  const Scale copy = clone(halves);
  both.zero_();
  EXPECT_EQ(values_of(copy.weight), (Floats{1, 2}));
  EXPECT_EQ(values_of(copy.bias), (Floats{3, 4}));
}

// Its hook gives one parameter two names.
struct WithTwoNames {
  Parameter weight = testing::parameter({1, 2});
  Parameter tied = weight;
  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("encoder", self.weight);
    visit("decoder", self.weight);
    visit("tied", self.tied);
  }
};

TEST(Clone, KeepsTiedWhatHasTwoNames) {
  const WithTwoNames original;
  const WithTwoNames copy = clone(original);
  EXPECT_FALSE(copy.weight.is_same(original.weight));
  EXPECT_TRUE(copy.weight.is_same(copy.tied));
}

TEST(Clone, KeepsRequiresGradAndLeavesGradientsBehind) {
  Scale scale;
  scale.bias.requires_grad_(false);
  expect_sparse_gradient(scale.weight);
  scale.weight.set_grad(ones_like(scale.weight));
  const Scale copy = clone(scale);
  EXPECT_TRUE(copy.weight.requires_grad());
  EXPECT_TRUE(copy.weight.is_leaf());
  EXPECT_TRUE(expects_sparse_gradient(copy.weight));
  EXPECT_FALSE(copy.weight.grad().defined());
  EXPECT_FALSE(copy.bias.requires_grad());
  EXPECT_TRUE(scale.weight.grad().defined());
}

TEST(Clone, IsWhereTheOriginalIs) {
  Scale scale;
  to(scale, "cpu:1");
  const Scale copy = clone(scale);
  EXPECT_EQ(copy.weight.device(), Device("cpu:1"));
  EXPECT_EQ(copy.weight.to_vector<float>(), (Floats{1, 2}));
}

TEST(Clone, KeepsWhatIsAbsentOrHasNoShape) {
  struct Lazy {
    Parameter weight = Parameter::uninitialized({.dtype = Dtype::f64, .device = "cpu:1"});
    Parameter tied = weight;
    Parameter bias;
    Buffer buffer;
  } lazy;
  const Lazy copy = clone(lazy);
  copy.weight.materialize({2});
  EXPECT_FALSE(copy.tied.is_uninitialized());
  EXPECT_EQ(copy.tied.device(), Device("cpu:1"));
  EXPECT_EQ(copy.tied.dtype(), Dtype::f64);
  EXPECT_TRUE(copy.tied.requires_grad());
  EXPECT_TRUE(lazy.weight.is_uninitialized());
  EXPECT_FALSE(copy.bias.defined());
  EXPECT_FALSE(copy.buffer.defined());
}

TEST(Clone, KeepsTheLayoutOfImages) {
  struct Kernel {
    Parameter weight = Parameter(from_values(Floats{1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 2, 2})
                                     .contiguous(MemoryFormat::channels_last));
  } kernel;
  const Kernel copy = clone(kernel);
  EXPECT_FALSE(copy.weight.is_contiguous());
  EXPECT_TRUE(copy.weight.is_contiguous(MemoryFormat::channels_last));
  EXPECT_EQ(copy.weight.to_vector<float>(), kernel.weight.to_vector<float>());
}

TEST(Clone, CanBeTrainedIfMadeInInferenceMode) {
  const Scale scale;
  const Scale copy = [&] {
    const InferenceModeGuard guard;
    return clone(scale);
  }();
  EXPECT_FALSE(copy.weight.is_inference());
  EXPECT_TRUE(copy.weight.requires_grad());
}

TEST(Clone, OfAStateDictDoesNotFollowTraining) {
  Net net;
  net.plain.bias = net.encoder->bias;
  const StateDict kept = state_dict(net);
  const StateDict best = clone(kept);
  ASSERT_EQ(testing::names_of(best), testing::names_of(kept));
  for (const Parameter& parameter : parameters(net)) parameter.detach().mul_(2);
  EXPECT_EQ(values_of(net.plain.bias), Floats{6});
  for (std::size_t i = 0; i < best.size(); ++i) {
    EXPECT_EQ(values_of(best[i].tensor), i % 2 == 0 ? (Floats{1, 2}) : Floats{3}) << best[i].name;
    EXPECT_EQ(values_of(kept[i].tensor), i % 2 == 0 ? (Floats{2, 4}) : Floats{6});
  }
  EXPECT_EQ(best[1].tensor.impl()->storage, best[3].tensor.impl()->storage) << "tied in memory";
  load_state_dict(net, best);
  EXPECT_EQ(values_of(net.plain.bias), Floats{3});
}

TEST(Clone, OfAStateDictKeepsWhatASparseTensorLists) {
  const Tensor rows = from_values<std::int64_t>({3, 1, 3}, {1, 3});
  const Tensor twice = sparse_coo_tensor(rows, ones({3, 1}), {4, 1});
  const StateDict copy = clone({{"twice", twice}, {"once", twice.coalesce()}});
  EXPECT_FALSE(copy[0].tensor.is_coalesced());
  EXPECT_TRUE(copy[1].tensor.is_coalesced());
  EXPECT_EQ(values_of(copy[1].tensor.to_dense()), (Floats{0, 1, 0, 2}));
}

}  // namespace clone_test
}  // namespace lockstep
