// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/cuda_backend.hpp>
#include <lockstep/nccl.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/parallel/comm.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/parallel/replicas/replica_cache.hpp>
#include <lockstep/tensor/creation.hpp>

#include <cudasim/cudasim.hpp>

#include "cuda/schedules.hpp"
#include "cuda/without_nccl.hpp"
#include "support/environment_variable.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

// Broadcast and reduce_add by NCCL: what it computes is what copies and adds do, in an order that
// the calls show, and what it cannot serve is left to these. Each test that counts communicators
// has a set of devices to itself, since they are kept.
namespace lockstep {
namespace cuda_nccl_test {

using testing::EnvironmentVariable;
using testing::throws;
using testing::under_each_policy;
using Lines = std::vector<std::string>;
using Values = std::vector<double>;

// Where a communicator was given up what it had not ended was not needed.
void forget_lost_results(const std::vector<Device>& devices) {
  for (const Device& device : devices) nccl::forget_lost_results(device);
}

// The calls of the runtime and of NCCL that a body makes.
template <class Body>
std::vector<cudasim::Call> calls_of(const Body& body) {
  cudasim::record_calls(true);
  body();
  auto calls = cudasim::take_calls();
  cudasim::record_calls(false);
  return calls;
}

template <class Body>
std::ptrdiff_t count_calls(const std::string& function, const Body& body) {
  const auto calls = calls_of(body);
  return std::count_if(calls.begin(), calls.end(),
                       [&](const auto& call) { return call.function == function; });
}

Values values_of(const Tensor& tensor) {
  const Tensor host = detail::cast(tensor.to("cpu"), Dtype::f64);
  const auto* first = host.const_data_ptr<double>();
  return Values(first, first + host.numel());
}

std::vector<Values> values_of(const std::vector<Tensor>& tensors) {
  std::vector<Values> all;
  for (const Tensor& tensor : tensors) all.push_back(values_of(tensor));
  return all;
}

Tensor counting(const Shape& shape, int first, Device device, Dtype dtype = Dtype::f32) {
  std::vector<float> values;
  for (int i = 0; i < numel(shape); ++i) values.push_back(static_cast<float>((first + i) % 120));
  return detail::cast(from_values(values, shape), dtype).to(device);
}

TEST(NcclBroadcast, GivesWhatCopiesGive) {
  under_each_policy([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::i64, Dtype::u8}) {
      const Tensor source = counting({5, 7}, 3, "cuda:1", dtype);
      std::vector<Tensor> copies;
      EXPECT_EQ(count_calls("ncclGroupEnd",
                            [&] {
                              copies = comm::broadcast(source, {"cuda:0", "cuda:1", "cuda:2"});
                            }),
                1);
      EXPECT_TRUE(copies[1].is_same(source));
      for (const Tensor& copy : copies) EXPECT_EQ(values_of(copy), values_of(source));
    }
  });
}

TEST(NcclBroadcast, TakesStridedTensorsAndASourceThatIsNotAmongTheDevices) {
  const Tensor source = counting({6, 4}, 1, "cuda:3").transpose(0, 1);
  const Values expected = values_of(source);
  EXPECT_EQ(values_of(comm::broadcast(source, {"cuda:1", "cuda:2"})),
            (std::vector<Values>{expected, expected}));
}

TEST(NcclBroadcast, NothingIsLeftToCopies) {
  const Tensor source = zeros({0, 4}, {.device = "cuda:0"});
  const auto calls = calls_of([&] {
    EXPECT_EQ(comm::broadcast(source, {"cuda:0", "cuda:1"})[1].sizes(), (Shape{0, 4}));
    // A tensor that goes elsewhere is no collective.
    EXPECT_EQ(comm::broadcast(ones({2}, {.device = "cuda:0"}), {"cuda:1"})[0].device(),
              Device("cuda:1"));
  });
  for (const auto& call : calls) EXPECT_EQ(call.function.find("nccl"), std::string::npos);
}

