// SPDX-License-Identifier: Apache-2.0
#include "mutations/gpu_tensors.hpp"

#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/kernels/matmul.hpp>
#include <lockstep/cuda/kernels/softmax.hpp>
#include <lockstep/cuda/nccl/nccl_carrier.hpp>
#include <lockstep/cuda/nccl/non_blocking.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/group/group_watch.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/store/hash_store.hpp>
#include <lockstep/nccl.hpp>
#include <lockstep/parallel/comm/broadcast.hpp>
#include <lockstep/parallel/comm/reduce_add.hpp>
#include <lockstep/tensor/creation.hpp>

#include <cudasim/cudasim.hpp>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <nccl.h>

// As cuda_backend_test.cpp, for what stands between the CUDA backend and cuBLASLt, cuDNN and NCCL.
namespace lockstep {
namespace cuda_libraries_test {

using testing::at;
using testing::has_context_on_gpu_0;
using testing::kGpus;
using testing::on_a_new_thread;
using testing::values_of;

using Values = std::vector<float>;

struct Doubled {
  View<const float> in;
  View<float> out;
  LOCKSTEP_HD void operator()(std::size_t i) const { out[i] = 2 * in[i]; }
};

using Product = detail::Gemm<float>;
using Softmax = detail::SoftmaxCall<float, false>;

[[maybe_unused]] const bool registered = [] {
  testing::register_kernels(cuda::Kernels<Doubled>{});
  testing::register_gpus();
  return true;
}();

Tensor filled(std::int64_t count, float value, Device device) {
  return at(from_values(Values(static_cast<std::size_t>(count), value), {count}, Device()), device);
}

Values repeated(std::size_t count, float value) { return Values(count, value); }

// By work of the device's current stream.
Tensor doubled(const Tensor& tensor) { return testing::by_kernel<Doubled>(tensor); }

TEST(CudaLibraries, AProductIsMadeOnTheGpuOfItsStream) {
  const Tensor a = filled(12, 2, "cuda:1");
  const Tensor b = filled(20, 3, "cuda:1");
  const Tensor c = empty({15}, {.device = "cuda:1"});
  const Stream stream = current_stream("cuda:1");
  on_a_new_thread([&] {
    cuda::CudaCall<Product>::run(stream.state(), {.a = detail::input<float>(a),
                                                  .b = detail::input<float>(b),
                                                  .bias = {},
                                                  .c = detail::output<float>(c, stream),
                                                  .m = 3,
                                                  .n = 5,
                                                  .k = 4,
                                                  .lda = 4,
                                                  .ldb = 5,
                                                  .ldc = 5});
  });
  EXPECT_EQ(values_of(c), repeated(15, 24));
}

TEST(CudaLibraries, ASoftmaxIsMadeOnTheGpuOfItsStream) {
  const Tensor in = filled(32, 7, "cuda:1");
  const Tensor out = empty({32}, {.device = "cuda:1"});
  const Stream stream = current_stream("cuda:1");
  on_a_new_thread([&] {
    cuda::CudaCall<Softmax>::run(
        stream.state(),
        {detail::input<float>(in), detail::output<float>(out, stream), detail::Axis({8, 4}, 1)});
  });
  EXPECT_EQ(values_of(out), repeated(32, 0.25F));
}

TEST(CudaLibraries, ABroadcastStandsBetweenTheStreamsWork) {
  const Tensor source = filled(500, 3, kGpus[0]);
  for (int round = 0; round < 2; ++round) {
    Tensor made = doubled(source);
    std::vector<Tensor> copies = comm::broadcast(made, kGpus);
    made = Tensor();
    copies[0] = Tensor();
    for (std::size_t i = 1; i < kGpus.size(); ++i) {
      EXPECT_EQ(values_of(doubled(copies[i])), repeated(500, 12));
    }
  }
}

TEST(CudaLibraries, ASumStandsBetweenTheStreamsWork) {
  for (int round = 0; round < 2; ++round) {
    std::vector<Tensor> parts;
    for (const Device& gpu : kGpus) parts.push_back(doubled(filled(500, 1, gpu)));
    const Tensor sum = comm::reduce_add(parts, kGpus[1]);
    parts.clear();
    EXPECT_EQ(values_of(doubled(sum)), repeated(500, 12));
  }
}

// The GPUs that are current in the calls of NCCL that `body` makes on a thread that has made
// another GPU current.
template <class Body>
std::set<int> current_in_nccl(const Body& body) {
  std::set<int> current;
  std::thread([&] {
    EXPECT_EQ(cudaSetDevice(4), cudaSuccess);
    cudasim::record_calls(true);
    body();
    for (const cudasim::Call& call : cudasim::take_calls()) {
      if (call.function.starts_with("nccl")) current.insert(call.device);
    }
    cudasim::record_calls(false);
  }).join();
  return current;
}

// The first call makes the communicator.
TEST(CudaLibraries, ACollectiveIsCalledOnOneOfItsGpus) {
  const Tensor source = filled(500, 3, kGpus[1]);
  const std::vector<Device> two = {kGpus[1], kGpus[2]};
  for (int call = 0; call < 2; ++call) {
    EXPECT_EQ(current_in_nccl([&] { (void)comm::broadcast(source, two); }),
              std::set<int>{kGpus[1].index});
  }
}

// The first makes the communicator, which both threads use.
TEST(CudaLibraries, ACollectiveMakesNoContextOnAnotherGpu) {
  const Tensor source = filled(500, 3, kGpus[0]);
  for (const Device& reader : kGpus) {
    for (const Device& owner : kGpus) EXPECT_TRUE(detail::can_access(reader, owner));
  }
  for (int thread = 0; thread < 2; ++thread) {
    for (const Device& gpu : kGpus) synchronize(gpu);
    std::vector<Tensor> copies;
    on_a_new_thread([&] { copies = comm::broadcast(source, kGpus); });
    EXPECT_EQ(values_of(copies[2]), repeated(500, 3));
  }
}

TEST(CudaLibraries, ARankIsCalledOnItsOwnGpu) {
  ncclUniqueId id{};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  auto comm = cuda::connect_rank(0, 1, id, kGpus[0], [] {});
  cuda::NcclCarrier rank(0, 1, kGpus[0], std::move(comm), distributed::detail::GroupWatch(),
                         std::chrono::minutes(1));
  const auto barrier = [&] {
    rank.run({.collective = distributed::detail::Collective::barrier}, {}, {}, nullptr, {});
  };
  EXPECT_EQ(current_in_nccl(barrier), std::set<int>{kGpus[0].index});
}

// Whoever calls it, and whoever has its last handle.
TEST(CudaLibraries, ARankMakesNoContextOnAnotherGpu) {
  using distributed::detail::Collective;
  ncclUniqueId id{};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  auto comm = cuda::connect_rank(0, 1, id, kGpus[0], [] {});
  auto rank = std::make_unique<cuda::NcclCarrier>(
      0, 1, kGpus[0], std::move(comm), distributed::detail::GroupWatch(), std::chrono::minutes(1));
  on_a_new_thread([&] { rank->run({.collective = Collective::barrier}, {}, {}, nullptr, {}); });
  on_a_new_thread([&] { rank.reset(); });
}

// Whichever thread finds that it has to end.
TEST(CudaLibraries, AnAbortMakesNoContextOnAnotherGpu) {
  ncclUniqueId id{};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  auto comm = cuda::connect_rank(0, 1, id, kGpus[0], [] {});
  cuda::NcclCarrier rank(0, 1, kGpus[0], std::move(comm), distributed::detail::GroupWatch(),
                         std::chrono::minutes(1));
  on_a_new_thread([&] { rank.leave(std::make_exception_ptr(42)); });
}

// Until the other rank has come to it, too; only a communicator's first collective waits for that.
TEST(CudaLibraries, ARankKnowsWhatIsInFlight) {
  using distributed::detail::Collective;
  ncclUniqueId id{};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::array<std::unique_ptr<cuda::NcclCarrier>, 2> ranks;
  const auto for_each_rank = [](const auto& body) {
    std::thread other([&body] { body(1); });
    body(0);
    other.join();
  };
  for_each_rank([&](int rank) {
    const Device gpu = kGpus[static_cast<std::size_t>(rank)];
    auto comm = cuda::connect_rank(rank, 2, id, gpu, [] {});
    ranks[static_cast<std::size_t>(rank)] = std::make_unique<cuda::NcclCarrier>(
        rank, 2, gpu, std::move(comm), distributed::detail::GroupWatch(), std::chrono::minutes(1));
  });

  const std::array<Tensor, 2> values = {filled(300, 1, kGpus[0]), filled(300, 2, kGpus[1])};
  const auto issue = [&](std::size_t rank) {
    const Stream stream = *ranks[rank]->stream_for(kGpus[rank]);
    stream.wait_stream(current_stream(kGpus[rank]));
    void* const data = values[rank].impl()->data();
    const void* const input = data;
    ranks[rank]->run({.collective = Collective::all_reduce, .dtype = Dtype::f32, .count = 300},
                     {&input, 1}, {&data, 1}, &stream, {});
    current_stream(kGpus[rank]).wait_stream(stream);
  };
  for_each_rank([&](int rank) { issue(static_cast<std::size_t>(rank)); });  // the first waits
  EXPECT_EQ(values_of(values[0]), repeated(300, 3));
  issue(0);
  EXPECT_TRUE(ranks[0]->progress());
  issue(1);
  EXPECT_EQ(values_of(values[0]), repeated(300, 6));
  for_each_rank([&](int rank) { ranks[static_cast<std::size_t>(rank)].reset(); });
}

// As processes have them: a communicator and a thread for each rank.
TEST(CudaLibraries, ARankIsOnItsOwnGpu) {
  distributed::HashStore store;
  const int size = static_cast<int>(kGpus.size());
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&store, rank, size] {
      try {
        const Device gpu = kGpus[static_cast<std::size_t>(rank)];
        ASSERT_EQ(cudaSetDevice(4), cudaSuccess);  // the program's own choice
        const distributed::ProcessGroup group = nccl::process_group(rank, size, gpu, store);
        const Tensor value = filled(300, 1, gpu);
        group.all_reduce(value).wait();
        const distributed::ProcessGroup turned = group.new_group({2, 1, 0});
        turned.all_reduce(value).wait();
        EXPECT_EQ(values_of(value), repeated(300, 9));
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << " threw " << error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_FALSE(has_context_on_gpu_0());
}

}  // namespace cuda_libraries_test
}  // namespace lockstep

#include "cudasim/suite/main.cpp"
