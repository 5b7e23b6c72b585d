// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/clone.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/module/walk/walk.hpp>

#include <gtest/gtest.h>

#include <any>
#include <array>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "module/layers.hpp"

namespace lockstep {
namespace walk_test {

using testing::Names;
using testing::names_of;
using testing::Noise;
using testing::Norm;
using testing::Scale;

struct Block {
  Scale conv1;
  Norm norm{0.1F};
};

TEST(Walk, NamesAreJoinedWithDots) {
  struct Net {
    Block first;
    Parameter scale = testing::parameter({1});
    Scale last;
  } net;
  EXPECT_EQ(names_of(named_parameters(net)),
            (Names{"first.conv1.weight", "first.conv1.bias", "first.norm.weight", "scale",
                   "last.weight", "last.bias"}));
  EXPECT_EQ(names_of(named_buffers(net)), (Names{"first.norm.running_mean"}));
}

TEST(Walk, ElementsOfSequencesAreNumbered) {
  struct Net {
    std::vector<Scale> layers{2};
    std::array<Parameter, 2> pair{testing::parameter({1}), testing::parameter({1})};
    Norm norms[2] = {Norm(0.1F), Norm(0.1F)};
    std::deque<std::vector<Norm>> nested{{Norm(0.1F)}};
    std::vector<Block> blocks{3};
  } net;
  EXPECT_EQ(names_of(named_parameters(net)),
            (Names{"layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias", "pair.0",
                   "pair.1", "norms.0.weight", "norms.1.weight", "nested.0.0.weight",
                   "blocks.0.conv1.weight", "blocks.0.conv1.bias", "blocks.0.norm.weight",
                   "blocks.1.conv1.weight", "blocks.1.conv1.bias", "blocks.1.norm.weight",
                   "blocks.2.conv1.weight", "blocks.2.conv1.bias", "blocks.2.norm.weight"}));
}

TEST(Walk, TuplesAndPairsAreNumbered) {
  std::tuple<Norm, int, std::pair<std::string, Norm>> net{Norm(0.1F), 3, {"text", Norm(0.1F)}};
  EXPECT_EQ(names_of(named_parameters(net)), (Names{"0.weight", "2.1.weight"}));
}

TEST(Walk, KeysOfMapsAreNamesInTheOrderOfTheKeys) {
  struct Net {
    std::map<std::string, Norm> ordered{{"b", Norm(0.1F)}, {"a", Norm(0.1F)}};
    std::unordered_map<std::string, Norm> hashed;
    std::map<int, Norm> numbered{{10, Norm(0.1F)}, {9, Norm(0.1F)}};
  } net;
  for (const char* key : {"e", "c", "a", "d", "b"}) net.hashed.emplace(key, Norm(0.1F));
  EXPECT_EQ(names_of(named_parameters(net)),
            (Names{"ordered.a.weight", "ordered.b.weight", "hashed.a.weight", "hashed.b.weight",
                   "hashed.c.weight", "hashed.d.weight", "hashed.e.weight", "numbered.9.weight",
                   "numbered.10.weight"}));
}

TEST(Walk, AKeyThatCannotBePartOfANameIsAnError) {
  std::map<std::string, Norm> dotted{{"a.b", Norm(0.1F)}};
  EXPECT_THROW(named_parameters(dotted), ModuleError);
  std::map<std::string, Norm> empty{{"", Norm(0.1F)}};
  EXPECT_THROW(named_parameters(empty), ModuleError);
}

TEST(Walk, PointersOptionalsAndVariantsAddNothingToTheName) {
  struct Net {
    std::unique_ptr<Norm> unique = std::make_unique<Norm>(0.1F);
    std::shared_ptr<Norm> shared = std::make_shared<Norm>(0.1F);
    std::optional<Norm> optional = Norm(0.1F);
    std::variant<int, Norm> variant = Norm(0.1F);
    std::shared_ptr<std::vector<Norm>> list = std::make_shared<std::vector<Norm>>(1, Norm(0.1F));
    std::shared_ptr<Parameter> parameter = std::make_shared<Parameter>(testing::parameter({1}));
  } net;
  EXPECT_EQ(names_of(named_parameters(net)),
            (Names{"unique.weight", "shared.weight", "optional.weight", "variant.weight",
                   "list.0.weight", "parameter"}));
}

TEST(Walk, WhatIsAbsentIsLeftOut) {
  struct Net {
    std::unique_ptr<Norm> unique;
    std::shared_ptr<Norm> shared;
    std::optional<Norm> optional;
    std::variant<int, Norm> variant;
    std::vector<Norm> list;
    Parameter parameter;
    Buffer buffer;
  } net;
  EXPECT_TRUE(named_parameters(net).empty());
  EXPECT_TRUE(named_buffers(net).empty());
}

TEST(Walk, AStructWithoutForwardStillHasParameters) {
  struct Heads {
    Scale left, right;
  };
  struct Net {
    Heads heads;
    std::string name = "net";
  } net;
  EXPECT_EQ(names_of(named_parameters(net)), (Names{"heads.left.weight", "heads.left.bias",
                                                    "heads.right.weight", "heads.right.bias"}));
}

TEST(Walk, PlainMembersAreNoParameters) {
  struct Point {
    double x, y;
  };
  struct Net {
    int number = 3;
    std::string text = "text";
    std::vector<int> numbers{1, 2};
    std::vector<Point> points{{1, 2}};
    std::vector<bool> bits{true};
    std::map<std::string, std::string> table{{"not a.name", "value"}};
    std::filesystem::path path = "path";
    std::mt19937 generator;
    std::normal_distribution<float> distribution;
    std::function<Tensor(Tensor)> activation;
    std::any any;
    std::shared_ptr<std::mutex> mutex;
    std::weak_ptr<Scale> weak;
    std::vector<std::reference_wrapper<const Point>> lent;
    const Point* raw = nullptr;
    struct Later* later = nullptr;
    Tensor attribute = tensor({1.0F});
    std::vector<Tensor> attributes{tensor({1.0F})};
    char small[100] = {};
    Parameter weight = testing::parameter({1});
  } net;
  EXPECT_EQ(names_of(named_parameters(net)), (Names{"weight"}));
  EXPECT_TRUE(named_buffers(net).empty());
}

TEST(Walk, AModuleWithoutMembersHasNoParameters) {
  struct Identity {
    Tensor forward(const Tensor& x) { return x; }
  } identity;
  EXPECT_TRUE(named_parameters(identity).empty());
  EXPECT_TRUE(named_parameters([](const Tensor& x) { return x; }).empty());
}

TEST(Walk, ATemplateIsWalkedLikeAnyModule) {
  const auto net = [] {
    return std::pair<std::vector<std::shared_ptr<Norm>>, Norm>{{std::make_shared<Norm>(0.1F)},
                                                               Norm(0.1F)};
  }();
  EXPECT_EQ(names_of(named_parameters(net)), (Names{"0.0.weight", "1.weight"}));
}

struct Chain {
  Parameter weight = testing::parameter({1});
  std::shared_ptr<Chain> next;
  std::vector<Chain> children;
};

TEST(Walk, TypesThatContainThemselvesEndWithTheirObjects) {
  Chain chain;
  chain.next = std::make_shared<Chain>();
  chain.children.resize(2);
  EXPECT_EQ(names_of(named_parameters(chain)),
            (Names{"weight", "next.weight", "children.0.weight", "children.1.weight"}));
}

TEST(Walk, ACycleEnds) {
  const auto chain = std::make_shared<Chain>();
  chain->next = chain;
  for (const auto mode : {detail::SharedNodes::once, detail::SharedNodes::under_every_name}) {
    int visits = 0;
    detail::walk_module(
        chain, [&](const detail::nested::Path&, const auto&) { ++visits; }, mode);
    EXPECT_EQ(visits, 2);  // the chain and its weight
  }
  chain->next.reset();
}

TEST(Walk, SharedModulesAreVisitedOnceOrUnderEveryName) {
  struct Net {
    std::shared_ptr<Scale> encoder = std::make_shared<Scale>();
    std::shared_ptr<Scale> decoder = encoder;
  };
  Net net;
  const auto paths = [&](detail::SharedNodes mode) {
    Names result;
    const auto visitor = [&](const detail::nested::Path& path, const auto&) {
      result.push_back(path.name());
    };
    detail::walk_module(net, visitor, mode);
    return result;
  };
  EXPECT_EQ(paths(detail::SharedNodes::once),
            (Names{"", "encoder", "encoder.weight", "encoder.bias"}));
  EXPECT_EQ(paths(detail::SharedNodes::under_every_name),
            (Names{"", "encoder", "encoder.weight", "encoder.bias", "decoder", "decoder.weight",
                   "decoder.bias"}));
}

class Layer {
 public:
  virtual ~Layer() = default;

  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("base", self.base_);
  }

