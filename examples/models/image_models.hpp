// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/lockstep.hpp>

#include <cstdint>
#include <optional>

// Models that tell clothes apart: images [batch, 1, 28, 28] in, a score for each of the 10 classes
// out. They are plain aggregates, so each has a function that makes one.
namespace example {

namespace ls = lockstep;

// Two layers of 256.
struct Mlp {
  ls::nn::Linear fc1, fc2, fc3;

  ls::Tensor forward(const ls::Tensor& images) {
    const ls::Tensor x = ls::relu(fc1(ls::flatten(images, 1)));
    return fc3(ls::relu(fc2(x)));
  }
};

inline Mlp make_mlp(ls::Dtype dtype) {
  return {.fc1{28 * 28, 256, {.dtype = dtype}},
          .fc2{256, 256, {.dtype = dtype}},
          .fc3{256, 10, {.dtype = dtype}}};
}

// A LeNet.
struct Cnn {
  ls::nn::Conv2d conv1, conv2;
  ls::nn::Linear fc1, fc2;

  ls::Tensor forward(const ls::Tensor& images) {
    ls::Tensor x = ls::relu(ls::max_pool2d(conv1(images), 2));
    x = ls::relu(ls::max_pool2d(conv2(x), 2));
    return fc2(ls::relu(fc1(ls::flatten(x, 1))));
  }
};

inline Cnn make_cnn(ls::Dtype dtype) {
  return {.conv1{1, 32, 5, {.dtype = dtype}},
          .conv2{32, 64, 5, {.dtype = dtype}},
          .fc1{64 * 4 * 4, 512, {.dtype = dtype}},
          .fc2{512, 10, {.dtype = dtype}}};
}

// Two convolutions of 3 × 3, each normalised, whose result is added to their input.
struct ResidualBlock {
  using Shortcut = ls::nn::Sequential<ls::nn::Conv2d, ls::nn::BatchNorm2d>;

  ls::nn::Conv2d conv1;
  ls::nn::BatchNorm2d bn1;
  ls::nn::Conv2d conv2;
  ls::nn::BatchNorm2d bn2;
  std::optional<Shortcut> downsample;  // where the result is of another shape than the input

  ls::Tensor forward(const ls::Tensor& x) {
    const ls::Tensor change = bn2(conv2(ls::relu(bn1(conv1(x)))));
    return ls::relu(change + (downsample ? (*downsample)(x) : x));
  }
};

// From `in` channels to `out`; a stride of 2 halves height and width.
inline ResidualBlock make_block(std::int64_t in, std::int64_t out, std::int64_t stride,
                                ls::Dtype dtype) {
  const auto conv = [dtype](std::int64_t from, std::int64_t to, std::int64_t kernel,
                            std::int64_t step) {
    return ls::nn::Conv2d{
        from, to, kernel, {.stride = step, .padding = kernel / 2, .bias = false, .dtype = dtype}};
  };
  ResidualBlock block{.conv1 = conv(in, out, 3, stride),
                      .bn1 = ls::nn::BatchNorm2d{out, {.dtype = dtype}},
                      .conv2 = conv(out, out, 3, 1),
                      .bn2 = ls::nn::BatchNorm2d{out, {.dtype = dtype}},
                      .downsample = {}};
  if (in != out || stride != 1) {
    block.downsample.emplace(conv(in, out, 1, stride), ls::nn::BatchNorm2d{out, {.dtype = dtype}});
  }
  return block;
}

// A small ResNet: 16, 32 and 64 channels on planes of 14 × 14, 7 × 7 and 4 × 4.
struct ResNet {
  ls::nn::Conv2d conv1;
  ls::nn::BatchNorm2d bn1;
  ResidualBlock layer1, layer2, layer3;
  ls::nn::Linear fc;

  ls::Tensor forward(const ls::Tensor& images) {
    ls::Tensor x = ls::max_pool2d(ls::relu(bn1(conv1(images))), 2);
    x = layer3.forward(layer2.forward(layer1.forward(x)));
    return fc(ls::mean(x, {2, 3}));
  }
};

inline ResNet make_resnet(ls::Dtype dtype) {
  return {.conv1{1, 16, 3, {.padding = 1, .bias = false, .dtype = dtype}},
          .bn1 = ls::nn::BatchNorm2d{16, {.dtype = dtype}},
          .layer1 = make_block(16, 16, 1, dtype),
          .layer2 = make_block(16, 32, 2, dtype),
          .layer3 = make_block(32, 64, 2, dtype),
          .fc{64, 10, {.dtype = dtype}}};
}

}  // namespace example
