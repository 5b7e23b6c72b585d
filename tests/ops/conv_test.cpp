// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/engine.hpp>
#include <lockstep/backend/host/blas.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/conv.hpp>
#include <lockstep/ops/kernels/conv_tiles.hpp>
#include <lockstep/ops/kernels/vector_math.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/gradcheck.hpp"
#include "support/varied.hpp"

namespace lockstep {
namespace conv_test {

using testing::all_close;
using testing::expect_error;
using testing::gradcheck;
using testing::gradgradcheck;
using testing::varied;
using testing::varied_leaf;

struct Case {
  Shape x, weight;
  Size2d stride = 1;
  Size2d padding = 0;
  Size2d dilation = 1;
  std::int64_t groups = 1;
};

Tensor convolved(const Case& c, const Tensor& x, const Tensor& weight, const Tensor& bias = {}) {
  return conv2d(x, weight, bias, c.stride, c.padding, c.dilation, c.groups);
}

// Few and many columns an image, every kind of edge, groups of one channel and of several.
std::vector<Case> cases() {
  return {
      {{2, 1, 5, 5}, {3, 1, 3, 3}},
      {{3, 2, 5, 6}, {2, 2, 2, 3}},
      {{2, 2, 5, 5}, {2, 2, 3, 3}, 2},
      {{2, 2, 5, 4}, {2, 2, 3, 2}, 1, 1},
      {{1, 2, 5, 6}, {2, 2, 3, 3}, {2, 3}, {2, 1}},
      {{2, 1, 2, 2}, {1, 1, 5, 5}, 1, 3},       // kernel elements that see padding alone
      {{2, 1, 1, 3}, {1, 1, 1, 1}, 4, {0, 2}},  // windows that see padding alone
      {{1, 1, 4, 4}, {1, 1, 4, 4}},
      {{2, 2, 6, 5}, {1, 2, 3, 2}, 1, 1, {2, 3}},
      {{2, 4, 5, 4}, {2, 2, 3, 3}, 1, 1, 1, 2},
      {{2, 3, 4, 4}, {6, 1, 2, 2}, {1, 2}, {1, 0}, 1, 3},  // two output channels for each input
      {{2, 3, 5, 5}, {3, 1, 3, 3}, 2, {1, 2}, {1, 2}, 3},  // depthwise
      {{2, 4, 3, 6}, {2, 2, 2, 2}, 1, {0, 1}, 1, 2},
  };
}

// The definition, one output element at a time.
Tensor by_definition(const Case& c, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const auto positions = [](std::int64_t size, std::int64_t kernel, std::int64_t stride,
                            std::int64_t padding, std::int64_t dilation) {
    return (size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
  };
  const std::int64_t out_h =
      positions(x.size(2), weight.size(2), c.stride.height, c.padding.height, c.dilation.height);
  const std::int64_t out_w =
      positions(x.size(3), weight.size(3), c.stride.width, c.padding.width, c.dilation.width);
  const std::vector<double> in = x.to_vector<double>();
  const std::vector<double> w = weight.to_vector<double>();
  const std::vector<double> b = bias.to_vector<double>();
  std::vector<double> out;
  for (std::int64_t n = 0; n < x.size(0); ++n) {
    for (std::int64_t o = 0; o < weight.size(0); ++o) {
      const std::int64_t first = o * c.groups / weight.size(0) * weight.size(1);  // of its group
      for (std::int64_t y = 0; y < out_h; ++y) {
        for (std::int64_t z = 0; z < out_w; ++z) {
          double sum = b[static_cast<std::size_t>(o)];
          for (std::int64_t i = 0; i < weight.size(1); ++i) {
            for (std::int64_t ky = 0; ky < weight.size(2); ++ky) {
              for (std::int64_t kx = 0; kx < weight.size(3); ++kx) {
                const std::int64_t row =
                    y * c.stride.height + ky * c.dilation.height - c.padding.height;
                const std::int64_t col =
                    z * c.stride.width + kx * c.dilation.width - c.padding.width;
                if (row < 0 || row >= x.size(2) || col < 0 || col >= x.size(3)) continue;
                sum += in[static_cast<std::size_t>(
                           ((n * x.size(1) + first + i) * x.size(2) + row) * x.size(3) + col)] *
                       w[static_cast<std::size_t>(
                           ((o * weight.size(1) + i) * weight.size(2) + ky) * weight.size(3) + kx)];
              }
            }
          }
          out.push_back(sum);
        }
      }
    }
  }
  return from_values(out, {x.size(0), weight.size(0), out_h, out_w}, x.device());
}

TEST(Conv2d, AgreesWithTheDefinition) {
  std::vector<Case> all = cases();
  all.push_back({{7, 3, 12, 12}, {4, 3, 5, 5}});  // four images at once, and three left over
  all.push_back({{2, 1, 28, 28}, {3, 1, 5, 5}});  // one image at once
  all.push_back({{300, 1, 2, 2}, {1, 1, 2, 2}});  // one pixel an image
  all.push_back({{7, 6, 12, 12}, {4, 3, 5, 5}, 1, 0, 1, 2});  // groups of several images at once
  all.push_back({{2, 4, 28, 28}, {4, 1, 3, 3}, 1, 1, 1, 4});
  for (const Case& c : all) {
    const Tensor x = varied(c.x);
    const Tensor weight = varied(c.weight, 1);
    const Tensor bias = varied({c.weight[0]}, 2);
    const Tensor expected = by_definition(c, x, weight, bias);
    EXPECT_TRUE(all_close(convolved(c, x, weight, bias), expected, 1e-12, 1e-12))
        << c.x << c.weight;
    const Tensor none = zeros({c.weight[0]}, bias.options());
    EXPECT_TRUE(all_close(convolved(c, x, weight), by_definition(c, x, weight, none), 1e-12, 1e-12))
        << c.x << c.weight;
  }
}

// Groups of one output channel are summed in another way than products; both give the same.
TEST(Conv2d, OfGroupsIsThatOfAWeightWithZeros) {
  const std::vector<Case> all{
      {{2, 3, 37, 21}, {3, 1, 3, 3}, 1, 1, 1, 3},
      {{3, 3, 6, 50}, {3, 1, 5, 3}, {1, 2}, {4, 1}, 1, 3},
      {{2, 6, 9, 40}, {3, 2, 3, 5}, {2, 3}, {0, 3}, {2, 1}, 3},
      {{1, 4, 3, 3}, {4, 1, 3, 3}, 2, 1, 1, 4},
      {{2, 2, 20, 17}, {2, 1, 2, 2}, {5, 4}, {1, 0}, {3, 4}, 2},  // pixels that no kernel sees
      {{2, 2, 4, 4}, {2, 1, 3, 3}, 3, {6, 9}, 1, 2},              // results of padding alone
      {{2, 2, 4, 4}, {2, 1, 2, 2}, 1, 100, {101, 150}, 2},        // hardly anything but padding
  };
  for (const Case& c : all) {
    const std::int64_t channels = c.weight[1];
    const Tensor x = varied(c.x).detach().requires_grad_();
    const Tensor weight = varied(c.weight, 1).detach().requires_grad_();
    const Tensor bias = varied({c.weight[0]}, 2).detach();
    Case one = c;
    one.groups = 1;
    one.weight[1] = c.x[1];
    const Tensor all_channels = zeros(one.weight, weight.options());
    const auto of_group = [&](const Tensor& whole, std::int64_t o) {
      return whole.narrow(0, o, 1).narrow(1, o * channels, channels);
    };
    for (std::int64_t o = 0; o < c.groups; ++o) {
      detail::copy_into(of_group(all_channels, o), weight.detach().narrow(0, o, 1));
    }
    const Tensor other_x = x.detach().requires_grad_();
    const Tensor other_weight = all_channels.detach().requires_grad_();
    const Tensor y = convolved(c, x, weight, bias);
    const Tensor other_y = convolved(one, other_x, other_weight, bias);
    EXPECT_TRUE(all_close(y, other_y, 1e-12, 1e-12)) << c.x << c.weight;
    const Tensor grad = varied(y.sizes(), 3).detach();
    y.backward(grad);
    other_y.backward(grad);
    EXPECT_TRUE(all_close(x.grad(), other_x.grad(), 1e-12, 1e-12)) << c.x << c.weight;
    for (std::int64_t o = 0; o < c.groups; ++o) {
      EXPECT_TRUE(
          all_close(weight.grad().narrow(0, o, 1), of_group(other_weight.grad(), o), 1e-12, 1e-12))
          << c.x << c.weight;
    }
  }
}

// Whole numbers so small that sums in f32 are exact: these have tiles, those in f64 products.
TEST(Conv2d, GivesTheSameInF32AsInF64) {
  const std::vector<Case> all{
      {{5, 16, 7, 7}, {16, 16, 3, 3}, 1, 1},
      {{3, 12, 14, 14}, {32, 12, 3, 3}, 1, 1},
      {{7, 64, 4, 4}, {64, 64, 3, 3}, 1, 1},
      {{3, 16, 14, 14}, {32, 16, 3, 3}, 2, 1},
      {{3, 8, 12, 12}, {48, 8, 5, 5}},                            // panels of 16
      {{2, 20, 13, 11}, {24, 20, 3, 3}, {2, 1}, {1, 2}, {1, 2}},  // segments that overlap
      {{3, 16, 8, 8}, {32, 8, 3, 3}, 1, 1, 1, 2},                 // groups
      {{2, 8, 9, 30}, {16, 8, 2, 5}, {3, 2}, {1, 3}, {2, 1}},
      {{2, 64, 5, 7}, {15, 64, 1, 1}, 1, {2, 0}},  // rows of padding alone
      {{2, 8, 4, 4}, {16, 8, 3, 3}, 3, {6, 9}},    // kernel rows of it alone
  };
  const auto whole = [](const Shape& shape, std::int64_t seed) {
    std::vector<double> values(static_cast<std::size_t>(numel(shape)));
    for (double& value : values) value = static_cast<double>((seed += 37) % 13 - 6);
    return from_values(values, shape, Device("cpu:0"));
  };
  for (const Case& c : all) {
    const auto results = [&](Dtype dtype) {
      const Tensor x = whole(c.x, 1).to(dtype).detach().requires_grad_();
      const Tensor weight = whole(c.weight, 2).to(dtype).detach().requires_grad_();
      const Tensor y = convolved(c, x, weight, whole({c.weight[0]}, 3).to(dtype));
      y.backward(whole(y.sizes(), 4).to(dtype));
      return std::vector<Tensor>{y.detach(), x.grad(), weight.grad()};
    };
    const std::vector<Tensor> narrow = results(Dtype::f32);
    const std::vector<Tensor> wide = results(Dtype::f64);
    for (std::size_t i = 0; i < wide.size(); ++i) {
      EXPECT_TRUE(all_close(narrow[i], wide[i], 0, 0)) << "result " << i << c.x << c.weight;
    }
  }
}

TEST(Conv2d, IsByTilesWhereTheyFit) {
  using detail::conv_tiles_size;
  using detail::ConvPass;
  // Square kernels with a padding that keeps the size.
  const auto passes = [](std::int64_t channels, std::int64_t outs, std::int64_t size,
                         std::int64_t stride, std::int64_t kernel = 3) {
    const std::int64_t out = (size - 1) / stride + 1;
    const std::int64_t padding = kernel / 2;
    const detail::ConvGeometry g{2,      channels, size,    size, outs, kernel, kernel, stride,
                                 stride, padding,  padding, 1,    1,    1,      out,    out};
    return std::vector<bool>{conv_tiles_size(ConvPass::forward, g) > 0,
                             conv_tiles_size(ConvPass::input_grad, g) > 0,
                             conv_tiles_size(ConvPass::weight_grad, g) > 0};
  };
  using All = std::vector<bool>;
  const bool has =
      detail::vectorized::best_instructions() >= detail::vectorized::Instructions::avx2;
  EXPECT_EQ(passes(16, 16, 14, 1), (All{has, has, has}));
  EXPECT_EQ(passes(16, 32, 14, 2), (All{has, false, has}));
  EXPECT_EQ(passes(1, 32, 28, 1), (All{false, false, false}));
  EXPECT_EQ(passes(16, 16, 3, 1), (All{false, false, has}));
  EXPECT_EQ(passes(64, 64, 14, 1, 1), (All{false, false, false}));
  EXPECT_EQ(passes(512, 512, 14, 1), (All{false, false, has}));
  const HostMathThreadsGuard two(2);
  const bool alone = has && host_math_threads() == 1;  // a BLAS may know no other number
  EXPECT_EQ(passes(16, 16, 14, 1), (All{alone, alone, alone}));
}

TEST(Conv2d, TakesNoInputOrOutputChannels) {
  const Tensor bias = arange(2, {.device = "cpu:0"}).to(Dtype::f32) + 1;
  const Tensor y = conv2d(zeros({3, 0, 8, 8}, {.device = "cpu:0"}),
                          zeros({2, 0, 3, 3}, {.device = "cpu:0"}), bias, 1, 1);
  EXPECT_EQ(y.sizes(), (Shape{3, 2, 8, 8}));
  EXPECT_EQ(y.sum().item(), 3 * 64 * 3);

  const Tensor x = ones({3, 16, 8, 8}, {.device = "cpu:0"}).requires_grad_();
  const Tensor none = conv2d(x, zeros({0, 16, 3, 3}, {.device = "cpu:0"}), {}, 1, 1);
  EXPECT_EQ(none.sizes(), (Shape{3, 0, 8, 8}));
  none.sum().backward();
  EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>(3 * 16 * 64, 0));
}

// Each group is a convolution of its own, of its share of the channels.
TEST(Conv2d, TakesAnyNumberOfGroupsOfNoChannels) {
  const Tensor x = ones({1, 0, 3, 3}, {.requires_grad = true});
  const Tensor y = conv2d(x, zeros({0, 0, 1, 1}), {}, 1, 0, 1, INT64_MAX);
  EXPECT_EQ(y.sizes(), (Shape{1, 0, 3, 3}));
  y.sum().backward();
  EXPECT_EQ(x.grad().sizes(), x.sizes());
}

TEST(Conv2d, TakesAnyNumberOfImagesOfNoChannels) {
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  const Tensor x = zeros({kMany, 0, 3, 3}, {.requires_grad = true});
  const Tensor weight = zeros({0, 0, 3, 3}, {.requires_grad = true});
  const Tensor y = conv2d(x, weight);
  EXPECT_EQ(y.sizes(), (Shape{kMany, 0, 1, 1}));
  y.sum().backward();
  EXPECT_EQ(x.grad().sizes(), x.sizes());
  EXPECT_EQ(weight.grad().sizes(), weight.sizes());
}

TEST(Conv2d, TakesGroupsOfOneImageAndOfAnEmptyBatch) {
  const Tensor image = varied({4, 5, 4});
  const Tensor weight = varied_leaf({6, 2, 2, 3}, 1);
  const Tensor y = conv2d(image, weight, {}, 1, 0, 1, 2);
  std::vector<double> expected;
  for (std::int64_t group = 0; group < 2; ++group) {
    const Tensor x = detail::make_view(image, {1, 2, 5, 4}, {80, 20, 4, 1}, group * 40);
    const Tensor w = detail::make_view(weight, {3, 2, 2, 3}, weight.strides(), group * 36);
    const std::vector<double> part = conv2d(x, w).to_vector<double>();
    expected.insert(expected.end(), part.begin(), part.end());
  }
  EXPECT_EQ(y.to_vector<double>(), expected);

  const Tensor none = conv2d(varied({0, 4, 5, 4}), weight, {}, 1, 0, 1, 2);
  EXPECT_EQ(none.sizes(), (Shape{0, 6, 4, 2}));
  none.backward(none.detach());
  EXPECT_EQ(weight.grad().to_vector<double>(), std::vector<double>(72, 0));
}

TEST(Conv2d, TakesOneImageAndAnEmptyBatch) {
  const Tensor weight = varied({3, 2, 2, 2}, 1);
  const Tensor image = varied({2, 4, 5});
  const Tensor y = conv2d(image, weight);
  EXPECT_EQ(y.sizes(), (Shape{3, 3, 4}));
  EXPECT_EQ(y.to_vector<double>(), conv2d(image.reshape({1, 2, 4, 5}), weight).to_vector<double>());

  const Tensor leaf = weight.requires_grad_();
  const Tensor bias = varied_leaf({3}, 2);
  const Tensor none = conv2d(varied({0, 2, 4, 5}), leaf, bias);
  EXPECT_EQ(none.sizes(), (Shape{0, 3, 3, 4}));
  none.backward(none.detach());
  EXPECT_EQ(leaf.grad().to_vector<double>(), std::vector<double>(24, 0));
  EXPECT_EQ(bias.grad().to_vector<double>(), std::vector<double>(3, 0));

  // Not even of images that are larger than the memory.
  const std::int64_t great = std::int64_t{1} << 24;
  const TensorOptions f32{.dtype = Dtype::f32};
  for (const std::int64_t groups : {1, 2}) {
    const Tensor w = ones({2, 2 / groups, 3, 3}, f32).requires_grad_();
    const Tensor x = zeros({0, 2, great, great}, f32).requires_grad_();
    const Tensor empty = conv2d(x, w, {}, 1, 1, 1, groups);
    EXPECT_EQ(empty.sizes(), x.sizes());
    empty.backward(empty.detach());
    EXPECT_EQ(w.grad().to_vector<float>(),
              std::vector<float>(static_cast<std::size_t>(w.numel()), 0));
  }
}

TEST(Conv2d, TakesAStrideLongerThanTheImage) {
  std::vector<std::vector<double>> results[2];
  for (const std::int64_t stride : {std::int64_t{9}, INT64_MAX}) {
    const Tensor x = varied_leaf({2, 2, 4, 5});
    const Tensor weight = varied_leaf({3, 2, 2, 3}, 1);
    const Tensor y = conv2d(x, weight, {}, stride, 2);
    EXPECT_EQ(y.sizes(), (Shape{2, 3, 1, 1}));
    y.backward(varied({2, 3, 1, 1}, 2));
    results[stride == INT64_MAX] = {y.to_vector<double>(), x.grad().to_vector<double>(),
                                    weight.grad().to_vector<double>()};
  }
  EXPECT_EQ(results[0], results[1]);
}

// What is nearly all padding would take more memory than there is, if the images were padded.
TEST(Conv2d, TakesDilationsAndStridesFarLongerThanTheImage) {
  struct Sizes {
    Size2d stride, padding, dilation;
  };
  for (const std::int64_t far : {std::int64_t{1} << 20, std::int64_t{1} << 40, INT64_MAX / 8}) {
    for (const Sizes& s : {Sizes{1, 2 * far, 2 * far}, Sizes{far, 2 * far - 3, 1},
                           Sizes{far / 2 * 3, far / 2 * 3 - 3, 1}}) {
      const auto results = [&](Dtype dtype) {
        const Tensor x = varied({2, 16, 8, 8}).to(dtype).detach().requires_grad_();
        const Tensor weight = varied({16, 16, 3, 3}, 1).to(dtype).detach().requires_grad_();
        const Tensor y = conv2d(x, weight, {}, s.stride, s.padding, s.dilation);
        y.backward(varied(y.sizes(), 2).to(dtype));
        return std::vector<Tensor>{y.detach(), x.grad(), weight.grad()};
      };
      const std::vector<Tensor> narrow = results(Dtype::f32);
      const std::vector<Tensor> wide = results(Dtype::f64);
      for (std::size_t i = 0; i < wide.size(); ++i) {
        EXPECT_TRUE(all_close(narrow[i].to(Dtype::f64), wide[i], 1e-4, 1e-4))
            << "result " << i << " of " << s.stride << s.padding << s.dilation;
        EXPECT_GT(abs(wide[i]).sum().item(), 1);
      }
    }
  }
}

TEST(Conv2d, HasFirstAndSecondDerivatives) {
  for (const Case& c : cases()) {
    const auto f = [&c](const std::vector<Tensor>& in) {
      return convolved(c, in[0], in[1], in.size() > 2 ? in[2] : Tensor());
    };
    const Tensor x = varied_leaf(c.x);
    const Tensor weight = varied_leaf(c.weight, 1);
    const Tensor bias = varied_leaf({c.weight[0]}, 2);
    EXPECT_TRUE(gradcheck(f, {x, weight, bias})) << c.x << c.weight;
    EXPECT_TRUE(gradgradcheck(f, {x, weight})) << c.x << c.weight;
  }
  const auto f = [](const Tensor& x, const Tensor& w, const Tensor& b) { return conv2d(x, w, b); };
  EXPECT_TRUE(gradgradcheck(
      f, {varied_leaf({2, 1, 3, 3}), varied_leaf({2, 1, 2, 2}, 1), varied_leaf({2}, 2)}));
}

TEST(Conv2d, GivesTheSameGradientsForTheImagesTogetherAndOneByOne) {
  const Tensor x = varied({9, 3, 10, 10});
  const Tensor grad = varied({9, 4, 6, 6}, 3);
  const Tensor together = varied_leaf({4, 3, 5, 5}, 1);
  conv2d(x, together).backward(grad);
  const Tensor single = varied_leaf({4, 3, 5, 5}, 1);
  for (std::int64_t i = 0; i < 9; ++i) {
    const Tensor image = detail::make_view(x, {1, 3, 10, 10}, x.strides(), i * 300);
    conv2d(image, single).backward(detail::make_view(grad, {1, 4, 6, 6}, grad.strides(), i * 144));
  }
  EXPECT_TRUE(all_close(together.grad(), single.grad(), 1e-12, 1e-12));
}

TEST(Conv2d, TakesTensorsThatAreNotContiguous) {
  const Tensor base = varied({2, 5, 6, 3});
  const Tensor x = detail::make_view(base, {2, 3, 5, 6}, {90, 1, 18, 3}, 0);
  const Tensor weight = varied({2, 3, 2, 2}, 1);
  EXPECT_EQ(conv2d(x, weight).to_vector<double>(),
            conv2d(x.contiguous(), weight).to_vector<double>());
}

TEST(Conv2d, GivesTheSameBitsToConcurrentCallersEveryTime) {
  const Shape shape{8, 4, 12, 12};
  const Shape kernel{8, 4, 5, 5};
  const auto step = [&](Device device) {
    const Tensor x = varied_leaf<float>(shape, 0, device);
    const Tensor weight = varied_leaf<float>(kernel, 1, device);
    const Tensor bias = varied_leaf<float>({8}, 2, device);
    conv2d(x, weight, bias).backward(varied<float>({8, 8, 8, 8}, 3, device));
    std::vector<float> all = x.grad().to_vector<float>();
    for (const Tensor& t : {weight, bias}) {
      const std::vector<float> more = t.grad().to_vector<float>();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  };
  const std::vector<float> expected = step(Device("cpu:0"));
  std::latch start(3);
  std::atomic<int> different{0};
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < 3; ++i) {
      callers.emplace_back([&, i] {
        start.arrive_and_wait();
        for (int round = 0; round < 10; ++round) {
          if (step(Device(DeviceType::cpu, i)) != expected) ++different;
        }
      });
    }
  }
  EXPECT_EQ(different, 0);
}

TEST(Conv2d, ComputesOnlyTheGradientsThatAreAskedFor) {
  const Tensor x = varied({2, 1, 5, 5});
  const Tensor weight = varied_leaf({3, 1, 3, 3}, 1);
  const Tensor bias = varied({3}, 2);
  conv2d(x, weight, bias).backward(varied({2, 3, 3, 3}, 3));
  EXPECT_FALSE(x.grad().defined());
  EXPECT_TRUE(weight.grad().defined());
  EXPECT_FALSE(bias.grad().defined());
}

TEST(Conv2d, IsOfTheSameGroupsAndDilationUnderAutocast) {
  const Tensor x = varied<float>({1, 4, 5, 5});
  const Tensor weight = varied<float>({4, 2, 2, 2}, 1);
  const Tensor expected = conv2d(x, weight, {}, 1, 1, {1, 2}, 2);
  const AutocastGuard guard(Dtype::bf16);
  const Tensor y = conv2d(x, weight, {}, 1, 1, {1, 2}, 2);
  EXPECT_EQ(y.dtype(), Dtype::bf16);
  EXPECT_TRUE(all_close(y.to(Dtype::f32), expected, 0.03, 0.03));
}

TEST(Conv2d, NamesBothOperandsInItsErrors) {
  const Tensor x = varied({2, 3, 8, 8});
  const Tensor weight = varied({4, 3, 5, 5});
  expect_error<ShapeError>(
      [&] {
        conv2d(x, varied({4, 2, 5, 5}));
      },
      {"conv2d", "[2, 3, 8, 8]", "[4, 2, 5, 5]", "2 channels", "3 channels"});
  expect_error<ShapeError>(
      [&] {
        conv2d(varied({2, 3, 4, 4}), weight);
      },
      {"conv2d", "[2, 3, 4, 4]", "[4, 3, 5, 5]", "[5, 5]"});
  expect_error<ShapeError>(
      [&] {
        conv2d(varied({8, 8}), weight);
      },
      {"an input of shape [batch", "[8, 8]", "[4, 3, 5, 5]"});
  expect_error<ShapeError>([&] { conv2d(x, zeros({4, 3, 0, 5}, x.options())); }, {"[0, 5]"});
  expect_error<ShapeError>([&] { conv2d(x, zeros({4, 3, 5, 0}, x.options())); }, {"[5, 0]"});
  expect_error<ShapeError>(
      [&] {
        conv2d(zeros({2, 3, 0, 0}, x.options()), varied({4, 3, 1, 1}), {}, 1, 0, 2);
      },
      {"padded to [0, 0]"});
  expect_error<ShapeError>([&] { conv2d(x, weight, varied({3})); },
                           {"bias", "[3]", "[4, 3, 5, 5]"});
  expect_error<ValueError>([&] { conv2d(x, weight, {}, {0, 1}); }, {"stride", "[0, 1]"});
  expect_error<ValueError>([&] { conv2d(x, weight, {}, {1, 0}); }, {"stride", "[1, 0]"});
  expect_error<ValueError>([&] { conv2d(x, weight, {}, 1, {0, -1}); }, {"padding", "[0, -1]"});
  expect_error<ValueError>([&] { conv2d(x, weight, {}, 1, INT64_MAX); }, {"padding", "at most"});
  for (const std::int64_t padding : {std::int64_t{1} << 32, INT64_MAX / 4}) {
    expect_error<ShapeError>([&] { conv2d(x, weight, {}, 1, padding); }, {});
    const Tensor none = zeros({0, x.size(1), x.size(2), x.size(3)}, x.options());
    expect_error<ShapeError>([&] { conv2d(none, weight, {}, 1, padding); }, {});
  }
  expect_error<ValueError>([&] { conv2d(x, weight, {}, 1, 0, {1, 0}); }, {"dilation", "[1, 0]"});
  expect_error<ShapeError>(
      [&] {
        conv2d(x, weight, {}, 1, 0, {1, 2});
      },
      {"[2, 3, 8, 8]", "[4, 3, 5, 5]", "dilation [1, 2]"});
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  expect_error<ShapeError>([&] { conv2d(x, weight, {}, 1, 0, kMost); }, {"dilation"});
  for (const std::int64_t groups : {std::int64_t{0}, -kMost}) {
    expect_error<ValueError>([&] { conv2d(x, weight, {}, 1, 0, 1, groups); },
                             {"groups", std::to_string(groups)});
  }
  expect_error<ShapeError>([&] { conv2d(x, weight, {}, 1, 0, 1, 3); },
                           {"4 output channels", "[4, 3, 5, 5]", "3 groups"});
  expect_error<ShapeError>(
      [&] { conv2d(x, weight, {}, 1, 0, 1, 2); },
      {"[2, 3, 8, 8]", "[4, 3, 5, 5]", "groups = 2", "3 channels for each group"});
  expect_error<ShapeError>(
      [&] {
        conv2d(x, varied({0, 3, 5, 5}), {}, 1, 0, 1, kMost);
      },
      {"[2, 3, 8, 8]", "[0, 3, 5, 5]"});
  expect_error<DtypeError>([&] { conv2d(x, varied<float>({4, 3, 5, 5})); }, {"f64", "f32"});
  expect_error<DeviceError>(
      [&] {
        conv2d(x, varied({4, 3, 5, 5}, 0, Device("cpu:1")));
      },
      {"conv2d", "cpu:0", "cpu:1"});
}

TEST(Conv2d, KeepsNoOperandThatNoGradientNeeds) {
  for (const bool frozen : {false, true}) {
    Tensor x = varied_leaf({1, 2, 4, 4}) * 1;
    const Tensor weight = varied({3, 2, 3, 3}).requires_grad_(!frozen);
    const std::weak_ptr<detail::TensorImpl> kept = x.impl();
    const Tensor y = conv2d(x, weight);
    x = {};
    EXPECT_EQ(kept.expired(), frozen);
  }
}

}  // namespace conv_test
}  // namespace lockstep
