// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/distributed/group/carrier.hpp>
#include <lockstep/distributed/group/communication_thread.hpp>
#include <lockstep/distributed/group/group_state.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/thread/thread_carrier.hpp>
#include <lockstep/distributed/thread/thread_world.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/parallel/distributed.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {
namespace distributed_threads_test {

using distributed::ProcessGroup;
using distributed::detail::Call;
using distributed::detail::Carrier;
using distributed::detail::Collective;
using distributed::detail::CommunicationThread;
using distributed::detail::Done;
using distributed::detail::GroupState;
using distributed::detail::Message;
using distributed::detail::ThreadCarrier;
using distributed::detail::ThreadWorld;

// The one rank of its world. Tells of each all_reduce in the thread that carries it.
class Telling final : public Carrier {
 public:
  explicit Telling(std::function<void()> on_all_reduce)
      : Carrier(0, 1),
        carrier_(0, 1, std::make_shared<ThreadWorld>(1)),
        on_all_reduce_(std::move(on_all_reduce)) {}

  void run(const Call& call, std::span<const void* const> inputs, std::span<void* const> outputs,
           const Stream* stream, const Done& failed) override {
    if (call.collective == Collective::all_reduce) on_all_reduce_();
    carrier_.run(call, inputs, outputs, stream, failed);
  }
  void leave(const std::exception_ptr& error) noexcept override { carrier_.leave(error); }
  void start(const Message& message, void* data, Done done, const Stream* stream) override {
    carrier_.start(message, data, std::move(done), stream);
  }
  std::unique_ptr<Carrier> split(std::span<const int>) override { return nullptr; }

 private:
  ThreadCarrier carrier_;
  const std::function<void()> on_all_reduce_;
};

ProcessGroup group_that_tells(std::function<void()> on_all_reduce) {
  return ProcessGroup(
      std::make_shared<GroupState>(std::make_unique<Telling>(std::move(on_all_reduce)),
                                   std::make_shared<CommunicationThread>(), Device("cpu:0")));
}

// A hand-over to the communication thread and back costs more than a small model's whole step.
TEST(DistributedDataParallel, ABucketAtTheEndOfBackwardIsReducedByTheThreadThatRunsIt) {
  std::vector<std::thread::id> threads;
  const ProcessGroup group =
      group_that_tells([&] { threads.push_back(std::this_thread::get_id()); });
  DistributedDataParallel model{nn::Linear{2, 1}, group};
  // What the constructor issued has told its end to those who wait; the communication thread may
  // still have to take note of it.
  group.impl()->thread()->drain();
  for (int step = 0; step < 3; ++step) model(ones({4, 2})).sum().backward();
  EXPECT_GE(threads.size(), 3U);
  for (const std::thread::id thread : threads) EXPECT_EQ(thread, std::this_thread::get_id());
}

TEST(DistributedDataParallel, BackwardGoesOnWhileABucketIsReduced) {
  const std::thread::id own = std::this_thread::get_id();
  std::atomic<bool> went_on{false};
  std::atomic<bool> watched{false};
  std::atomic<bool> beside{false};
  const auto on_all_reduce = [&] {
    if (!watched.load() || std::this_thread::get_id() == own) return;
    beside = true;
    went_on.wait(false);
  };
  DistributedDataParallel model{
      nn::Linear{2, 1}, group_that_tells(on_all_reduce), {.bucket_cap_mb = 0}};
  model(ones({4, 2})).sum().backward();
  int gradients = 0;
  for (const Parameter& parameter : model.parameters()) {
    parameter.register_post_accumulate_grad_hook([&](const Tensor&) {
      if (++gradients == 2) {  // the first is in its bucket, which is being reduced
        went_on = true;
        went_on.notify_all();
      }
    });
  }
  watched = true;
  model(ones({4, 2})).sum().backward();
  EXPECT_EQ(gradients, 2);
  EXPECT_EQ(model.logging_data().num_all_reduces, 4U);
  EXPECT_TRUE(beside.load());
}

}  // namespace distributed_threads_test
}  // namespace lockstep
