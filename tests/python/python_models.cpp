// SPDX-License-Identifier: Apache-2.0

// The side of lockstep in check_safetensors.py, which says what the files have to hold:
//
//   python_models write FOLDER   writes checkpoint, forward and dtypes .safetensors
//   python_models read FOLDER    checks python and python_dtypes .safetensors

#include <lockstep/lockstep.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace ls = lockstep;

namespace {

struct ConvNet {
  ls::nn::Conv2d conv{2, 4, 3, {.stride = 2, .padding = 1, .bias = false}};
  ls::nn::BatchNorm2d norm{4};
  ls::nn::Linear fc{64, 3};

  ls::Tensor forward(const ls::Tensor& images) const {
    return fc(ls::flatten(ls::relu(norm(conv(images))), 1));
  }
};

struct Models {
  ls::nn::LSTM lstm{3, 5, {.num_layers = 2, .bidirectional = true}};
  ls::nn::MultiheadAttention attention{8, 2};
  ConvNet convnet;
};

// Numbers that every floating-point type holds exactly, so that both sides make the same ones.
ls::Tensor numbers(const ls::Shape& shape, std::int64_t seed, bool positive = false) {
  std::vector<double> values(static_cast<std::size_t>(ls::numel(shape)));
  for (std::size_t k = 0; k < values.size(); ++k) {
    const auto mixed = (static_cast<std::int64_t>(k) * 7 + seed) % 23;
    values[k] = static_cast<double>(positive ? mixed + 16 : mixed - 11) / 64;
  }
  return ls::from_values(values, shape);
}

// The value of a model's tensor: `seed` and the length of its name decide it.
ls::Tensor value_of(const std::string& name, const ls::Tensor& like, std::int64_t seed) {
  if (like.dtype() == ls::Dtype::i64) return ls::full(like.sizes(), 3, like.options());
  const auto length = static_cast<std::int64_t>(name.size());
  return numbers(like.sizes(), seed + length, name.ends_with("running_var")).to(like.dtype());
}

void set_values(const Models& models, std::int64_t seed) {
  ls::StateDict dict = ls::state_dict(models);
  for (ls::NamedTensor& entry : dict) entry.tensor = value_of(entry.name, entry.tensor, seed);
  ls::load_state_dict(models, dict);
}

void write(const std::filesystem::path& folder) {
  Models models;
  ls::optim::SGD sgd{ls::parameters(models), {.lr = 0.25, .momentum = 0.5}};
  set_values(models, 0);
  ls::io::save_checkpoint(folder / "checkpoint.safetensors",
                          {.model = ls::state_dict(models),
                           .optimizer = sgd.state_dict(),
                           .random = ls::io::random_state(),
                           .epoch = 7,
                           .step = 1234567890123,
                           .metadata = {{"by", "lockstep é\n"}}});

  const ls::NoGradGuard no_grad;
  ls::eval(models);
  const ls::Tensor sequences = numbers({7, 2, 3}, 1).to(ls::Dtype::f32);
  const ls::Tensor tokens = numbers({6, 2, 8}, 2).to(ls::Dtype::f32);
  const ls::Tensor images = numbers({2, 2, 8, 8}, 3).to(ls::Dtype::f32);
  const auto [output, state] = models.lstm(sequences);
  const auto [seen, weights] = models.attention(tokens, tokens, tokens, {.is_causal = true});
  ls::io::save_file({{"lstm.input", sequences},
                     {"lstm.output", output},
                     {"lstm.h", std::get<0>(state)},
                     {"lstm.c", std::get<1>(state)},
                     {"attention.input", tokens},
                     {"attention.output", seen},
                     {"attention.weights", weights},
                     {"convnet.input", images},
                     {"convnet.output", models.convnet.forward(images)}},
                    folder / "forward.safetensors");

  const ls::Tensor values = numbers({2, 3}, 4);
  ls::io::save_file({{"f64", values},
                     {"f32", values.to(ls::Dtype::f32)},
                     {"f16", values.to(ls::Dtype::f16)},
                     {"i64", ls::tensor<std::int64_t>({-(std::int64_t{1} << 62), 5})},
                     {"i32", ls::tensor<std::int32_t>({-7, 8})},
                     {"u8", ls::tensor<std::uint8_t>({0, 255})},
                     {"bool", ls::eq(ls::tensor({1.0, 2.0}), ls::tensor({1.0, 3.0}))},
                     {"scalar", ls::full({}, -2.5)},
                     {"empty", ls::zeros({0, 4})},
                     {"transposed", ls::transpose(values, 0, 1)},
                     {"naïve \"name\"\n", ls::ones({1})}},
                    folder / "dtypes.safetensors");
  ls::io::save_file({{"bf16", values.to(ls::Dtype::bf16)}}, folder / "bf16.safetensors");
}

// Throws unless both have the same dtype, shape and values.
void expect_same(const std::string& name, const ls::Tensor& found, const ls::Tensor& wanted) {
  ls::check<ls::DataError>(found.dtype() == wanted.dtype() && found.sizes() == wanted.sizes(), name,
                           ": expected ", wanted.dtype(), " of ", wanted.sizes(), ", got ",
                           found.dtype(), " of ", found.sizes());
  const auto values = found.to(ls::Dtype::f64).to_vector<double>();
  const auto expected = wanted.to(ls::Dtype::f64).to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    ls::check<ls::DataError>(values[i] == expected[i], name, ": element ", i, " is ", values[i],
                             ": expected ", expected[i]);
  }
}

void read(const std::filesystem::path& folder) {
  const Models models;
  ls::load_state_dict(models, ls::io::load_file(folder / "python.safetensors"));
  for (const ls::NamedTensor& entry : ls::state_dict(models)) {
    expect_same(entry.name, entry.tensor, value_of(entry.name, entry.tensor, 5));
  }

  const ls::io::SafetensorsFile file(folder / "python_dtypes.safetensors");
  ls::check<ls::DataError>(file.metadata() == ls::io::Metadata{{"by", "python é\n"}},
                           "the metadata is not Python's");
  const ls::Tensor values = numbers({3, 2}, 6);
  const std::vector<ls::NamedTensor> wanted = {
      {"f64", values},
      {"f32", values.to(ls::Dtype::f32)},
      {"f16", values.to(ls::Dtype::f16)},
      {"i64", ls::tensor<std::int64_t>({std::int64_t{1} << 52, -5})},
      {"i32", ls::tensor<std::int32_t>({7, -8})},
      {"u8", ls::tensor<std::uint8_t>({254, 1})},
      {"bool", ls::eq(ls::tensor({1.0, 2.0}), ls::tensor({2.0, 2.0}))},
      {"scalar", ls::full({}, 1.5)},
      {"empty", ls::zeros({4, 0})},
      {"naïve \"name\"\n", ls::zeros({2})}};
  ls::check<ls::DataError>(file.keys().size() == wanted.size(), "expected ", wanted.size(),
                           " tensors, got ", file.keys().size());
  for (const auto& [name, tensor] : wanted) expect_same(name, file.get_tensor(name), tensor);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc == 3 ? argv[1] : "";
  try {
    if (mode == "write") {
      write(argv[2]);
    } else if (mode == "read") {
      read(argv[2]);
    } else {
      std::cerr << "usage: python_models write|read FOLDER\n";
      return 2;
    }
  } catch (const std::exception& error) {
    std::cerr << "python_models: " << error.what() << '\n';
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
