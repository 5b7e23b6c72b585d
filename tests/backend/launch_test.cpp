// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/streams.hpp>

#include "support/expect_error.hpp"
#include "support/gate.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <stdexcept>
#include <vector>

namespace lockstep {
namespace launch_test {

using testing::Gate;
using testing::QueuedCompute;
using testing::throws;

struct Scale {
  View<const float> in;
  View<float> out;
  float factor;
  void operator()(std::size_t i) const { out[i] = factor * in[i]; }
};

// Too large to be kept inside a queued operation.
struct AddTable {
  View<const float> in;
  View<float> out;
  std::array<float, 64> table;
  void operator()(std::size_t i) const { out[i] = in[i] + table[i % table.size()]; }
};

struct Reverse {
  View<const float> in;
  View<float> out;
  void operator()() const {
    for (std::size_t i = 0; i < in.size; ++i) out[in.size - 1 - i] = in[i];
  }
};

struct Throw {
  void operator()() const { throw std::domain_error("from the call"); }
};

struct Unregistered {
  View<float> out;
  void operator()(std::size_t i) const { out[i] = 0; }
  void operator()() const {}
};

std::vector<float> ascending(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
  return values;
}

TEST(Launch, RunsTheFunctorForEachIndex) {
  for (const std::size_t count : {1U, 2U, 15U, 16U, 17U, 1000U}) {
    const std::vector<float> in = ascending(count);
    std::vector<float> out(count + 1, -1);
    launch(current_stream("cpu:1"), count, Scale{{in.data(), count}, {out.data(), count}, 2});
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(out[i], 2 * in[i]);
    EXPECT_EQ(out[count], -1);
  }
}

TEST(Launch, RunsNothingForNoIndices) {
  const QueuedCompute queued;
  launch(current_stream("cpu:1"), 0, Scale{{}, {}, 2});
  EXPECT_TRUE(current_stream("cpu:1").query());
}

TEST(Launch, CopiesTheFunctorSoThatItMayGo) {
  const QueuedCompute queued;
  const std::vector<float> in = ascending(100);
  std::vector<float> scaled(100);
  std::vector<float> out(100);
  Gate gate;
  const Stream stream = current_stream("cpu:1");
  gate.hold(stream);
  {
    launch(stream, 100, Scale{{in.data(), 100}, {scaled.data(), 100}, 3});
    AddTable add{{scaled.data(), 100}, {out.data(), 100}, {}};
    add.table.fill(0.5F);
    launch(stream, 100, add);
    add.table.fill(-1000);
  }
  EXPECT_FALSE(stream.query());
  gate.open();
  stream.synchronize();
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(out[i], 3 * in[i] + 0.5F);
}

TEST(LaunchCall, RunsTheCallOnceInStreamOrder) {
  const std::vector<float> in = ascending(5);
  std::vector<float> reversed(5);
  std::vector<float> out(5);
  const auto run = [&] {
    const Stream stream = current_stream("cpu:1");
    launch_call(stream, Reverse{{in.data(), 5}, {reversed.data(), 5}});
    launch(stream, 5, Scale{{reversed.data(), 5}, {out.data(), 5}, 10});
    stream.synchronize();
    EXPECT_EQ(out, (std::vector<float>{40, 30, 20, 10, 0}));
  };
  run();
  reversed.assign(5, 0);
  const QueuedCompute queued;
  run();
}

TEST(LaunchCall, ThrowsAtTheCallOrAtTheNextSynchronize) {
  const Stream stream = current_stream("cpu:1");
  EXPECT_TRUE(throws<std::domain_error>([&] { launch_call(stream, Throw{}); }, "from the call"));
  const QueuedCompute queued;
  EXPECT_NO_THROW(launch_call(stream, Throw{}));
  EXPECT_TRUE(throws<std::domain_error>([&] { stream.synchronize(); }, "from the call"));
  EXPECT_NO_THROW(stream.synchronize());
}

// A stream of a GPU that is not there, which is all that a launch wants to know of it.
class GpuStream final : public detail::StreamState {
 public:
  GpuStream() : StreamState(Device("cuda:1")) {}
  bool idle() const override { return true; }
  detail::EventPtr record() override { return nullptr; }
  void wait(const detail::EventPtr&) override {}
  void synchronize() override {}
};

// Out of line: g++ would otherwise see that the object is no HostStream and warn of the branch that
// is not taken.
[[gnu::noinline]] Stream gpu_stream() {
  static GpuStream state;
  return Stream(state);
}

TEST(Launch, OnAGpuWithoutTheKernelIsAnErrorThatSaysWhatIsMissing) {
  const Stream stream = gpu_stream();
  float value = 1;
  EXPECT_TRUE(throws<DeviceError>(
      [&] {
        launch(stream, 1, Unregistered{{&value, 1}});
      },
      "no CUDA kernel for lockstep::launch_test::Unregistered on cuda:1: ",
      "include lockstep/cuda.hpp"));
  EXPECT_TRUE(throws<DeviceError>(
      [&] {
        launch_call(stream, Unregistered{{&value, 1}});
      },
      "no CUDA kernel for lockstep::launch_test::Unregistered on cuda:1: "));
  EXPECT_NO_THROW(launch(stream, 0, Unregistered{{&value, 1}}));
  EXPECT_EQ(value, 1);
}

struct Registered {
  float value;
  void operator()(std::size_t) const { FAIL() << "ran on the host"; }
};

struct Launched {
  detail::StreamState* stream = nullptr;
  std::size_t count = 0;
  float value = 0;
};
Launched launched;

TEST(Launch, OnAGpuGoesThroughTheFunctorsSlot) {
  GpuStream state;
  detail::kernel_slot<Registered> = [](detail::StreamState& stream, std::size_t count,
                                       const void* functor) {
    launched = {&stream, count, static_cast<const Registered*>(functor)->value};
  };
  launch(Stream(state), 12, Registered{3.5F});
  detail::kernel_slot<Registered> = nullptr;
  EXPECT_EQ(launched.stream, &state);
  EXPECT_EQ(launched.count, 12U);
  EXPECT_EQ(launched.value, 3.5F);
}

}  // namespace launch_test
}  // namespace lockstep
