// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/memory/memory_limit.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/error.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/tensor/creation.hpp>

#include "cuda/schedules.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

// A GPU may run out of memory anywhere in a step: the error says which, and the model trains on.
namespace lockstep {
namespace out_of_memory_test {

using Values = std::vector<float>;

Tensor counting(const Shape& shape, float step) {
  Values values;
  for (std::int64_t i = 0; i < numel(shape); ++i) {
    values.push_back(step * static_cast<float>(i % 7 - 3));
  }
  return from_values(values, shape);
}

struct Net {
  nn::Linear in{6, 16};
  nn::Linear out{16, 3};

  Tensor forward(const Tensor& x) const { return out(tanh(in(x))); }
};

Net fixed_net() {
  Net net;
  net.in.weight.set_data(counting({16, 6}, 0.1F));
  net.in.bias.set_data(counting({16}, 0.05F));
  net.out.weight.set_data(counting({3, 16}, 0.07F));
  net.out.bias.set_data(counting({3}, 0.02F));
  return net;
}

class Training {
 public:
  explicit Training(const std::vector<Device>& devices)
      : model_(fixed_net(), devices),
        optimizer_(parameters(model_), {.lr = 0.05, .momentum = 0.9}) {}

  void forward_and_backward() {
    optimizer_.zero_grad();
    const Tensor y = model_(counting({10, 6}, 0.1F));
    (y * y).mean().backward();
  }
  void step() {
    forward_and_backward();
    optimizer_.step();
  }
  Values values() const {
    Values all;
    for (const Tensor& parameter : parameters(model_)) {
      const Values part = parameter.to("cpu").to_vector<float>();
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

 private:
  DataParallel<Net> model_;
  optim::SGD optimizer_;
};

// What the step says where `scarce` may have so many bytes more than it has; nothing if it fits.
std::string try_with(Training& training, Device scarce, std::size_t more) {
  std::string text;
  cuda::set_memory_limit(scarce, memory_stats(scarce).allocated_bytes + more);
  try {
    training.forward_and_backward();
  } catch (const OutOfMemoryError& error) {
    text = error.what();
  }
  cuda::set_memory_limit(scarce, SIZE_MAX);
  return text;
}

TEST(OutOfMemory, AnywhereInAStepLeavesTheModelUsable) {
  Training on_the_host({"cpu"});
  for (int i = 0; i < 3; ++i) on_the_host.step();
  const Values expected = on_the_host.values();

  for (const Device scarce : {Device("cuda:0"), Device("cuda:1")}) {
    testing::under_each_policy([&] {
      SCOPED_TRACE(scarce.str());
      Training training({"cuda:0", "cuda:1"});
      training.step();
      std::set<std::string> places;
      for (std::size_t more = 0;; more += 64) {
        const std::string text = try_with(training, scarce, more);
        if (text.empty()) break;
        ASSERT_LT(more, std::size_t{1} << 16) << text;
        EXPECT_NE(text.find(scarce.str() + " is out of memory: "), std::string::npos) << text;
        const std::size_t asked = text.find(" bytes were asked for");
        ASSERT_NE(asked, std::string::npos) << text;
        places.insert(text.substr(0, asked));
      }
      EXPECT_GE(places.size(), 3U);
      training.step();
      training.step();
      const Values values = training.values();
      ASSERT_EQ(values.size(), expected.size());
      for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], 1e-5F);
    });
  }
}

}  // namespace out_of_memory_test
}  // namespace lockstep
