// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/scatter_gather.hpp>
#include <lockstep/tensor/creation.hpp>

#include "support/gate.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace ls = lockstep;

namespace backward_order_test {

// Doubles in backward, and says when it has issued that.
struct Doubles {
  static constexpr const char* name = "doubles";
  std::atomic<bool>* issued;
  ls::Tensor forward(const ls::Tensor& x) const { return x * 1.0; }
  ls::Tensor backward(const ls::Backward&, const ls::Tensor& grad) const {
    const ls::Tensor twice = grad * 2.0;
    issued->store(true);
    return twice;
  }
};

// Gather's backward copies a gradient to another device, and its consumer there runs on the stream
// of its forward, which is not that device's default one.
TEST(BackwardOrder, AGradientFromAnotherDeviceIsWaitedForOnTheStreamOfItsConsumer) {
  const ls::Tensor x = ls::ones({4}, {.dtype = ls::Dtype::f64, .device = "cpu:1"});
  x.requires_grad_();
  const ls::Stream side = ls::pool_stream("cpu:1");
  std::atomic<bool> issued{false};
  side.wait_stream(ls::current_stream("cpu:1"));
  x.record_stream(side);
  ls::Tensor y;
  {
    const ls::StreamGuard guard(side);
    y = ls::apply(Doubles{&issued}, x);
  }
  ls::current_stream("cpu:1").wait_stream(side);
  const ls::Tensor whole = ls::gather(std::vector<ls::Tensor>{y}, "cpu:0");
  std::jthread backward;
  ls::testing::Gate gate;
  gate.hold(ls::copy_stream("cpu:1"));
  backward = std::jthread(
      [&] { whole.backward(ls::full({4}, 3, {.dtype = ls::Dtype::f64, .device = "cpu:0"})); });
  // Either the consumer's stream waits for the copy that the gate holds, or it has not waited.
  while (side.query() && !issued.load()) std::this_thread::yield();
  EXPECT_FALSE(issued.load());
  gate.open();
  backward.join();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{6, 6, 6, 6}));
}

}  // namespace backward_order_test
