// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/runtime/cuda_device.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/cuda/runtime/device_guard.hpp>
#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/comm.hpp>
#include <lockstep/parallel/scatter_gather.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dlpack.hpp>
#include <lockstep/tensor/from_blob.hpp>
#include <lockstep/tensor/storage.hpp>

#include <cudasim/cudasim.hpp>

#include "cuda/schedules.hpp"
#include "cuda/without_nccl.hpp"
#include "support/expect_error.hpp"
#include "support/sanitizers.hpp"

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

// Memory that is shared with another user of CUDA: where it is, and whose stream waits for whose.
namespace lockstep {
namespace lent_memory_test {

using testing::throws;

using testing::under_each_policy;
using Values = std::vector<float>;

constexpr std::size_t kCount = 1000;
constexpr std::size_t kBytes = kCount * sizeof(float);

void ok(cudaError_t status) { ASSERT_EQ(status, cudaSuccess) << cudaGetErrorString(status); }

// What another library has on a GPU: memory, and a stream.
class Foreign {
 public:
  explicit Foreign(Device device) : device_(device) {
    const cuda::DeviceGuard guard(device);
    ok(cudaMalloc(&data_, kBytes));
    ok(cudaHostAlloc(&host_, kBytes, cudaHostAllocDefault));
    ok(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;
  ~Foreign() {
    const cuda::DeviceGuard guard(device_);
    ok(cudaStreamSynchronize(stream_));
    ok(cudaStreamDestroy(stream_));
    ok(cudaFree(data_));
    ok(cudaFreeHost(host_));
  }

  float* data() const { return static_cast<float*>(data_); }
  float* host() const { return static_cast<float*>(host_); }
  std::intptr_t stream() const { return reinterpret_cast<std::intptr_t>(stream_); }

  // The elements at `data` as its stream reads them.
  Values read(const void* data) const {
    const cuda::DeviceGuard guard(device_);
    ok(cudaMemcpyAsync(host_, data, kBytes, cudaMemcpyDefault, stream_));
    ok(cudaStreamSynchronize(stream_));
    return {host(), host() + kCount};
  }

 private:
  const Device device_;
  void* data_ = nullptr;
  void* host_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

TEST(LentCudaMemory, IsWorkedOnWhereItIs) {
  const Foreign foreign("cuda:1");
  under_each_policy([&] {
    std::atomic<int> returns{0};
    const auto before = memory_stats("cuda:1").allocations;
    Tensor x = from_blob(foreign.data(), {kCount}, {.device = "cuda:1", .deleter = [&](void* data) {
                                                      EXPECT_EQ(data, foreign.data());
                                                      ++returns;
                                                    }});
    EXPECT_EQ(memory_stats("cuda:1").allocations, before);
    x.fill_(3);
    x.mul_(2);
    EXPECT_EQ(x.to_vector<float>(), Values(kCount, 6));
    x = {};
    while (returns == 0) std::this_thread::yield();
    EXPECT_EQ(returns, 1);
  });
}

// The simulator reports a host that touches memory while a copy still reads it.
TEST(LentCudaMemory, IsGivenBackAfterTheCopiesThatReadIt) {
  const Foreign foreign("cuda:1");
  under_each_policy([&] {
    std::fill_n(foreign.host(), kCount, 5.0F);
    std::atomic<bool> returned{false};
    Tensor x = from_blob(foreign.host(), {kCount}, {.deleter = [&](void* data) {
                           static_cast<float*>(data)[0] = 0;
                           returned = true;
                         }});
    const Tensor there = x.to("cuda:1");
    x = {};
    while (!returned) std::this_thread::yield();
    EXPECT_EQ(there.to_vector<float>(), Values(kCount, 5));
  });
}

// The simulator reports a kernel or copy that reads memory which its GPU has no access to.
void exchange_lent_memory() {
  const Foreign first("cuda:0");
  const Foreign second("cuda:1");
  under_each_policy([&] {
    distributed::run({"cuda:0", "cuda:1"}, [&](const distributed::ProcessGroup& group) {
      float* const data = (group.rank() == 0 ? first : second).data();
      const Tensor lent = from_blob(data, {kCount}, {.device = group.device()});
      lent.fill_(static_cast<double>(group.rank()) + 1);
      (void)group.blocking().all_reduce(lent);
      EXPECT_EQ(lent.to_vector<float>(), Values(kCount, 3));
      const Tensor sum = zeros({kCount / 2}, {.device = group.device()});
      (void)group.blocking().reduce_scatter_tensor(sum, lent);
      EXPECT_EQ(sum.to_vector<float>(), Values(kCount / 2, 6));
      if (group.rank() == 0) {
        (void)group.blocking().send(lent, 1);
      } else {
        const Tensor came = zeros({kCount}, {.device = group.device()});
        (void)group.blocking().recv(came, 0);
        EXPECT_EQ(came.to_vector<float>(), Values(kCount, 3));
      }
    });
    const std::vector<Tensor> both = {from_blob(first.data(), {kCount}, {.device = "cuda:0"}),
                                      from_blob(second.data(), {kCount}, {.device = "cuda:1"})};
    EXPECT_EQ(comm::reduce_add(both, "cuda:0").to_vector<float>(), Values(kCount, 6));
    EXPECT_EQ(comm::broadcast(both[0], {"cuda:0", "cuda:1"})[1].to_vector<float>(),
              Values(kCount, 3));
  });
}

TEST(LentCudaMemory, IsReadByNoOtherRanksGpu) {
  const testing::WithoutNccl by_kernels;
  exchange_lent_memory();
}

TEST(LentCudaMemory, IsReadByNoOtherRanksGpuWhereThereIsNccl) { exchange_lent_memory(); }

// The simulator reports a plain copy from memory that the stream's GPU has no access to.
TEST(LentCudaMemory, GoesToOtherGpusWithoutAccess) {
  const Foreign foreign("cuda:1");
  under_each_policy([&] {
    const Tensor lent =
        from_blob(foreign.data(), {4, std::int64_t{kCount / 4}}, {.device = "cuda:1"});
    lent.fill_(7);
    EXPECT_EQ(lent.to("cuda:0").to_vector<float>(), Values(kCount, 7));
    for (const std::int64_t dim : {0, 1}) {
      const std::vector<Tensor> chunks = scatter(lent, {"cuda:0", "cuda:1", "cuda:2"}, dim);
      EXPECT_EQ(gather(chunks, "cuda:2", dim).to_vector<float>(), Values(kCount, 7));
    }
    EXPECT_EQ(gather(std::vector{lent, lent}, "cuda:0", 1).sizes(), (Shape{4, kCount / 2}));
    EXPECT_EQ(gather(std::vector{lent, lent}, "cuda:0").to_vector<float>(), Values(2 * kCount, 7));
  });
}

TEST(LentCudaMemory, ElsewhereIsAnError) {
  const Foreign foreign("cuda:1");
  (void)ones({1}, {.device = "cuda:1"});  // host memory is asked about where a GPU is in use
  Values values(4);
  const auto lent_to = [](float* data, Device device) {
    (void)from_blob(data, {4}, {.device = device});
  };
  EXPECT_TRUE(throws<DeviceError>([&] { lent_to(values.data(), "cuda:1"); }, "from_blob",
                                  "memory of cuda:1", "ordinary host memory"));
  EXPECT_TRUE(throws<DeviceError>([&] { lent_to(foreign.host(), "cuda:1"); }, "from_blob",
                                  "memory of cuda:1", "page-locked host memory"));
  EXPECT_TRUE(throws<DeviceError>([&] { lent_to(foreign.data(), "cuda:2"); }, "from_blob",
                                  "memory of cuda:2", "memory of GPU 1"));
  EXPECT_TRUE(throws<DeviceError>([&] { lent_to(foreign.data(), "cpu"); }, "from_blob",
                                  "memory of cpu", "memory of GPU 1"));
  EXPECT_NO_THROW(lent_to(values.data(), "cpu:1"));
  EXPECT_NO_THROW(lent_to(foreign.host(), "cpu"));
  EXPECT_TRUE(cudasim::take_errors().empty());
}

// Alone in its process, as ctest runs it, this finds no GPU in use.
TEST(LentCudaMemory, OfTheHostGivesNoGpuAContext) {
  const auto before = cudasim::contexts();
  Values values(4);
  EXPECT_EQ(from_blob(values.data(), {4}).numel(), 4);
  EXPECT_EQ(cudasim::contexts(), before);
}

TEST(LentCudaMemory, OfWhichTheDriverCannotTellIsAnErrorOnAGpuAlone) {
  const Foreign foreign("cuda:1");
  (void)ones({1}, {.device = "cuda:1"});
  cudasim::fail_next("cudaPointerGetAttributes", cudaErrorUnknown);
  EXPECT_NO_THROW((void)from_blob(foreign.host(), {4}));
  cudasim::fail_next("cudaPointerGetAttributes", cudaErrorUnknown);
  EXPECT_TRUE(
      throws<DeviceError>([&] { (void)from_blob(foreign.data(), {4}, {.device = "cuda:1"}); },
                          "cudaPointerGetAttributes"));
}

TEST(DlpackCuda, TheConsumersStreamWaitsForTheTensors) {
  const Foreign foreign("cuda:1");
  under_each_policy([&] {
    const Tensor x = full({kCount}, 1, {.device = "cuda:1"});
    x.mul_(4);
    dlpack::DLManagedTensorVersioned* const managed = to_dlpack(x, foreign.stream());
    EXPECT_EQ(managed->dl_tensor.device.device_type, dlpack::kDLCUDA);
    EXPECT_EQ(managed->dl_tensor.device.device_id, 1);
    EXPECT_EQ(foreign.read(managed->dl_tensor.data), Values(kCount, 4));
    managed->deleter(managed);
  });
}

TEST(DlpackCuda, WithoutAStreamNothingIsOrdered) {
  if (testing::kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer would report the race as well";
  const Foreign foreign("cuda:1");
  cudasim::set_policy(cudasim::Policy::lazy);
  const Tensor x = full({kCount}, 1, {.device = "cuda:1"});
  dlpack::DLManagedTensorVersioned* const managed = to_dlpack(x, -1);
  (void)foreign.read(managed->dl_tensor.data);
  EXPECT_FALSE(cudasim::take_errors().empty());  // a race, as the simulator sees it
  managed->deleter(managed);
  synchronize("cuda:1");
  (void)cudasim::take_errors();
}

// None and 1 are the legacy default stream, which the simulator has not, but knows by its handle.
TEST(DlpackCuda, NoneIsTheLegacyDefaultStream) {
  const Tensor x = full({kCount}, 1, {.device = "cuda:1"});
  for (const std::optional<std::intptr_t> stream : {std::optional<std::intptr_t>(), {1}, {2}}) {
    EXPECT_TRUE(throws<DeviceError>([&] { (void)to_dlpack(x, stream); }, "cudaStreamWaitEvent"));
    const std::vector<std::string> errors = cudasim::take_errors();
    ASSERT_EQ(errors.size(), 1U);
    EXPECT_NE(errors[0].find("NULL STREAM: cudaStreamWaitEvent"), std::string::npos) << errors[0];
  }
  for (const std::intptr_t stream : {0, -2}) {
    EXPECT_TRUE(throws<ValueError>([&] { (void)to_dlpack(x, stream); }, "to_dlpack", "cudaStream_t",
                                   std::to_string(stream)));
  }
}

TEST(DlpackCuda, ComesBackOntoItsDevice) {
  const Foreign foreign("cuda:1");
  cudasim::set_policy(cudasim::Policy::lazy);
  std::array<std::int64_t, 1> shape{kCount};
  int returns = 0;
  dlpack::DLManagedTensorVersioned managed{.version = {1, 0},
                                           .manager_ctx = &returns,
                                           .deleter =
                                               [](dlpack::DLManagedTensorVersioned* self) {
                                                 EXPECT_TRUE(current_stream("cuda:1").query());
                                                 ++*static_cast<int*>(self->manager_ctx);
                                               },
                                           .flags = 0,
                                           .dl_tensor = {.data = foreign.data(),
                                                         .device = {dlpack::kDLCUDA, 1},
                                                         .ndim = 1,
                                                         .dtype = {dlpack::kDLFloat, 32, 1},
                                                         .shape = shape.data(),
                                                         .strides = nullptr,
                                                         .byte_offset = 0}};
  {
    const Tensor x = from_dlpack(&managed);
    EXPECT_EQ(x.device(), Device("cuda:1"));
    EXPECT_EQ(x.impl()->data(), foreign.data());
    x.fill_(2);
    synchronize("cuda:1");
  }
  EXPECT_EQ(returns, 1);
  managed.flags = dlpack::kReadOnly;
  const Tensor copy = from_dlpack(&managed);
  EXPECT_EQ(returns, 2);
  EXPECT_NE(copy.impl()->data(), foreign.data());
  EXPECT_EQ(copy.to_vector<float>(), Values(kCount, 2));
  const Tensor host = from_dlpack(&managed, {.device = "cpu"});
  EXPECT_EQ(returns, 3);
  EXPECT_EQ(host.to_vector<float>(), Values(kCount, 2));
  managed.dl_tensor.device.device_id = 99;
  EXPECT_TRUE(throws<DeviceError>([&] { (void)from_dlpack(&managed); }, "cuda:99"));
  EXPECT_EQ(returns, 3);
  EXPECT_TRUE(cudasim::take_errors().empty());
}

TEST(DlpackCuda, NamesItsStreamToAProducer) {
  // One of its own, since it is never known to be idle again. Streams are never destroyed.
  const Device gpu = "cuda:1";
  static auto& lent = *new cuda::CudaStream(gpu, cuda::CudaDevice::at(gpu).events);
  const Stream stream(lent);
  const std::optional<std::intptr_t> handle = dlpack_stream(stream);
  ASSERT_TRUE(handle.has_value());
  EXPECT_EQ(reinterpret_cast<cudaStream_t>(*handle),
            static_cast<const cuda::CudaStream&>(stream.state()).bare_handle());
  EXPECT_EQ(dlpack_device(ones({2}, {.device = "cuda:1"})).device_id, 1);
}

}  // namespace lent_memory_test
}  // namespace lockstep
