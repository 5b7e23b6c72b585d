// SPDX-License-Identifier: Apache-2.0
#include <lockstep/nn/rnn.hpp>

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/clone.hpp>
#include <lockstep/module/concepts.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/random.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "nn/support.hpp"
#include "support/sanitizers.hpp"
#include "support/varied.hpp"
#include "support/warnings.hpp"

namespace lockstep {
namespace rnn_test {

using testing::all_close;
using testing::greatest_magnitude;
using testing::message_of;
using testing::Names;
using testing::parameter_names;
using testing::values_of;
using testing::varied;

static_assert(Module<nn::RNN> && ForwardableWith<const nn::RNN, Tensor> &&
              ForwardableWith<const nn::RNN, Tensor, Tensor>);
static_assert(Module<nn::GRU> && ForwardableWith<const nn::GRU, Tensor, Tensor>);
static_assert(Module<nn::LSTM> && ForwardableWith<const nn::LSTM, Tensor> &&
              ForwardableWith<const nn::LSTM, Tensor, std::tuple<Tensor, Tensor>>);

const TensorOptions kF64{.dtype = Dtype::f64, .device = Device("cpu:0")};

nn::RecurrentOptions with_layers(std::int64_t layers) {
  return {.num_layers = layers, .dtype = Dtype::f64, .device = Device("cpu:0")};
}

TEST(RecurrentLayers, HaveTorchsNamesAndShapes) {
  const nn::LSTM lstm{5, 3, {.num_layers = 2, .bidirectional = true}};
  EXPECT_EQ(
      parameter_names(lstm),
      (Names{"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_ih_l0_reverse",
             "weight_hh_l0_reverse", "bias_ih_l0_reverse", "bias_hh_l0_reverse", "weight_ih_l1",
             "weight_hh_l1", "bias_ih_l1", "bias_hh_l1", "weight_ih_l1_reverse",
             "weight_hh_l1_reverse", "bias_ih_l1_reverse", "bias_hh_l1_reverse"}));
  EXPECT_EQ(lstm.weights[1].weight_ih.sizes(), (Shape{12, 5}));
  EXPECT_EQ(lstm.weights[2].weight_ih.sizes(), (Shape{12, 6}));
  EXPECT_EQ(lstm.weights[2].weight_hh.sizes(), (Shape{12, 3}));
  EXPECT_EQ(lstm.weights[3].bias_hh.sizes(), Shape{12});

  const nn::GRU gru{5, 3, {.num_layers = 2, .bias = false}};
  EXPECT_EQ(parameter_names(gru),
            (Names{"weight_ih_l0", "weight_hh_l0", "weight_ih_l1", "weight_hh_l1"}));
  EXPECT_EQ(gru.weights[1].weight_ih.sizes(), (Shape{9, 3}));
  EXPECT_EQ((nn::RNN{5, 3}.weights[0].weight_ih.sizes()), (Shape{3, 5}));
}

TEST(RecurrentLayers, StartWithUniformParameters) {
  manual_seed(3);
  const nn::GRU gru{8, 16};
  for (const auto& [name, parameter] : named_parameters(gru)) {
    EXPECT_LE(greatest_magnitude(parameter), 0.25) << name;
    EXPECT_GT(greatest_magnitude(parameter), 0.15) << name;
  }
  manual_seed(3);
  const nn::GRU same{8, 16};
  EXPECT_EQ(values_of(same.weights[0].bias_hh), values_of(gru.weights[0].bias_hh));
}

TEST(RecurrentLayers, GiveTheOutputAndTheLastStatesOfAllLayers) {
  const nn::LSTM lstm{
      2, 3, {.num_layers = 2, .bidirectional = true, .dtype = Dtype::f64, .device = kF64.device}};
  const auto [y, state] = lstm(varied({5, 4, 2}));
  const auto& [h, c] = state;
  EXPECT_EQ(y.sizes(), (Shape{5, 4, 6}));
  EXPECT_EQ(h.sizes(), (Shape{4, 4, 3}));
  EXPECT_EQ(c.sizes(), (Shape{4, 4, 3}));
  // The last layer's: forwards after the last time step, backwards after the first.
  EXPECT_EQ(values_of(select(h, 0, 2)), values_of(select(y, 0, 4).narrow(1, 0, 3)));
  EXPECT_EQ(values_of(select(h, 0, 3)), values_of(select(y, 0, 0).narrow(1, 3, 3)));
}

// Two parts of a sequence, one after the other, are the sequence.
template <class Layer>
void expect_continuation(const Layer& layer) {
  const Tensor x = varied({5, 2, 2});
  const auto [whole, last] = layer(x);
  const auto [first, between] = layer(x.narrow(0, 0, 3));
  const auto [second, end] = layer(x.narrow(0, 3, 2), between);
  EXPECT_TRUE(all_close(first, whole.narrow(0, 0, 3), 1e-12));
  EXPECT_TRUE(all_close(second, whole.narrow(0, 3, 2), 1e-12));
}

TEST(RecurrentLayers, GoOnFromAState) {
  expect_continuation(nn::RNN{2, 3, {.num_layers = 2, .dtype = Dtype::f64, .device = kF64.device}});
  expect_continuation(nn::LSTM{2, 3, with_layers(2)});
  expect_continuation(nn::GRU{2, 3, with_layers(2)});
}

TEST(RecurrentLayers, TakeTheBatchFirst) {
  nn::GRU gru{2, 3, with_layers(2)};
  const Tensor x = varied({5, 4, 2});
  const Tensor start = varied({2, 4, 3}, 1);
  const auto [y, h] = gru(x, start);
  gru.batch_first = true;
  const auto [turned, last] = gru(x.transpose(0, 1), start);
  EXPECT_EQ(turned.sizes(), (Shape{4, 5, 3}));
  EXPECT_EQ(values_of(turned.transpose(0, 1)), values_of(y));
  EXPECT_EQ(values_of(last), values_of(h)) << "states stay [layers, batch, hidden_size]";
}

TEST(RecurrentLayers, TakeASequenceWithoutABatch) {
  const nn::LSTM lstm{2, 3, with_layers(2)};
  const Tensor x = varied({5, 2});
  const Tensor h0 = varied({2, 3}, 1);
  const Tensor c0 = varied({2, 3}, 2);
  const auto [y, state] = lstm(x, {h0, c0});
  const auto [wide, wide_state] = lstm(unsqueeze(x, 1), {unsqueeze(h0, 1), unsqueeze(c0, 1)});
  EXPECT_EQ(y.sizes(), (Shape{5, 3}));
  EXPECT_EQ(std::get<0>(state).sizes(), (Shape{2, 3}));
  EXPECT_EQ(values_of(y), values_of(wide));
  EXPECT_EQ(values_of(std::get<1>(state)), values_of(std::get<1>(wide_state)));
}

TEST(RecurrentLayers, DropFeaturesBetweenLayersInTraining) {
  nn::RNN rnn{2, 32, {.num_layers = 2, .dropout = 0.5, .dtype = Dtype::f64, .device = kF64.device}};
  const Tensor x = varied({3, 2, 2});
  manual_seed(1);
  const auto [first, first_h] = rnn(x);
  const auto [second, second_h] = rnn(x);
  EXPECT_NE(values_of(first), values_of(second));
  EXPECT_EQ(values_of(select(first_h, 0, 0)), values_of(select(second_h, 0, 0)))
      << "the state itself loses nothing";
  EXPECT_EQ(values_of(select(first_h, 0, 1)), values_of(select(first, 0, 2)))
      << "nor does the last layer's output";
  manual_seed(1);
  EXPECT_EQ(values_of(std::get<0>(rnn(x))), values_of(first));
  eval(rnn);
  EXPECT_FALSE(rnn.training);
  EXPECT_EQ(values_of(std::get<0>(rnn(x))), values_of(std::get<0>(rnn(x))));
}

TEST(RecurrentLayers, WarnOfDropoutThatHasNoPlace) {
  const testing::CaughtWarnings warnings;
  const nn::GRU plain{2, 3};
  EXPECT_EQ(warnings.count(), 0);
  const nn::GRU gru{2, 3, {.dropout = 0.5}};
  EXPECT_EQ(warnings.count("GRU: dropout option adds dropout after all but last recurrent layer"),
            1);
}

TEST(RecurrentLayers, AreSavedCopiedAndLoaded) {
  const nn::LSTM lstm{2, 3, with_layers(2)};
  const nn::LSTM other{2, 3, with_layers(2)};
  load_state_dict(other, state_dict(lstm));
  const Tensor x = varied({3, 2, 2});
  EXPECT_EQ(values_of(std::get<0>(other(x))), values_of(std::get<0>(lstm(x))));
  const nn::LSTM copy = lstm;
  EXPECT_EQ(copy.weights[1].bias_ih.impl(), lstm.weights[1].bias_ih.impl()) << "handles";
  const nn::LSTM zero = clone(lstm);
  for (const Parameter& parameter : parameters(zero)) parameter.detach().zero_();
  EXPECT_EQ(greatest_magnitude(std::get<0>(zero(x))), 0);
  EXPECT_GT(greatest_magnitude(std::get<0>(lstm(x))), 0);
}

TEST(RecurrentLayers, GiveHalfPrecisionUnderAutocast) {
  const nn::LSTM lstm{2, 3, {.num_layers = 2}};
  const Tensor x = varied<float>({3, 2, 2}, 0, Device("cpu"));
  const AutocastGuard guard;
  const auto [y, state] = lstm(x);
  EXPECT_EQ(y.dtype(), Dtype::bf16);
  EXPECT_EQ(std::get<1>(state).dtype(), Dtype::bf16);
  const auto [next, last] = lstm(x, state);
  EXPECT_EQ(next.sizes(), y.sizes());
}

TEST(RecurrentLayers, RefuseBadArguments) {
  EXPECT_EQ(message_of<ValueError>([] {
              nn::LSTM{0, 3};
            }),
            "LSTM: expected input_size to be at least 1, got 0");
  EXPECT_EQ(message_of<ValueError>([] {
              nn::GRU{2, 0};
            }),
            "GRU: expected hidden_size to be at least 1, got 0");
  EXPECT_THROW((nn::LSTM{2, std::int64_t{1} << 62}), ValueError);
  EXPECT_THROW((nn::GRU{2, 3, {.num_layers = 0}}), ValueError);
  EXPECT_THROW((nn::GRU{2, 3, {.num_layers = INT64_MAX, .bidirectional = true}}), ValueError);
  if (!testing::kSanitizer) {  // which ends a process that asks for so much
    EXPECT_EQ(message_of<OutOfMemoryError>([] {
                nn::GRU{2, 3, {.num_layers = std::int64_t{1} << 50}};
              }),
              "GRU: no memory for num_layers = 1125899906842624");
  }
  EXPECT_THROW((nn::RNN{2, 3, {.num_layers = 2, .dropout = 1.5}}), ValueError);
  EXPECT_THROW((nn::RNN{2, 3, {.dtype = Dtype::i64}}), DtypeError);
  EXPECT_EQ(message_of<ValueError>([] {
              nn::LSTM{2, 3, {.proj_size = 2}};
            }),
            "LSTM: expected proj_size = 0, got 2: projections of the state are not supported; put "
            "an nn::Linear behind");
}

TEST(RecurrentLayers, RefuseInputsAndStatesThatDoNotFit) {
  nn::LSTM lstm{2, 3, {.num_layers = 2}};
  EXPECT_EQ(message_of<ShapeError>([&] {
              lstm(zeros({5, 4, 3}));
            }),
            "LSTM: expected an input of shape [length, batch, 2] or [length, 2], got [5, 4, 3]");
  EXPECT_EQ(message_of<ShapeError>([&] {
              lstm(zeros({1, 5, 4, 2}));
            }),
            "LSTM: expected an input of shape [length, batch, 2] or [length, 2], got [1, 5, 4, 2]");
  EXPECT_EQ(message_of<ShapeError>([&] {
              lstm(zeros({0, 4, 2}));
            }),
            "LSTM: expected a sequence of at least one time step, got an input of shape [0, 4, 2]");
  EXPECT_EQ(message_of<ShapeError>([&] {
              lstm(zeros({5, 4, 2}), {zeros({1, 4, 3}), Tensor()});
            }),
            "LSTM: expected h_0 of shape [2, 4, 3] for an input of shape [5, 4, 2], got [1, 4, 3]");
  EXPECT_EQ(message_of<ShapeError>([&] {
              lstm(zeros({5, 2}), {Tensor(), zeros({2, 1, 3})});
            }),
            "LSTM: expected c_0 of shape [2, 3] for an input of shape [5, 2], got [2, 1, 3]");
  EXPECT_THROW(lstm(zeros({2})), ShapeError);
  EXPECT_THROW(lstm(zeros({5, 4, 2}, {.dtype = Dtype::f64})), DtypeError);
  EXPECT_THROW(lstm(zeros({5, 4, 2}, {.dtype = Dtype::i64})), DtypeError);
  EXPECT_THROW(lstm(Tensor()), ValueError);
  nn::LSTM other{2, 3, {.num_layers = 2}};
  other.weights.pop_back();
  EXPECT_EQ(message_of<ValueError>([&] {
              other(zeros({5, 4, 2}));
            }),
            "LSTM: expected the weights of 2 layers in 1 directions, got 1");
  lstm.batch_first = true;
  EXPECT_EQ(message_of<ShapeError>([&] {
              lstm(zeros({5, 4, 3}));
            }),
            "LSTM: expected an input of shape [batch, length, 2] or [length, 2], got [5, 4, 3]");
  EXPECT_THROW(lstm(zeros({5, 4, 2}), {zeros({2, 4, 3}), Tensor()}), ShapeError)
      << "the batch is 5";
}

}  // namespace rnn_test
}  // namespace lockstep