TEST(NcclBroadcast, CoalescedIsOneGroup) {
  // The first communicator of a process has its pairs of GPUs tried out, by copies.
  comm::broadcast(ones({1}, {.device = "cuda:0"}), {"cuda:0", "cuda:1", "cuda:2"});
  under_each_policy([] {
    const std::vector<Tensor> tensors = {counting({3}, 1, "cuda:0"), counting({}, 2, "cuda:0"),
                                         counting({2, 9}, 3, "cuda:0", Dtype::f64),
                                         counting({0}, 3, "cuda:0"), counting({70}, 4, "cuda:0")};
    std::vector<std::vector<Tensor>> copies;
    const auto calls = calls_of([&] {
      copies = comm::broadcast_coalesced(tensors, {"cuda:0", "cuda:1", "cuda:2"});
    });
    const auto made = [&](const char* function) {
      return std::count_if(calls.begin(), calls.end(),
                           [&](const auto& call) { return call.function == function; });
    };
    EXPECT_EQ(made("ncclGroupEnd"), 1);
    EXPECT_EQ(made("ncclBroadcast"), 4 * 3);
    EXPECT_EQ(made("cudaMemcpyAsync"), 0);
    for (const auto& of_device : copies) EXPECT_EQ(values_of(of_device), values_of(tensors));
  });
}

std::vector<Tensor> summands(Dtype dtype, const std::vector<Device>& devices) {
  std::vector<Tensor> inputs;
  for (const Device& device : devices) {
    inputs.push_back(counting({4, 5}, 10 * device.index, device, dtype));
  }
  return inputs;
}

TEST(NcclReduceAdd, GivesWhatAddsGive) {
  under_each_policy([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::i32, Dtype::i64, Dtype::f16}) {
      const auto inputs = summands(dtype, {"cuda:0", "cuda:1", "cuda:2"});
      Tensor sum;
      const auto groups =
          count_calls("ncclGroupEnd", [&] { sum = comm::reduce_add(inputs, "cuda:1"); });
      EXPECT_EQ(groups, dtype == Dtype::f16 ? 0 : 1);  // summed in f32, by adds
      const testing::WithoutNccl by_adds;
      const Tensor expected = comm::reduce_add(inputs, "cuda:1");
      EXPECT_EQ(values_of(sum), values_of(expected));
      EXPECT_EQ(sum.device(), Device("cuda:1"));
      EXPECT_EQ(sum.dtype(), dtype);
    }
  });
}

TEST(NcclReduceAdd, CoalescedIsOneGroupAndTheRestIsAdded) {
  under_each_policy([] {
    std::vector<std::vector<Tensor>> inputs;
    for (const Device device : {Device("cuda:0"), Device("cuda:1"), Device("cuda:2")}) {
      inputs.push_back({counting({3}, device.index, device),
                        counting({8}, device.index, device, Dtype::f16),
                        counting({4, 6}, device.index, device).transpose(0, 1),
                        counting({2}, device.index, device, Dtype::i64)});
    }
    std::vector<Tensor> sums;
    const auto calls = calls_of([&] { sums = comm::reduce_add_coalesced(inputs); });
    EXPECT_EQ(std::count_if(calls.begin(), calls.end(),
                            [](const auto& call) { return call.function == "ncclReduce"; }),
              3 * 3);
    EXPECT_EQ(std::count_if(calls.begin(), calls.end(),
                            [](const auto& call) { return call.function == "ncclGroupEnd"; }),
              1);
    const testing::WithoutNccl by_adds;
    EXPECT_EQ(values_of(sums), values_of(comm::reduce_add_coalesced(inputs)));
  });
}

// What is not on distinct GPUs goes by copies, and looks the same.
TEST(Nccl, ServesDistinctGpusOnly) {
  auto& nccl = cuda::NcclCollectives::instance();
  using Devices = std::vector<Device>;
  EXPECT_TRUE(nccl.serves(Devices{"cuda:0", "cuda:1"}));
  EXPECT_FALSE(nccl.serves(Devices{"cuda:0"}));
  EXPECT_FALSE(nccl.serves(Devices{"cuda:0", "cuda:1", "cuda:0"}));
  EXPECT_FALSE(nccl.serves(Devices{"cuda:0", "cpu:1"}));
  EXPECT_FALSE(nccl.serves(Devices{"cpu:0", "cpu:1"}));
  const Tensor source = counting({9}, 0, "cuda:0");
  const auto calls = calls_of([&] {
    const auto copies = comm::broadcast(source, {"cuda:0", "cpu:1", "cuda:1", "cuda:1"});
    for (const Tensor& copy : copies) EXPECT_EQ(values_of(copy), values_of(source));
  });
  for (const auto& call : calls) EXPECT_EQ(call.function.find("nccl"), std::string::npos);
}

