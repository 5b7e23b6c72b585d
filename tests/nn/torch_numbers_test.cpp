// SPDX-License-Identifier: Apache-2.0
#include "nn/torch_numbers.hpp"

#include <lockstep/device/device.hpp>
#include <lockstep/nn/activation.hpp>
#include <lockstep/nn/batch_norm.hpp>
#include <lockstep/nn/conv.hpp>
#include <lockstep/nn/embedding.hpp>
#include <lockstep/nn/group_norm.hpp>
#include <lockstep/nn/layer_norm.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/nn/pooling.hpp>
#include <lockstep/nn/rnn.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/attention.hpp>
#include <lockstep/ops/compare.hpp>
#include <lockstep/ops/index.hpp>
#include <lockstep/ops/loss.hpp>
#include <lockstep/ops/max.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/reduction.hpp>
#include <lockstep/ops/size2d.hpp>
#include <lockstep/ops/softmax.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/ops/where.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace lockstep {
namespace torch_numbers_test {

using testing::agrees_with_torch;
using Inputs = std::vector<Tensor>;

constexpr Dtype kDtype = Dtype::f64;
const Device kDevice{"cpu:0"};

TEST(TorchNumbers, AnotherFunctionDoesNotAgree) {
  const auto outputs = agrees_with_torch({"activation", "tanh"}, nn::Sigmoid{});
  EXPECT_NE(std::string(outputs.message()).find("output 0: element 0 is"), std::string::npos);
  const auto gradients = agrees_with_torch(
      {"activation", "tanh"}, nn::Tanh{}, [](const nn::Tanh& tanh, const auto& x) {
        return tanh(x.at(0)) + (x.at(0) - x.at(0).detach());  // the same numbers, another slope
      });
  EXPECT_NE(std::string(gradients.message()).find("gradient of input 0: element 0 is"),
            std::string::npos);
}

TEST(TorchNumbers, Linear) {
  EXPECT_TRUE(agrees_with_torch({"linear", "bias"},
                                nn::Linear{4, 3, {.dtype = kDtype, .device = kDevice}}));
  EXPECT_TRUE(
      agrees_with_torch({"linear", "no_bias"},
                        nn::Linear{4, 3, {.bias = false, .dtype = kDtype, .device = kDevice}}));
}

TEST(TorchNumbers, Conv2d) {
  EXPECT_TRUE(agrees_with_torch({"conv", "plain"},
                                nn::Conv2d{4, 3, 3, {.dtype = kDtype, .device = kDevice}}));
  const nn::Conv2dOptions options{
      .stride = Size2d{2, 1}, .padding = Size2d{1, 2}, .dtype = kDtype, .device = kDevice};
  EXPECT_TRUE(agrees_with_torch({"conv", "stride"}, nn::Conv2d{4, 6, Size2d{3, 2}, options}));
  const nn::Conv2dOptions grouped{.padding = 1, .groups = 2, .dtype = kDtype, .device = kDevice};
  EXPECT_TRUE(agrees_with_torch({"conv", "groups"}, nn::Conv2d{4, 6, 3, grouped}));
  const nn::Conv2dOptions depthwise{
      .stride = 2, .padding = 1, .groups = 4, .bias = false, .dtype = kDtype, .device = kDevice};
  EXPECT_TRUE(agrees_with_torch({"conv", "depthwise"}, nn::Conv2d{4, 4, 3, depthwise}));
}

TEST(TorchNumbers, MaxPool2d) {
  EXPECT_TRUE(agrees_with_torch({"pooling", "max"}, nn::MaxPool2d{2}));
  const nn::MaxPool2dOptions options{.stride = Size2d{2, 1}, .padding = 1};
  EXPECT_TRUE(
      agrees_with_torch({"pooling", "max_overlapping"}, nn::MaxPool2d{Size2d{3, 2}, options}));
}

TEST(TorchNumbers, AvgPool2d) {
  EXPECT_TRUE(agrees_with_torch({"pooling", "avg"}, nn::AvgPool2d{2}));
  nn::AvgPool2dOptions options{.stride = Size2d{2, 1}, .padding = 1};
  EXPECT_TRUE(
      agrees_with_torch({"pooling", "avg_overlapping"}, nn::AvgPool2d{Size2d{3, 2}, options}));
  options.count_include_pad = false;
  EXPECT_TRUE(
      agrees_with_torch({"pooling", "avg_without_pad"}, nn::AvgPool2d{Size2d{3, 2}, options}));
}

nn::BatchNormOptions norm_options(double momentum) {
  return {.momentum = momentum, .dtype = kDtype, .device = kDevice};
}

// The recorded cases of a layer in training and outside of it.
template <class Norm>
void expect_agreement(const std::string& name) {
  EXPECT_TRUE(agrees_with_torch({"normalization", name + "_train"}, Norm{3, norm_options(0.3)}));
  Norm still{3, norm_options(0.1)};
  still.training = false;
  EXPECT_TRUE(agrees_with_torch({"normalization", name + "_eval"}, still));
}

TEST(TorchNumbers, BatchNorm) {
  expect_agreement<nn::BatchNorm1d>("batch_norm1d");
  expect_agreement<nn::BatchNorm1d>("batch_norm1d_length");
  expect_agreement<nn::BatchNorm2d>("batch_norm2d");
  const nn::BatchNormOptions plain{.affine = false, .dtype = kDtype, .device = kDevice};
  EXPECT_TRUE(
      agrees_with_torch({"normalization", "batch_norm2d_plain"}, nn::BatchNorm2d{3, plain}));
}

TEST(TorchNumbers, LayerNorm) {
  EXPECT_TRUE(agrees_with_torch({"normalization", "layer_norm"},
                                nn::LayerNorm{3, {.dtype = kDtype, .device = kDevice}}));
  EXPECT_TRUE(agrees_with_torch(
      {"normalization", "layer_norm_plane"},
      nn::LayerNorm{Shape{2, 3}, {.eps = 1e-3, .dtype = kDtype, .device = kDevice}}));
}

TEST(TorchNumbers, Embedding) {
  EXPECT_TRUE(agrees_with_torch({"embedding", "plain"},
                                nn::Embedding{5, 4, {.dtype = kDtype, .device = kDevice}}));
  EXPECT_TRUE(agrees_with_torch(
      {"embedding", "padding"},
      nn::Embedding{5, 4, {.padding_idx = 3, .dtype = kDtype, .device = kDevice}}));
}

struct LogSoftmax {
  Tensor forward(const Tensor& x) const { return log_softmax(x, -1); }
};

TEST(TorchNumbers, Activations) {
  EXPECT_TRUE(agrees_with_torch({"activation", "relu"}, nn::ReLU{}));
  EXPECT_TRUE(agrees_with_torch({"activation", "tanh"}, nn::Tanh{}));
  EXPECT_TRUE(agrees_with_torch({"activation", "sigmoid"}, nn::Sigmoid{}));
  EXPECT_TRUE(agrees_with_torch({"activation", "softmax_last"}, nn::Softmax{-1}));
  EXPECT_TRUE(agrees_with_torch({"activation", "softmax_middle"}, nn::Softmax{1}));
  EXPECT_TRUE(agrees_with_torch({"activation", "log_softmax"}, LogSoftmax{}));
  EXPECT_TRUE(agrees_with_torch({"activation", "gelu"}, nn::GELU{}));
  EXPECT_TRUE(agrees_with_torch({"activation", "gelu_tanh"}, nn::GELU{GeluApproximation::tanh}));
}

TEST(TorchNumbers, ScaledDotProductAttention) {
  for (const bool causal : {false, true}) {
    EXPECT_TRUE(agrees_with_torch({"attention", causal ? "function_causal" : "function"},
                                  nn::Tanh{}, [=](const nn::Tanh&, const Inputs& x) {
                                    return scaled_dot_product_attention(x.at(0), x.at(1), x.at(2),
                                                                        {.is_causal = causal});
                                  }));
  }
}

// Succeeds if a function agrees with the recorded case of its name.
template <class Call>
::testing::AssertionResult operation_agrees(const std::string& name, const Call& call) {
  return agrees_with_torch({"operation", name}, nn::Tanh{},
                           [&](const nn::Tanh&, const Inputs& x) { return call(x); });
}

TEST(TorchNumbers, Operations) {
  EXPECT_TRUE(agrees_with_torch({"operation", "leaky_relu"}, nn::LeakyReLU{0.2}));
  EXPECT_TRUE(agrees_with_torch({"operation", "silu"}, nn::SiLU{}));
  EXPECT_TRUE(agrees_with_torch({"operation", "group_norm"},
                                nn::GroupNorm{2, 4, {.dtype = kDtype, .device = kDevice}}));

  EXPECT_TRUE(operation_agrees("compare", [](const Inputs& x) {
    const Tensor& a = x.at(0);
    const Tensor& b = x.at(1);
    const auto taken = [&](const Tensor& pairs, const Tensor& numbers) {
      return pairs.to(kDtype) * a + numbers.to(kDtype) * b;
    };
    return std::tuple{taken(eq(a, b), eq(a, 0.5)), taken(ne(a, b), ne(a, 0.5)),
                      taken(lt(a, b), lt(a, 0.5)), taken(le(a, b), le(a, 0.5)),
                      taken(gt(a, b), gt(a, 0.5)), taken(ge(a, b), ge(a, 0.5))};
  }));
  EXPECT_TRUE(operation_agrees("where", [](const Inputs& x) {
    return std::tuple{where(lt(x.at(0), x.at(1)), x.at(0), x.at(1)),
                      where(lt(x.at(0), 1), x.at(0), 0.5)};
  }));
  EXPECT_TRUE(operation_agrees("clamp", [](const Inputs& x) {
    return std::tuple{clamp(x.at(0), -1, 0.5), clamp(x.at(0), 0.25), clamp(x.at(0), {}, -0.5)};
  }));
  EXPECT_TRUE(operation_agrees("maximum", [](const Inputs& x) {
    return std::tuple{maximum(x.at(0), x.at(1)), minimum(x.at(0), x.at(1))};
  }));
  EXPECT_TRUE(operation_agrees("max", [](const Inputs& x) {
    return std::tuple{max(x.at(0), 1).values, min(x.at(0), -1, true).values, max(x.at(0)),
                      min(x.at(0))};
  }));
  EXPECT_TRUE(operation_agrees("var", [](const Inputs& x) {
    return std::tuple{var(x.at(0)), var(x.at(0), {0, 2}, 1, true), std(x.at(0), {1}, 0)};
  }));
  EXPECT_TRUE(operation_agrees("index", [](const Inputs& x) {
    return std::tuple{x.at(0)[1], x.at(0)[2][0], x.at(0)[-1][3][2]};
  }));
  EXPECT_TRUE(operation_agrees("index_select",
                               [](const Inputs& x) { return index_select(x.at(0), 1, x.at(1)); }));
  EXPECT_TRUE(
      operation_agrees("gather", [](const Inputs& x) { return gather(x.at(0), 2, x.at(1)); }));
}

TEST(TorchNumbers, Losses) {
  // `loss(input, target, reduction)`, with each reduction
  const auto agrees = [](const std::string& name, const auto& loss) {
    return operation_agrees(name, [&](const Inputs& x) {
      return std::tuple{loss(x.at(0), x.at(1), Reduction::none),
                        loss(x.at(0), x.at(1), Reduction::mean),
                        loss(x.at(0), x.at(1), Reduction::sum)};
    });
  };
  const auto quarters = [](const Tensor& x) { return x.to(kDtype) * 0.25; };
  EXPECT_TRUE(
      agrees("binary_cross_entropy", [&](const Tensor& x, const Tensor& t, Reduction reduction) {
        return binary_cross_entropy(x, quarters(t), reduction);
      }));
  EXPECT_TRUE(agrees("binary_cross_entropy_with_logits",
                     [&](const Tensor& x, const Tensor& t, Reduction reduction) {
                       return binary_cross_entropy_with_logits(x, quarters(t), reduction);
                     }));
  EXPECT_TRUE(agrees("l1_loss", l1_loss));
  EXPECT_TRUE(agrees("smooth_l1_loss", [](const Tensor& x, const Tensor& t, Reduction reduction) {
    return smooth_l1_loss(x, t, reduction, 0.5);
  }));
  EXPECT_TRUE(agrees("label_smoothing", [](const Tensor& x, const Tensor& t, Reduction reduction) {
    return cross_entropy(x, t, reduction, 0.2);
  }));
}

constexpr std::int64_t kFeatures = 2;
constexpr std::int64_t kWidth = 3;

TEST(TorchNumbers, RNN) {
  const nn::RNN plain{kFeatures, kWidth, {.dtype = kDtype, .device = kDevice}};
  EXPECT_TRUE(agrees_with_torch({"rnn", "tanh"}, plain));
  zero_grad(plain);
  EXPECT_TRUE(agrees_with_torch({"rnn", "tanh_state"}, plain));
  const nn::RNN deep{kFeatures,
                     kWidth,
                     {.num_layers = 2,
                      .nonlinearity = nn::RNNNonlinearity::relu,
                      .bidirectional = true,
                      .dtype = kDtype,
                      .device = kDevice}};
  EXPECT_TRUE(agrees_with_torch({"rnn", "relu_deep"}, deep));
}

TEST(TorchNumbers, LSTM) {
  const auto with_state = [](const nn::LSTM& lstm, const Inputs& x) {
    return lstm(x.at(0), {x.at(1), x.at(2)});
  };
  const nn::LSTM plain{kFeatures, kWidth, {.dtype = kDtype, .device = kDevice}};
  EXPECT_TRUE(agrees_with_torch({"rnn", "lstm"}, plain));
  zero_grad(plain);
  EXPECT_TRUE(agrees_with_torch({"rnn", "lstm_state"}, plain, with_state));
  const nn::LSTM deep{kFeatures,
                      kWidth,
                      {.num_layers = 2, .bidirectional = true, .dtype = kDtype, .device = kDevice}};
  EXPECT_TRUE(agrees_with_torch({"rnn", "lstm_deep"}, deep, with_state));
  const nn::LSTM batch_first{
      kFeatures,
      kWidth,
      {.num_layers = 2, .bias = false, .batch_first = true, .dtype = kDtype, .device = kDevice}};
  EXPECT_TRUE(agrees_with_torch({"rnn", "lstm_batch_first"}, batch_first, with_state));
  const nn::LSTM stacked{kFeatures, kWidth, {.num_layers = 2, .dtype = kDtype, .device = kDevice}};
  EXPECT_TRUE(agrees_with_torch({"rnn", "lstm_unbatched"}, stacked));
}

TEST(TorchNumbers, GRU) {
  const nn::GRU plain{kFeatures, kWidth, {.dtype = kDtype, .device = kDevice}};
  EXPECT_TRUE(agrees_with_torch({"rnn", "gru"}, plain));
  zero_grad(plain);
  EXPECT_TRUE(agrees_with_torch({"rnn", "gru_unbatched"}, plain));
  const nn::GRU deep{kFeatures,
                     kWidth,
                     {.num_layers = 2, .bidirectional = true, .dtype = kDtype, .device = kDevice}};
  EXPECT_TRUE(agrees_with_torch({"rnn", "gru_deep"}, deep));
  const nn::GRU batch_first{
      kFeatures, kWidth, {.bias = false, .batch_first = true, .dtype = kDtype, .device = kDevice}};
  EXPECT_TRUE(agrees_with_torch({"rnn", "gru_batch_first"}, batch_first));
}

}  // namespace torch_numbers_test
}  // namespace lockstep
