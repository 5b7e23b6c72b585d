// SPDX-License-Identifier: Apache-2.0
//
// Training steps of models as people train them, served to `compare`: see served_training.hpp.
#include "compare_models.hpp"
#include "../../examples/models/image_models.hpp"
#include "../../examples/models/text_models.hpp"
#include "served_training.hpp"

#include <cstdint>
#include <tuple>

namespace compare {
namespace {

// The ResNet of the example, with the batch that the CNN has. Replicas normalise their own rows, as
// torch's DataParallel and DistributedDataParallel do.
struct ResNet {
  static constexpr std::int64_t kBatch = 128;
  static constexpr double kMomentum = 0.9;
  example::ResNet net = example::make_resnet(ls::Dtype::f32);

  ls::Tensor forward(const ls::Tensor& images) { return net.forward(images); }
  static ls::Tensor input(std::int64_t rows) { return ls::randn({rows, 1, 28, 28}); }
  static ls::Tensor target(std::int64_t rows) { return labels(rows); }
  static ls::Tensor loss(const ls::Tensor& y, const ls::Tensor& t) {
    return ls::cross_entropy(y, t);
  }
};

constexpr std::int64_t kLength = 64;

// The example's LSTM model with another recurrent layer.
struct GruModel {
  ls::nn::Embedding characters;
  ls::nn::GRU gru;
  ls::nn::Linear out;

  ls::Tensor forward(const ls::Tensor& text, const ls::Tensor& next) const {
    return example::text_loss(out(std::get<0>(gru(characters(text)))), next);
  }
};

GruModel make_gru_model(const example::TextModelOptions& options) {
  return {.characters{example::kCharacters, options.width},
          .gru{options.width, options.width, {.num_layers = options.layers}},
          .out{options.width, example::kCharacters}};
}

// The example's models of text, with its widths, on 64 texts of 64 characters.
template <auto make>
struct TextModel {
  static constexpr std::int64_t kBatch = 64;
  decltype(make({})) net = make({.length = kLength});

  ls::Tensor forward(const ls::Tensor& text, const ls::Tensor& next) {
    return net.forward(text, next);
  }
  static ls::Tensor input(std::int64_t rows) {
    return numbers({kLength, rows}, example::kCharacters);
  }
  static ls::Tensor target(std::int64_t rows) { return input(rows); }
  static ls::DataParallelOptions options() {
    return {.dim = 1, .scalar_outputs = ls::Reduction::mean};
  }
  static ls::optim::AdamW optimizer(const ls::optim::ParameterList& parameters) {
    return ls::optim::AdamW{parameters, {.lr = 1e-3}};
  }
};

// Tells texts apart by the mean of their words' vectors: most of a step is Adam's, on all of them.
struct Words {
  static constexpr std::int64_t kBatch = 256;
  static constexpr std::int64_t kWords = 10'000;
  ls::nn::Embedding words{kWords, 128};
  ls::nn::Linear fc{128, 10};

  ls::Tensor forward(const ls::Tensor& text) { return fc(ls::mean(words(text), {1})); }
  static ls::Tensor input(std::int64_t rows) { return numbers({rows, kLength}, kWords); }
  static ls::Tensor target(std::int64_t rows) { return labels(rows); }
  static ls::Tensor loss(const ls::Tensor& y, const ls::Tensor& t) {
    return ls::cross_entropy(y, t);
  }
  static ls::optim::Adam optimizer(const ls::optim::ParameterList& parameters) {
    return ls::optim::Adam{parameters, {.lr = 1e-3}};
  }
};

}  // namespace
}  // namespace compare

int main(int argc, char** argv) {
  using namespace compare;
  return serve_training(argc, argv, Named<ResNet>{"resnet"},
                        Named<TextModel<example::make_lstm_model>>{"lstm"},
                        Named<TextModel<example::make_transformer_model>>{"transformer"},
                        Named<TextModel<make_gru_model>>{"gru"}, Named<Words>{"embedding"});
}