// Runs in a process of its own, whose two GPUs are four devices.
[[noreturn]] void use_logical_devices() {
  std::ptrdiff_t groups = 0;
  bool right = device_count(DeviceType::cuda) == 4;
  const Tensor source = counting({9}, 0, "cuda:0");
  groups += count_calls("ncclGroupEnd", [&] {
    const auto copies = comm::broadcast(source, {"cuda:0", "cuda:1", "cuda:2", "cuda:3"});
    for (const Tensor& copy : copies) right = right && values_of(copy) == values_of(source);
    right = right && values_of(comm::reduce_add({copies[0], copies[2]})) == values_of(source * 2);
  });
  right = right && groups == 0;
  // Two that lie on different GPUs are NCCL's.
  groups += count_calls("ncclGroupEnd", [&] {
    right =
        right && values_of(comm::broadcast(source, {"cuda:0", "cuda:3"})[1]) == values_of(source);
  });
  std::_Exit(right && groups == 1 && cudasim::take_errors().empty() ? 0 : 1);
}

TEST(NcclDeathTest, LogicalDevicesOfOneGpuAreLeftToCopies) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const EnvironmentVariable gpus("CUDASIM_DEVICES", "2");
  const EnvironmentVariable devices("LOCKSTEP_CUDA_DEVICES", "4");
  EXPECT_EXIT(use_logical_devices(), ::testing::ExitedWithCode(0), "");
}

// Calls that issue work or order, as "copy 0: waits for compute 0". An event has the name of the
// stream that it was recorded on.
class Recorder {
 public:
  explicit Recorder(const std::vector<Device>& devices) {
    for (const Device& device : devices) {
      const std::string index = std::to_string(device.index);
      names_[number_of(default_stream(device))] = "compute " + index;
      names_[number_of(copy_stream(device))] = "copy " + index;
    }
    // NCCL's own streams are those that it is called with.
    const auto calls = calls_of([&] { (void)comm::broadcast(ones({1}).to(devices[0]), devices); });
    std::size_t rank = 0;
    for (const cudasim::Call& call : calls) {
      if (call.function != "ncclBroadcast") continue;
      names_[call.stream] = "nccl " + std::to_string(devices[rank++].index);
    }
    cudasim::set_policy(cudasim::Policy::lazy);  // so that nothing is idle once work was issued
  }

  template <class Body>
  Lines lines_of(const Body& body) {
    Lines lines;
    for (const cudasim::Call& call : calls_of(body)) {
      const std::string& name = call.function;
      if (name == "cudaEventRecord") {
        recorded_[call.event] = names_[call.stream];
      } else if (name == "cudaStreamWaitEvent") {
        lines.push_back(names_[call.stream] + ": waits for " + recorded_[call.event]);
      } else if (name == "ncclGroupStart" || name == "ncclGroupEnd") {
        lines.push_back(name);
      } else if (issues_.count(name) != 0) {
        lines.push_back(names_[call.stream] + ": " + issues_.at(name));
      }
    }
    return lines;
  }

 private:
  static int number_of(const Stream& stream) {
    return cudasim::stream_number(static_cast<cuda::CudaStream&>(stream.state()).bare_handle());
  }

  const std::map<std::string, std::string> issues_ = {
      {"cudaMallocFromPoolAsync", "allocate"}, {"cudaMemcpyAsync", "copy"},
      {"cudaLaunchKernel", "kernel"},          {"cudaFreeAsync", "free"},
      {"ncclBroadcast", "broadcast"},          {"ncclReduce", "reduce"}};
  std::map<int, std::string> names_;
  std::map<int, std::string> recorded_;
};

TEST(NcclCalls, ABroadcastIsWorkOfTheCopyStreams) {
  const std::vector<Device> devices = {"cuda:0", "cuda:1"};
  Recorder recorder(devices);
  Tensor source = ones({16}, {.device = "cuda:0"});
  std::vector<Tensor> copies;
  EXPECT_EQ(recorder.lines_of([&] { copies = comm::broadcast(source, devices); }),
            (Lines{"copy 1: allocate", "copy 0: waits for compute 0", "nccl 0: waits for copy 0",
                   "nccl 1: waits for copy 1", "ncclGroupStart", "nccl 0: broadcast",
                   "nccl 1: broadcast", "ncclGroupEnd", "copy 0: waits for nccl 0",
                   "copy 1: waits for nccl 1", "compute 1: waits for copy 1"}));
  EXPECT_EQ(recorder.lines_of([&] {
    source = {};
    copies.clear();
  }),
            (Lines{"compute 0: waits for copy 0", "compute 0: free", "copy 1: waits for compute 1",
                   "copy 1: free"}));
}