 private:
  Parameter base_ = testing::parameter({1});
};

class WiderLayer : public Layer {
 private:
  Parameter lost_ = testing::parameter({1});
};

class Masked {
 public:
  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("training", self.training_);
  }

 private:
  bool training_ = true;
};

TEST(Walk, AModeThatCannotBeSetIsAnError) {
  struct Net {
    Parameter weight = testing::parameter({1});
    std::shared_ptr<const Masked> mask = std::make_shared<Masked>();
  };
  Net net;
  try {
    eval(net);
    FAIL() << "expected a ModuleError";
  } catch (const ModuleError& error) {
    EXPECT_NE(std::string(error.what()).find("\"mask\" is const"), std::string::npos);
  }
}

TEST(Walk, APointerToABaseClassOfItsObjectIsAnError) {
  std::vector<std::shared_ptr<Layer>> layers{std::make_shared<Layer>()};
  EXPECT_EQ(names_of(named_parameters(layers)), (Names{"0.base"}));
  layers.push_back(std::make_shared<WiderLayer>());
  const auto expect_named = [](const auto& walk) {
    try {
      walk();
      FAIL() << "expected a ModuleError";
    } catch (const ModuleError& error) {
      EXPECT_NE(std::string(error.what()).find("\"1\""), std::string::npos) << error.what();
    }
  };
  expect_named([&] { (void)named_parameters(layers); });
  expect_named([&] { (void)parameters(layers); });
  expect_named([&] { (void)clone(layers); });
  expect_named([&] { detail::walk_module(layers, detail::UnsharingVisitor()); });
  std::vector<std::unique_ptr<Layer>> owned(2);
  owned[1] = std::make_unique<WiderLayer>();
  expect_named([&] { (void)parameters(owned); });
}

TEST(Walk, NodesAreConstWhereAnOwnerIs) {
  struct Net {
    std::shared_ptr<Scale> shared = std::make_shared<Scale>();
    const std::unique_ptr<Scale> constant = std::make_unique<Scale>();
  };
  Net net;
  detail::walk_module(net, []<class Node>(const detail::nested::Path& path, Node&) {
    EXPECT_EQ(std::is_const_v<Node>, path.name().starts_with("constant")) << path;
  });
  const Net& const_net = net;
  detail::walk_module(const_net, []<class Node>(const detail::nested::Path&, Node&) {
    static_assert(std::is_const_v<Node>);
  });
}

}  // namespace walk_test
}  // namespace lockstep
