// SPDX-License-Identifier: Apache-2.0
#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/optim/grouped_optimizer.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/optim/sgd.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "optim/parameters.hpp"
#include "support/expect_error.hpp"

namespace own_optimizer_test {

namespace ls = lockstep;
namespace optim = lockstep::optim;
using ls::testing::give_gradient;
using ls::testing::make_parameter;
using ls::testing::throws;
using ls::testing::values_of;

struct HeavyBallOptions {
  double lr = 0.125;
  double friction = 0.5;
};
struct HeavyBallGroup {
  optim::ParameterList params = {};
  std::optional<double> lr = {};
  std::optional<double> friction = {};
};
struct HeavyBallState {
  ls::Tensor speed = {};
};

void check_options(const char* optimizer, const HeavyBallOptions& options) {
  optim::check_setting(optimizer, "lr", options.lr);
  optim::check_setting(optimizer, "friction", options.friction);
}
void list_state(ls::StateDict& dict, const std::string& prefix, const HeavyBallState& state) {
  if (state.speed.defined()) dict.push_back({prefix + "speed", state.speed});
}
HeavyBallState read_state(optim::StateReader& reader, const std::string& prefix,
                          const ls::Tensor& parameter, const HeavyBallState& /*like*/) {
  return {.speed = reader.copy(prefix + "speed", parameter)};
}

class HeavyBall : public optim::GroupedOptimizer<HeavyBallOptions, HeavyBallGroup, HeavyBallState> {
 public:
  explicit HeavyBall(const std::vector<HeavyBallGroup>& groups,
                     const HeavyBallOptions& defaults = {})
      : GroupedOptimizer("HeavyBall", groups, defaults) {}

  void step() {
    check_all_options();
    update_each(
        [this](std::size_t group, std::size_t i, const ls::Tensor& parameter,
               const ls::Tensor& gradient, const ls::Stream& stream) {
          ls::Tensor& speed = state(i).speed;
          follow(speed, i, parameter, stream);
          speed.mul_(options(group).friction).add_(gradient);
          parameter.add_(speed, -options(group).lr);
        },
        [](std::size_t) { return kDenseOnly; });
  }
};

// One of the user's own, in his namespace, has all that lockstep's have. It is SGD with momentum.
TEST(OwnOptimizer, HasGroupsAndAStateDict) {
  const ls::Parameter a = make_parameter({1, 2});
  const ls::Parameter b = make_parameter({3});
  const ls::Parameter as = make_parameter({1, 2});
  const ls::Parameter bs = make_parameter({3});
  HeavyBall ball{{{.params = {a}}, {.params = {b}, .lr = 0.25}}};
  optim::SGD sgd{{{.params = {as}}, {.params = {bs}, .lr = 0.25}}, {.lr = 0.125, .momentum = 0.5}};
  const auto step_both = [&](HeavyBall& own) {
    give_gradient(a, {1, -1});
    give_gradient(as, {1, -1});
    give_gradient(b, {2});
    give_gradient(bs, {2});
    own.step();
    sgd.step();
    EXPECT_EQ(values_of(a), values_of(as));
    EXPECT_EQ(values_of(b), values_of(bs));
  };
  step_both(ball);
  step_both(ball);
  HeavyBall resumed{{{.params = {a}}, {.params = {b}}}, {.lr = 7}};
  resumed.load_state_dict(ball.state_dict());
  EXPECT_EQ(resumed.lr(1), 0.25);
  step_both(resumed);
  b.set_data(make_parameter({3, 4}).detach());
  give_gradient(b, {2, 2});
  EXPECT_TRUE(throws<ls::ShapeError>([&] { resumed.step(); }, "HeavyBall", "had shape [1]"));
  resumed.options(1).friction = -1;
  EXPECT_TRUE(throws<ls::ValueError>([&] { resumed.step(); }, "HeavyBall", "friction"));
}

}  // namespace own_optimizer_test