TEST(NcclCalls, AReductionIsWorkOfTheComputeStreams) {
  const std::vector<Device> devices = {"cuda:0", "cuda:1"};
  Recorder recorder(devices);
  std::vector<Tensor> inputs;
  for (const Device& device : devices) inputs.push_back(ones({16}, {.device = device}));
  Tensor sum;
  EXPECT_EQ(
      recorder.lines_of([&] { sum = comm::reduce_add(inputs); }),
      (Lines{"compute 0: allocate", "nccl 0: waits for compute 0", "nccl 1: waits for compute 1",
             "ncclGroupStart", "nccl 0: reduce", "nccl 1: reduce", "ncclGroupEnd",
             "compute 0: waits for nccl 0", "compute 1: waits for nccl 1"}));
  EXPECT_EQ(recorder.lines_of([&] {
    inputs.clear();
    sum = {};
  }),
            (Lines{"compute 0: free", "compute 1: free", "compute 0: free"}));
}

TEST(Nccl, HasOneCommunicatorForASetOfDevices) {
  const std::vector<Device> devices = {"cuda:5", "cuda:6", "cuda:7"};
  const Tensor source = ones({4}, {.device = "cuda:5"});
  std::vector<Tensor> copies;
  const auto broadcast = [&] { copies = comm::broadcast(source, devices); };
  EXPECT_EQ(count_calls("ncclCommInitAll", broadcast), 1);
  EXPECT_EQ(count_calls("ncclCommInitAll", broadcast), 0);
  EXPECT_EQ(count_calls("ncclCommInitAll", [&] { (void)comm::reduce_add(copies, "cuda:7"); }), 0);
  EXPECT_EQ(count_calls("ncclCommInitAll",
                        [&] {
                          (void)comm::broadcast(source, {"cuda:5", "cuda:7"});
                        }),
            1);
}

