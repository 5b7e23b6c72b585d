// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/elementwise.hpp>

#include <lockstep/autograd/engine.hpp>
#include <lockstep/backend/host/host_stream.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/cat.hpp>
#include <lockstep/ops/compare.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <latch>
#include <vector>

namespace lockstep {
namespace elementwise_test {

// Switches a device's compute stream to queued, as asynchronous as a GPU's, and back.
class Queued {
 public:
  explicit Queued(const Device& device)
      : stream_(static_cast<detail::HostStream&>(default_stream(device).state())) {
    stream_.set_mode(detail::HostStream::Mode::queued);
  }
  Queued(const Queued&) = delete;
  Queued& operator=(const Queued&) = delete;
  ~Queued() { stream_.set_mode(detail::HostStream::Mode::immediate); }

  void hold(std::latch& gate) {
    stream_.submit([&gate] { gate.wait(); });
  }

 private:
  detail::HostStream& stream_;
};

// Everything is issued, and every temporary dead, before any of it has run.
TEST(Elementwise, NothingIsNeededOfTheCallerOnceAnOperationIsIssued) {
  const Device device("cpu:6");
  const Tensor x = arange(6, {.dtype = Dtype::f32, .device = device}).reshape({2, 3});
  x.requires_grad_();
  std::latch gate(1);
  Queued queued(device);
  queued.hold(gate);
  Tensor count;
  Tensor changed;
  {
    const Tensor y = relu(x.t() - 1) * 2 + sum(x, {0}).reshape({3, 1});
    const Tensor z = cat({y, exp(y * 0)}, 1).transpose(0, 1).contiguous();
    sum(z * z).backward();
    count = sum(eq(argmax(z, 1), argmax(z + 1, 1)));
    changed = x.detach() * 1;
    changed.narrow(1, 1, 1).fill_(9).mul_(2).add_(ones({2, 1}, {.device = device}));
  }
  EXPECT_FALSE(default_stream(device).query());
  gate.count_down();
  EXPECT_EQ(count.item(), 4);
  EXPECT_EQ(changed.to_vector<float>(), (std::vector<float>{0, 19, 2, 3, 19, 5}));

  const Tensor again = x.detach().to(Device()).requires_grad_();
  const Tensor y = relu(again.t() - 1) * 2 + sum(again, {0}).reshape({3, 1});
  sum(square(y)).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), again.grad().to_vector<float>());
}

TEST(Elementwise, OfTensorsWithoutElements) {
  const Tensor none = zeros({0, 3});
  EXPECT_EQ(exp(none).sizes(), (Shape{0, 3}));
  EXPECT_EQ((none * none).sizes(), (Shape{0, 3}));
  EXPECT_EQ((none.t() + zeros({3, 1})).sizes(), (Shape{3, 0}));
  const Tensor x = zeros({0}, {.requires_grad = true});
  sum(x * x).backward();
  EXPECT_EQ(x.grad().sizes(), (Shape{0}));
}

TEST(Elementwise, BroadcastShapes) {
  EXPECT_EQ(detail::broadcast_shapes("add", {2, 1, 3}, {4, 1}), (Shape{2, 4, 3}));
  EXPECT_EQ(detail::broadcast_shapes("add", {}, {4}), (Shape{4}));
  EXPECT_EQ(detail::broadcast_shapes("add", {0, 1}, {1, 5}), (Shape{0, 5}));
  EXPECT_THROW((void)detail::broadcast_shapes("add", {0}, {2}), ShapeError);
}

}  // namespace elementwise_test
}  // namespace lockstep
