// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/ops/conv.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <latch>
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
};

// Few and many columns an image, groups that divide the batch and that do not, every kind of edge.
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
  };
}

// The definition, one output element at a time.
Tensor by_definition(const Case& c, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const std::int64_t out_h =
      (x.size(2) + 2 * c.padding.height - weight.size(2)) / c.stride.height + 1;
  const std::int64_t out_w =
      (x.size(3) + 2 * c.padding.width - weight.size(3)) / c.stride.width + 1;
  const std::vector<double> in = x.to_vector<double>();
  const std::vector<double> w = weight.to_vector<double>();
  const std::vector<double> b = bias.to_vector<double>();
  std::vector<double> out;
  for (std::int64_t n = 0; n < x.size(0); ++n) {
    for (std::int64_t o = 0; o < weight.size(0); ++o) {
      for (std::int64_t y = 0; y < out_h; ++y) {
        for (std::int64_t z = 0; z < out_w; ++z) {
          double sum = b[static_cast<std::size_t>(o)];
          for (std::int64_t i = 0; i < x.size(1); ++i) {
            for (std::int64_t ky = 0; ky < weight.size(2); ++ky) {
              for (std::int64_t kx = 0; kx < weight.size(3); ++kx) {
                const std::int64_t row = y * c.stride.height + ky - c.padding.height;
                const std::int64_t col = z * c.stride.width + kx - c.padding.width;
                if (row < 0 || row >= x.size(2) || col < 0 || col >= x.size(3)) continue;
                sum += in[static_cast<std::size_t>(
                           ((n * x.size(1) + i) * x.size(2) + row) * x.size(3) + col)] *
                       w[static_cast<std::size_t>(
                           ((o * x.size(1) + i) * weight.size(2) + ky) * weight.size(3) + kx)];
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
  for (const Case& c : all) {
    const Tensor x = varied(c.x);
    const Tensor weight = varied(c.weight, 1);
    const Tensor bias = varied({c.weight[0]}, 2);
    const Tensor expected = by_definition(c, x, weight, bias);
    EXPECT_TRUE(all_close(conv2d(x, weight, bias, c.stride, c.padding), expected, 1e-12, 1e-12))
        << c.x << c.weight;
    const Tensor none = zeros({c.weight[0]}, bias.options());
    EXPECT_TRUE(all_close(conv2d(x, weight, {}, c.stride, c.padding),
                          by_definition(c, x, weight, none), 1e-12, 1e-12))
        << c.x << c.weight;
  }
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
}

TEST(Conv2d, HasFirstAndSecondDerivatives) {
  for (const Case& c : cases()) {
    const auto f = [&c](const std::vector<Tensor>& in) {
      return conv2d(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), c.stride, c.padding);
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
  expect_error<ShapeError>([&] { conv2d(varied({8, 8}), weight); }, {"[8, 8]", "[4, 3, 5, 5]"});
  expect_error<ShapeError>([&] { conv2d(x, weight, varied({3})); },
                           {"bias", "[3]", "[4, 3, 5, 5]"});
  expect_error<ValueError>([&] { conv2d(x, weight, {}, 0); }, {"stride", "[0, 0]"});
  expect_error<ValueError>([&] { conv2d(x, weight, {}, 1, {0, -1}); }, {"padding", "[0, -1]"});
  expect_error<DtypeError>([&] { conv2d(x, varied<float>({4, 3, 5, 5})); }, {"f64", "f32"});
  expect_error<DeviceError>(
      [&] {
        conv2d(x, varied({4, 3, 5, 5}, 0, Device("cpu:1")));
      },
      {"conv2d", "cpu:0", "cpu:1"});
}

}  // namespace conv_test
}  // namespace lockstep
