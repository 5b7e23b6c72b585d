// SPDX-License-Identifier: Apache-2.0
//
// The three small models that `compare` trains on both sides; peers/*_steps.py and
// peers/libtorch_models.hpp have the same ones.
#pragma once

#include <lockstep/lockstep.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace compare {

namespace ls = lockstep;

inline ls::Tensor labels(std::int64_t count) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(i * 7 % 10);
  return ls::from_values(values, {count});
}

// Indices below `most`, scattered and the same in every run.
inline ls::Tensor numbers(const ls::Shape& shape, std::int64_t most) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(ls::numel(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::int64_t>(i * 7919) % most;
  }
  return ls::from_values(values, shape);
}

struct Tiny {
  static constexpr std::int64_t kBatch = 30;
  static constexpr double kMomentum = 0;
  ls::nn::Linear fc{5, 2};

  ls::Tensor forward(const ls::Tensor& x) { return fc(x); }
  static ls::Tensor input(std::int64_t rows) { return ls::randn({rows, 5}); }
  static ls::Tensor target(std::int64_t rows) { return ls::randn({rows, 2}); }
  static ls::Tensor loss(const ls::Tensor& y, const ls::Tensor& t) { return ls::mse_loss(y, t); }
};

struct Mlp {
  static constexpr std::int64_t kBatch = 256;
  static constexpr double kMomentum = 0.9;
  ls::nn::Linear fc1{784, 512}, fc2{512, 512}, fc3{512, 10};

  ls::Tensor forward(const ls::Tensor& x) { return fc3(ls::relu(fc2(ls::relu(fc1(x))))); }
  static ls::Tensor input(std::int64_t rows) { return ls::randn({rows, 784}); }
  static ls::Tensor target(std::int64_t rows) { return labels(rows); }
  static ls::Tensor loss(const ls::Tensor& y, const ls::Tensor& t) {
    return ls::cross_entropy(y, t);
  }
};

struct Cnn {
  static constexpr std::int64_t kBatch = 128;
  static constexpr double kMomentum = 0.9;
  ls::nn::Conv2d conv1{1, 32, 5}, conv2{32, 64, 5};
  ls::nn::Linear fc1{1024, 512}, fc2{512, 10};

  ls::Tensor forward(const ls::Tensor& images) {
    ls::Tensor x = ls::max_pool2d(ls::relu(conv1(images)), 2);
    x = ls::max_pool2d(ls::relu(conv2(x)), 2);
    return fc2(ls::relu(fc1(ls::flatten(x, 1))));
  }
  static ls::Tensor input(std::int64_t rows) { return ls::randn({rows, 1, 28, 28}); }
  static ls::Tensor target(std::int64_t rows) { return labels(rows); }
  static ls::Tensor loss(const ls::Tensor& y, const ls::Tensor& t) {
    return ls::cross_entropy(y, t);
  }
};

}  // namespace compare
