// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/distributed/store/hash_store.hpp>
#include <lockstep/nccl.hpp>
#include <lockstep/nn/activation.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/loss.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/distributed.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/random.hpp>

#include <cudasim/cudasim.hpp>

#include "cuda/schedules.hpp"
#include "cuda/without_nccl.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

// DistributedDataParallel on simulated GPUs: by copies and adds, by NCCL for ranks that are
// threads, and by NCCL with a communicator a rank, as processes have it. It trains as one device
// does with the whole batch, and the buckets are reduced beside backward.
namespace lockstep {
namespace distributed_cuda_test {

using distributed::ProcessGroup;
using testing::under_each_policy;
using Values = std::vector<double>;
using Body = std::function<void(const ProcessGroup&)>;

struct Net {
  nn::Linear first{6, 9, {.dtype = Dtype::f64}};
  nn::Linear second{9, 7, {.dtype = Dtype::f64}};
  nn::Linear third{7, 3, {.dtype = Dtype::f64}};
  Tensor forward(const Tensor& x) const { return third(relu(second(relu(first(x))))); }
};

constexpr std::size_t kSteps = 4;
constexpr std::int64_t kBatch = 6;

struct Batch {
  Tensor images;
  Tensor labels;
};

std::vector<Batch> batches() {
  manual_seed(5);
  std::vector<Batch> all;
  for (std::size_t step = 0; step < kSteps; ++step) {
    std::vector<std::int64_t> labels;
    for (std::int64_t i = 0; i < kBatch; ++i) {
      labels.push_back((i + static_cast<std::int64_t>(step)) % 3);
    }
    all.push_back({randn({kBatch, 6}, {.dtype = Dtype::f64}), from_values(labels, {kBatch})});
  }
  return all;
}

Values train_alone() {
  const std::vector<Batch> data = batches();
  manual_seed(1);
  const Net net;
  optim::SGD sgd{parameters(net), {.lr = 0.2, .momentum = 0.9}};
  Values losses;
  for (const Batch& batch : data) {
    sgd.zero_grad();
    const Tensor loss = cross_entropy(net.forward(batch.images), batch.labels);
    loss.backward();
    sgd.step();
    losses.push_back(loss.item());
  }
  return losses;
}

// Threads that are processes draw from the same numbers: one at a time.
std::mutex& drawing() {
  static std::mutex mutex;
  return mutex;
}

Net same_net() {
  const std::lock_guard lock(drawing());
  manual_seed(1);
  return Net{};
}

std::vector<Batch> same_batches() {
  const std::lock_guard lock(drawing());
  return batches();
}

// This rank's part of the losses: their sum over the ranks is the whole batch's.
Values train(const ProcessGroup& group) {
  const std::vector<Batch> data = same_batches();
  DistributedDataParallel model(same_net(), group,
                                {.device_ids = {group.device()}, .bucket_cap_mb = 1e-4});
  optim::SGD sgd{model.parameters(), {.lr = 0.2, .momentum = 0.9}};
  const std::int64_t part = kBatch / group.size();
  Values losses;
  for (const Batch& batch : data) {
    sgd.zero_grad();
    const Tensor loss =
        cross_entropy(model(batch.images.narrow(0, group.rank() * part, part)),
                      batch.labels.narrow(0, group.rank() * part, part).to(group.device()));
    loss.backward();
    sgd.step();
    losses.push_back(loss.item() / group.size());
  }
  return losses;
}

class Losses {
 public:
  void add(const Values& part) {
    const std::lock_guard lock(mutex_);
    total_.resize(part.size());
    for (std::size_t i = 0; i < part.size(); ++i) total_[i] += part[i];
  }
  const Values& total() const { return total_; }