// All at once, and among them what would block a collective that other work came in between of.
TEST(Nccl, ServesSeveralThreads) {
  const std::vector<Device> devices = {"cuda:0", "cuda:1", "cuda:2"};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t, &devices] {
      const Tensor source = counting({50}, t, devices[static_cast<std::size_t>(t) % 3]);
      const Values expected = values_of(source);
      for (int i = 0; i < 10; ++i) {
        const auto copies = comm::broadcast(source, devices);
        for (const auto& chunk : comm::scatter(copies[0], devices)) {
          EXPECT_EQ(chunk.numel(), chunk.device() == "cuda:2" ? 16 : 17);
        }
        EXPECT_EQ(values_of(copies[2]), expected);
        EXPECT_EQ(values_of(comm::reduce_add(copies))[1], 3 * expected[1]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(NcclErrors, NameCallDevicesAndCode) {
  const Tensor source = ones({4}, {.device = "cuda:3"});
  const auto broadcast = [&] { (void)comm::broadcast(source, {"cuda:3", "cuda:4"}); };
  cudasim::fail_next("ncclCommInitAll", cudaErrorMemoryAllocation);
  EXPECT_TRUE(throws<NcclError>(broadcast,
                                "ncclCommInitAll on cuda:3, cuda:4: unhandled cuda error", "(1)",
                                "Cuda failure 2"));
  EXPECT_NO_THROW(broadcast());  // there was no communicator yet
  cudasim::fail_next("ncclGroupEnd", cudaErrorLaunchFailure);
  try {
    broadcast();
    FAIL() << "nothing was thrown";
  } catch (const NcclError& error) {
    EXPECT_EQ(error.code(), ncclUnhandledCudaError);
    EXPECT_NE(std::string(error.what()).find("ncclGroupEnd on cuda:3, cuda:4"), std::string::npos)
        << error.what();
  }
  forget_lost_results({"cuda:3", "cuda:4"});
}

TEST(NcclErrors, ACommunicatorThatFailedIsNotUsedAgain) {
  const Tensor source = ones({4}, {.device = "cuda:3"});
  const auto broadcast = [&] { (void)comm::broadcast(source, {"cuda:3", "cuda:6"}); };
  broadcast();
  cudasim::fail_next("ncclGroupEnd", cudaErrorLaunchFailure);
  EXPECT_EQ(
      count_calls("ncclCommAbort",
                  [&] { EXPECT_TRUE(throws<NcclError>(broadcast, "ncclGroupEnd on cuda:3")); }),
      2);
  forget_lost_results({"cuda:3", "cuda:6"});
  const auto calls = calls_of([&] {
    EXPECT_TRUE(throws<DeviceError>(broadcast, "cannot be used on cuda:3, cuda:6 any more",
                                    "ncclGroupEnd on cuda:3, cuda:6"));
  });
  for (const auto& call : calls) EXPECT_EQ(call.function.find("nccl"), std::string::npos);
  // The thread has left the group, and other sets are as they were.
  EXPECT_EQ(values_of(comm::broadcast(source, {"cuda:3", "cuda:7"})[1]), Values(4, 1));
}

// Where one call fails what has come is right, or an error tells of the call; the next time it is
// right or an error says that NCCL cannot be used on these GPUs, so that each place has others.
[[noreturn]] void walk_over_the_calls() {
  testing::under(cudasim::Policy::lazy, 1, [] {
    int list = 0;
    for (const bool connected : {false, true}) {
      int ended = 0;
      for (std::uint64_t n = 0;; ++n) {
        const int first = list % 8;
        const int second = (first + 1 + list / 8 % 7) % 8;
        const int third = (first + 1 + (list / 8 + 1 + list / 56 % 6) % 7) % 8;
        ++list;
        ASSERT_LT(list, 8 * 7 * 6);
        const std::vector<Device> devices{
            {DeviceType::cuda, first}, {DeviceType::cuda, second}, {DeviceType::cuda, third}};
        const Tensor source = counting({50}, 1, devices[0]);
        const Values expected = values_of(comm::reduce_add(std::vector<Tensor>(3, source)));
        const auto expect_right_or = [&](const char* text) {
          try {
            EXPECT_EQ(values_of(comm::reduce_add(comm::broadcast(source, devices))), expected);
            return true;
          } catch (const DeviceError& error) {
            EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
            return false;
          }
        };
        EXPECT_TRUE(!connected || expect_right_or("nothing"));
        cudasim::fail_call(n, cudaErrorLaunchOutOfResources);
        if (!expect_right_or(" on cuda:")) ++ended;
        const std::string failed = cudasim::end_failing_calls();
        SCOPED_TRACE(failed + ", call " + std::to_string(n));
        forget_lost_results(devices);
        (void)expect_right_or("cannot be used on");
        if (failed.empty()) break;
        if (::testing::Test::HasFailure()) return;
      }
      EXPECT_GT(ended, 5);
    }
  });
  std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
}

TEST(NcclErrorsDeathTest, AtEveryCallOfABroadcastAndASum) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(walk_over_the_calls(), ::testing::ExitedWithCode(0), "");
}

TEST(NcclReplicas, AreRefreshedByOneGroupAndAgainAfterAFailure) {
  // The abort that follows the failure comes before the first refresh has run.
  cudasim::set_policy(cudasim::Policy::lazy);
  const std::vector<Device> devices = {"cuda:2", "cuda:5"};
  const std::vector<Tensor> originals = {ones({6}, {.device = "cuda:2"}),
                                         counting({3}, 5, "cuda:2")};
  detail::ReplicaCache cache;
  EXPECT_EQ(count_calls("ncclGroupEnd", [&] { (void)cache.refresh(originals, devices); }), 1);
  EXPECT_EQ(count_calls("ncclGroupEnd", [&] { (void)cache.refresh(originals, devices); }), 0);
  originals[1].zero_();
  cudasim::fail_next("ncclGroupEnd", cudaErrorLaunchFailure);
  EXPECT_THROW((void)cache.refresh(originals, devices), NcclError);
  forget_lost_results(devices);
  const testing::WithoutNccl by_copies;
  const std::vector<Tensor> copies = cache.refresh(originals, devices);
  EXPECT_EQ(values_of({copies[2], copies[3]}), values_of(originals));
}

TEST(NcclReplicas, DataParallelTrainsAsWithCopies) {
  const auto step = [] {
    nn::Linear linear(4, 3);
    linear.weight.set_data(counting({3, 4}, 1, "cpu"));
    linear.bias.set_data(counting({3}, 7, "cpu"));
    DataParallel model(linear, {"cuda:0", "cuda:1"});
    sum(model(counting({6, 4}, 2, "cpu"))).backward();
    return std::vector<Values>{values_of(linear.weight.grad()), values_of(linear.bias.grad())};
  };
  under_each_policy([&] {
    std::vector<Values> gradients;
    EXPECT_EQ(count_calls("ncclGroupEnd", [&] { gradients = step(); }), 2);
    const testing::WithoutNccl by_copies;
    EXPECT_EQ(gradients, step());
  });
}

}  // namespace cuda_nccl_test
}  // namespace lockstep
