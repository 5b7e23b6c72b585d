// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/cuda_backend.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/parallel/comm/broadcast.hpp>
#include <lockstep/parallel/comm/gather.hpp>
#include <lockstep/parallel/comm/scatter.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>

#include <cudasim/cudasim.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

// What the CUDA backend orders, on the simulated runtime: `run` deletes one wait, record, guard or
// synchronisation of the headers at a time and demands that this fails under every schedule. The
// kernels go to the simulator without nvcc, so that a mutation takes seconds to compile.
namespace lockstep {
namespace cuda_backend_test {

using Values = std::vector<float>;

struct Copied {
  View<const float> in;
  View<float> out;
  void operator()(std::size_t i) const { out[i] = in[i]; }
};

template <class F>
void simulate(detail::StreamState& stream, std::size_t count, const F& functor,
              std::vector<cudasim::MemoryUse> uses) {
  const cuda::DeviceGuard guard(stream.device());
  cudasim::enqueue(static_cast<cuda::CudaStream&>(stream).handle(), "kernel", std::move(uses),
                   [count, functor] {
                     for (std::size_t i = 0; i < count; ++i) functor(i);
                   });
}

void launch_copied(detail::StreamState& stream, std::size_t count, const void* functor) {
  const auto& copy = *static_cast<const Copied*>(functor);
  simulate(stream, count, copy,
           {{copy.in.data, copy.in.size * sizeof(float), false},
            {copy.out.data, copy.out.size * sizeof(float), true}});
}

[[maybe_unused]] const bool registered = [] {
  detail::kernel_slot<Copied>.store(&launch_copied);
  detail::cuda_backend.store(&cuda::CudaBackend::instance());
  detail::cuda_device_counter.store(&cuda::count_devices);
  return true;
}();

Tensor counting(std::int64_t count) {
  Values values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i % 509));
  return from_values(values, {count}, Device());
}

Tensor at(const Tensor& tensor, Device device) {
  const Tensor there = empty(tensor.sizes(), {.device = device});
  detail::copy_into(there, tensor);
  return there;
}

Values values_of(const Tensor& tensor) {
  const Tensor host = at(tensor, Device());
  const auto* first = host.const_data_ptr<float>();
  return Values(first, first + host.numel());
}

// A kernel on the device's current stream that reads `tensor` into the result.
Tensor read_by_kernel(const Tensor& tensor) {
  const Stream stream = current_stream(tensor.device());
  Tensor out = empty(tensor.sizes(), tensor.options());
  launch(stream, static_cast<std::size_t>(tensor.numel()),
         Copied{detail::input<float>(tensor), detail::output<float>(out, stream)});
  return out;
}

const std::vector<Device> kGpus = {"cuda:1", "cuda:2", "cuda:3"};

TEST(CudaOrder, ScatterComputeGather) {
  const Tensor batch = counting(3000);
  for (int round = 0; round < 3; ++round) {
    std::vector<Tensor> results;
    for (const Tensor& chunk : comm::scatter(batch, kGpus)) {
      results.push_back(read_by_kernel(chunk));
    }
    Tensor whole = comm::gather(results, 0, kGpus[1]);
    results.clear();
    EXPECT_EQ(values_of(read_by_kernel(whole)), values_of(batch));
  }
}

TEST(CudaOrder, BroadcastFromAGpu) {
  const Tensor source = at(counting(500), kGpus[0]);
  Tensor made = read_by_kernel(source);
  std::vector<Tensor> copies = comm::broadcast(made, kGpus);
  made = Tensor();
  for (Tensor& copy : copies) copy = read_by_kernel(copy);
  for (const Tensor& copy : copies) EXPECT_EQ(values_of(copy), values_of(source));
}

TEST(CudaOrder, HostDevicesAndGpusMixed) {
  const Tensor batch = counting(60000);
  const Tensor there = at(batch, "cpu:1");
  const std::vector<Tensor> chunks = comm::scatter(there, {"cuda:1", "cpu:0", "cuda:2"});
  std::vector<Tensor> results = {read_by_kernel(chunks[0]), chunks[1], read_by_kernel(chunks[2])};
  EXPECT_EQ(values_of(comm::gather(results, 0, Device("cpu:1"))), values_of(batch));
}

TEST(CudaOrder, StagingBlocksAreUsedAgainOnlyWhenTheyAreFree) {
  std::vector<Tensor> there;
  std::vector<Tensor> here;
  for (std::int64_t i = 0; i < 24; ++i) {
    here.push_back(counting(700 + i));
    there.push_back(at(here.back(), "cuda:1"));
  }
  for (std::size_t i = 0; i < here.size(); ++i) EXPECT_EQ(values_of(there[i]), values_of(here[i]));
}

TEST(CudaOrder, SynchronizeWaits) {
  const Tensor tensor = at(counting(100), "cuda:2");
  const Tensor result = read_by_kernel(tensor);
  const Event event = current_stream("cuda:2").record_event();
  event.synchronize();
  EXPECT_TRUE(event.query());
}

TEST(CudaOrder, MemoryThatIsStillToBeFreedIsWaitedFor) {
  cudasim::set_policy(cudasim::Policy::lazy);
  constexpr std::int64_t kMostOfIt = std::int64_t{160} << 20;  // 640 of 1024 MiB
  { const Tensor first = empty({kMostOfIt}, {.device = "cuda:3"}); }
  EXPECT_NO_THROW(empty({kMostOfIt}, {.device = "cuda:3"}));
}

// What another backend's stream has been told to wait for; a GPU cannot.
class HostWork final : public detail::EventState {
 public:
  bool query() const override { return done_; }
  void synchronize() const override { done_ = true; }
  bool precedes_new_work_of(const detail::StreamState&) const override { return done_; }

 private:
  mutable bool done_ = false;
};

TEST(CudaOrder, WorkOfTheHostIsWaitedForByTheCaller) {
  const auto work = std::make_shared<HostWork>();
  current_stream("cuda:1").state().wait(work);
  EXPECT_TRUE(work->query());
}

}  // namespace cuda_backend_test
}  // namespace lockstep

#include "cudasim/suite/main.cpp"