 private:
  std::mutex mutex_;
  Values total_;
};

void expect_same_losses(const std::function<void(const Body&)>& with_ranks) {
  static const Values alone = train_alone();
  Losses losses;
  with_ranks([&](const ProcessGroup& group) { losses.add(train(group)); });
  ASSERT_EQ(losses.total().size(), kSteps);
  for (std::size_t i = 0; i < kSteps; ++i)
    EXPECT_NEAR(losses.total()[i], alone[i], 1e-9 * alone[i]);
}

void as_processes(const std::vector<Device>& devices, const Body& body) {
  distributed::HashStore store;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    threads.emplace_back([&, i] {
      const int size = static_cast<int>(devices.size());
      try {
        body(nccl::process_group(static_cast<int>(i), size, devices[i], store));
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << i << " threw " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(DistributedCuda, TrainsByCopiesAsOneDeviceDoes) {
  const testing::WithoutNccl copies;
  under_each_policy([] {
    expect_same_losses([](const Body& body) { distributed::run({"cuda:0", "cuda:1"}, body); });
    expect_same_losses([](const Body& body) {
      distributed::run({"cuda:1", "cuda:2", "cuda:0"}, body);
    });
  });
}

TEST(DistributedCuda, TrainsByNcclAsOneDeviceDoes) {
  under_each_policy([] {
    expect_same_losses([](const Body& body) { distributed::run({"cuda:0", "cuda:1"}, body); });
    expect_same_losses([](const Body& body) { as_processes({"cuda:0", "cuda:1"}, body); });
    expect_same_losses([](const Body& body) {
      as_processes({"cuda:3", "cuda:1", "cuda:2"}, body);
    });
  });
}

// What a compute stream does during one backward: "kernel", "bucket" at a point that the group's
// stream is made to wait for, and "waits" where it is made to wait for the group's.
std::vector<std::string> lines_of(const std::vector<cudasim::Call>& calls, int compute) {
  // The last stream that the compute stream waits for is the group's.
  std::map<int, int> recorded;  // event, stream
  int group = -1;
  for (const cudasim::Call& call : calls) {
    if (call.function == "cudaEventRecord") recorded[call.event] = call.stream;
    if (call.function == "cudaStreamWaitEvent" && call.stream == compute) {
      group = recorded[call.event];
    }
  }
  std::map<int, std::size_t> points;  // event, line
  std::vector<std::string> lines;
  for (const cudasim::Call& call : calls) {
    if (call.function == "cudaLaunchKernel" && call.stream == compute) lines.push_back("kernel");
    if (call.function == "cudaEventRecord") {
      recorded[call.event] = call.stream;
      if (call.stream != compute) continue;
      points[call.event] = lines.size();
      lines.emplace_back();
    }
    if (call.function != "cudaStreamWaitEvent") continue;
    const int from = recorded[call.event];
    if (call.stream == compute && from == group) lines.push_back("waits");
    if (call.stream == group && from == compute) lines[points[call.event]] = "bucket";
  }
  return lines;
}

void expect_overlap(const std::function<void(const Body&)>& with_ranks) {
  std::vector<cudasim::Call> calls;
  int compute = -1;
  with_ranks([&](const ProcessGroup& group) {
    const std::vector<Batch> data = same_batches();
    DistributedDataParallel model(same_net(), group,
                                  {.device_ids = {group.device()}, .bucket_cap_mb = 1e-4});
    for (std::size_t step = 0; step < 3; ++step) {
      const Tensor loss =
          cross_entropy(model(data[step].images), data[step].labels.to(group.device()));
      (void)group.blocking().barrier();
      if (step == 2 && group.rank() == 0) {
        const auto& stream = static_cast<cuda::CudaStream&>(default_stream(group.device()).state());
        compute = cudasim::stream_number(stream.bare_handle());
        cudasim::record_calls(true);
      }
      (void)group.blocking().barrier();
      loss.backward();
      (void)group.blocking().barrier();
      if (step == 2 && group.rank() == 0) {
        calls = cudasim::take_calls();
        cudasim::record_calls(false);
      }
      (void)group.blocking().barrier();
    }
  });
  const std::vector<std::string> lines = lines_of(calls, compute);
  const std::string text = [&] {
    std::string all;
    for (const std::string& line : lines) all += line + ' ';
    return all;
  }();
  const auto last_kernel = std::find(lines.rbegin(), lines.rend(), "kernel").base();
  EXPECT_GE(std::count(lines.begin(), lines.end(), "bucket"), 3) << text;
  EXPECT_LT(std::find(lines.begin(), lines.end(), "bucket"), last_kernel)
      << "no bucket before the end of backward: " << text;
  EXPECT_GT(std::find(lines.begin(), lines.end(), "waits"), last_kernel)
      << "backward waits for a bucket: " << text;
}

TEST(DistributedCuda, BucketsAreReducedBesideBackward) {
  cudasim::set_policy(cudasim::Policy::lazy);  // so that nothing is idle once work was issued
  {
    const testing::WithoutNccl copies;
    expect_overlap([](const Body& body) { distributed::run({"cuda:0", "cuda:1"}, body); });
  }
  expect_overlap([](const Body& body) { distributed::run({"cuda:0", "cuda:1"}, body); });
  expect_overlap([](const Body& body) { as_processes({"cuda:0", "cuda:1"}, body); });
}

}  // namespace distributed_cuda_test
}  // namespace lockstep
