// SPDX-License-Identifier: Apache-2.0
#include <lockstep/device/devices.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/sparse.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "module/layers.hpp"

namespace lockstep {
namespace state_dict_test {

using testing::Names;
using testing::names_of;
using testing::Norm;
using testing::Scale;
using testing::values_of;

struct Net {
  Scale scale;
  Norm norm{0.1F};
};

StateDict other_values(const std::string& prefix = "") {
  return {{prefix + "scale.weight", tensor({5.0F, 6.0F})},
          {prefix + "scale.bias", tensor({7.0F})},
          {prefix + "norm.weight", tensor({8.0F})},
          {prefix + "norm.running_mean", tensor({9.0F})}};
}

// The message of the ModuleError that loading throws.
template <class M>
std::string load_error(const M& module, const StateDict& dict, bool strict = true) {
  try {
    load_state_dict(module, dict, strict);
  } catch (const ModuleError& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected a ModuleError";
  return "";
}

TEST(StateDictTest, ListsParametersAndBuffersInTheOrderOfDeclaration) {
  const Net net;
  const StateDict dict = state_dict(net);
  EXPECT_EQ(names_of(dict),
            (Names{"scale.weight", "scale.bias", "norm.weight", "norm.running_mean"}));
  EXPECT_FALSE(dict[0].tensor.requires_grad());
  EXPECT_EQ(dict[0].tensor.const_data_ptr<float>(), net.scale.weight.const_data_ptr<float>());
}

TEST(StateDictTest, ListsTiedTensorsUnderEachName) {
  struct Tied {
    std::shared_ptr<Norm> first = std::make_shared<Norm>(0.1F);
    std::shared_ptr<Norm> second = first;
  };
  EXPECT_EQ(names_of(state_dict(Tied{})),
            (Names{"first.weight", "first.running_mean", "second.weight", "second.running_mean"}));
}

TEST(LoadStateDict, CopiesValuesInPlace) {
  const Net net;
  const float* data = net.scale.weight.const_data_ptr<float>();
  const LoadResult result = load_state_dict(net, other_values());
  EXPECT_TRUE(result.missing.empty() && result.unexpected.empty());
  EXPECT_EQ(net.scale.weight.const_data_ptr<float>(), data);
  EXPECT_EQ(values_of(net.scale.weight), (std::vector<float>{5, 6}));
  EXPECT_EQ(values_of(net.norm.running_mean()), (std::vector<float>{9}));
  EXPECT_TRUE(net.scale.weight.requires_grad() && net.scale.weight.is_leaf());
}

TEST(LoadStateDict, TakesWhatStateDictGives) {
  const Net from;
  load_state_dict(from, other_values());
  const Net net;
  load_state_dict(net, state_dict(from));
  EXPECT_EQ(values_of(net.scale.bias), (std::vector<float>{7}));
}

TEST(LoadStateDict, CountsAsAChange) {
  const Net net;
  const auto before = net.scale.weight.version();
  load_state_dict(net, other_values());
  EXPECT_GT(net.scale.weight.version(), before);
}

TEST(LoadStateDict, ConvertsDtypeAndDevice) {
  const Net net;
  to(net, Device("cpu:1"));
  StateDict dict = other_values();
  dict[0].tensor = tensor({1.5, 2.5});
  load_state_dict(net, dict);
  EXPECT_EQ(net.scale.weight.dtype(), Dtype::f32);
  EXPECT_EQ(net.scale.weight.device(), Device("cpu:1"));
  EXPECT_EQ(values_of(net.scale.weight), (std::vector<float>{1.5F, 2.5F}));
}

TEST(LoadStateDict, DropsTheModulePrefix) {
  const Net net;
  load_state_dict(net, other_values("module."));
  EXPECT_EQ(values_of(net.scale.bias), (std::vector<float>{7}));
}

TEST(LoadStateDict, TellsAWholeCheckpointFromOtherNames) {
  const Net net;
  const std::string hint = "it is a whole checkpoint: give io::load_checkpoint(…).model";
  EXPECT_NE(load_error(net, other_values("model.")).find(hint), std::string::npos);
  EXPECT_EQ(load_error(net, other_values("net.")).find(hint), std::string::npos);
}

TEST(LoadStateDict, DropsModuleOnEveryLevel) {
  const Net net;
  StateDict dict = other_values("module.module.");
  ASSERT_EQ(dict[1].name, "module.module.scale.bias");
  dict[1].name = "scale.module.module.bias";
  load_state_dict(net, dict);
  EXPECT_EQ(values_of(net.scale.bias), (std::vector<float>{7}));

  dict.push_back({"module.scale.bias", dict[1].tensor});
  EXPECT_NE(load_error(net, dict).find("scale.bias (given twice)"), std::string::npos);
  dict.back().name = "module.scale.gain";
  EXPECT_NE(load_error(net, dict).find("unexpected: module.scale.gain"), std::string::npos);
}

TEST(LoadStateDict, ModuleMayBeAMembersNameAmongOthers) {
  struct Wrapper {
    Net module;
  };
  const Wrapper wrapper;
  load_state_dict(wrapper, other_values("module.module."));
  EXPECT_EQ(values_of(wrapper.module.scale.bias), (std::vector<float>{7}));
  struct Ambiguous {
    Parameter weight = testing::parameter({1});
    struct Inner {
      Parameter weight = testing::parameter({1});
    } module;
  };
  const Ambiguous both;
  const StateDict dict{{"module.module.weight", tensor({5.0F})}, {"weight", tensor({6.0F})}};
  EXPECT_NE(load_error(both, dict).find("unexpected: module.module.weight"), std::string::npos);
  load_state_dict(both, {{"module.weight", tensor({5.0F})}, {"weight", tensor({6.0F})}});
  EXPECT_EQ(values_of(both.module.weight), (std::vector<float>{5}));
}

TEST(LoadStateDict, KeepsThePrefixThatIsAMembersName) {
  struct Wrapper {
    Net module;
  };
  const Wrapper wrapper;
  load_state_dict(wrapper, other_values("module."));
  EXPECT_EQ(values_of(wrapper.module.scale.bias), (std::vector<float>{7}));
}

TEST(LoadStateDict, ReportsAllThatDoesNotFitAtOnceAndLoadsNothing) {
  const Net net;
  StateDict dict = other_values();
  dict[0].tensor = tensor({1.0F, 2.0F, 3.0F});
  dict[1].name = "scale.offset";
  dict.push_back(dict[2]);
  const std::string message = load_error(net, dict);
  EXPECT_NE(message.find("missing: scale.bias"), std::string::npos) << message;
  EXPECT_NE(message.find("unexpected: scale.offset"), std::string::npos) << message;
  EXPECT_NE(message.find("does not fit: scale.weight"), std::string::npos) << message;
  EXPECT_NE(message.find("norm.weight (given twice)"), std::string::npos) << message;
  EXPECT_EQ(values_of(net.norm.running_mean()), (std::vector<float>{0}));
}

TEST(LoadStateDict, ReturnsWhatIsMissingAndUnexpectedIfNotStrict) {
  const Net net;
  StateDict dict = other_values();
  dict[1].name = "scale.offset";
  const LoadResult result = load_state_dict(net, dict, false);
  EXPECT_EQ(result.missing, (Names{"scale.bias"}));
  EXPECT_EQ(result.unexpected, (Names{"scale.offset"}));
  EXPECT_EQ(values_of(net.scale.weight), (std::vector<float>{5, 6}));
  EXPECT_EQ(values_of(net.scale.bias), (std::vector<float>{3}));
}

TEST(LoadStateDict, RefusesAnotherShapeEvenIfNotStrict) {
  const Net net;
  StateDict dict = other_values();
  dict[0].tensor = tensor({1.0F, 2.0F, 3.0F});
  dict[1].name = "scale.offset";
  const std::string message = load_error(net, dict, false);
  EXPECT_EQ(message.find("offset"), std::string::npos) << message;
  dict[0].tensor = Tensor();
  EXPECT_NE(load_error(net, dict, false).find("undefined"), std::string::npos);
}

TEST(LoadStateDict, RefusesElementsThatAreOneInMemory) {
  struct Module {
    Parameter weight{zeros({1}).expand({2})};
    Tensor forward(const Tensor& x) const { return x; }
  };
  EXPECT_NE(load_error(Module{}, {{"weight", tensor({1.0F, 2.0F})}})
                .find("weight (several of the module's elements are one in memory)"),
            std::string::npos);
}

TEST(LoadStateDict, RefusesSparseTensorsAndLoadsNothing) {
  struct Module {
    Parameter weight{zeros({2})};
    Buffer table{zeros({4, 1})};
    Tensor forward(const Tensor& x) const { return x; }
  } module;
  const Tensor rows = from_values<std::int64_t>({3, 1}, {1, 2});
  const Tensor sparse = sparse_coo_tensor(rows, ones({2, 1}), {4, 1});
  const StateDict dict = {{"weight", ones({2})}, {"table", sparse}};
  const std::string expected = "table (the module's tensor or the dict's is sparse)";
  EXPECT_NE(load_error(module, dict).find(expected), std::string::npos);
  EXPECT_EQ(values_of(module.weight), (std::vector<float>{0, 0}));
  module.table = Buffer(sparse);
  EXPECT_NE(load_error(module, dict).find(expected), std::string::npos);
}

TEST(LoadStateDict, ATiedTensorNeedsOneOfItsNames) {
  struct Tied {
    Parameter first = testing::parameter({1});
    Parameter second = first;
  };
  const Tied tied;
  load_state_dict(tied, {{"second", tensor({4.0F})}});
  EXPECT_EQ(values_of(tied.first), (std::vector<float>{4}));
}

TEST(LoadStateDict, TakesTheModulesOwnTensorsUnderOtherNames) {
  const Tensor both = tensor({1.0F, 2.0F});
  struct Pair {
    Parameter first, second;
  };
  const auto swapped = [](const Pair& pair) {
    StateDict dict = state_dict(pair);
    std::swap(dict[0].tensor, dict[1].tensor);
    load_state_dict(pair, dict);
    return values_of(pair.first)[0] * 10 + values_of(pair.second)[0];
  };
  EXPECT_EQ(swapped({Parameter(tensor({1.0F})), Parameter(tensor({2.0F}))}), 21);
  EXPECT_EQ(swapped({Parameter(both.narrow(0, 0, 1)), Parameter(both.narrow(0, 1, 1))}), 21)
      << "which share a storage";
}

TEST(LoadStateDict, AnEmptyModuleTakesAnEmptyDict) {
  struct Empty {};
  load_state_dict(Empty{}, {});
  EXPECT_NE(load_error(Net{}, {}).find("missing: scale.weight"), std::string::npos);
}

}  // namespace state_dict_test
}  // namespace lockstep
