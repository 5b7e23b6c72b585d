// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/launch/index_fault.hpp>
#include <lockstep/cuda/lost_results.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/group/carrier.hpp>
#include <lockstep/distributed/group/group_state.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/distributed/thread/gpu_moves.hpp>
#include <lockstep/distributed/thread/mailbox.hpp>
#include <lockstep/distributed/thread/thread_world.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.hpp>

#include "cuda/schedules.hpp"
#include "cuda/without_nccl.hpp"
#include "support/expect_error.hpp"
#include "support/sanitizers.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

// What ranks that are threads do on GPUs where one of these fails: who is named, what is known to
// have ended, and what is kept.
namespace lockstep {
namespace gpu_moves_test {

using distributed::ProcessGroup;
using distributed::detail::Call;
using distributed::detail::Collective;
using distributed::detail::Done;
using distributed::detail::GpuMoves;
using distributed::detail::Message;
using distributed::detail::ThreadWorld;
using testing::throws;

constexpr int kRanks = 2;
constexpr std::size_t kCount = 9;

const std::vector<Device>& gpus() {
  static const std::vector<Device> devices = {"cuda:0", "cuda:1"};
  return devices;
}

Stream stream_of(std::size_t rank) {
  static const std::vector<Stream> streams = {pool_stream(gpus()[0]), pool_stream(gpus()[1])};
  return streams[rank];
}

// Once a kernel that faults has run on it.
void break_gpu(std::size_t rank) {
  cudasim::break_stream(static_cast<cuda::CudaStream&>(stream_of(rank).state()).bare_handle(),
                        cudaErrorIllegalAddress);
  EXPECT_THROW(stream_of(rank).synchronize(), CudaError);
}

// Mended at its end, with nothing in flight.
class BrokenGpus {
 public:
  BrokenGpus() = default;
  BrokenGpus(const BrokenGpus&) = delete;
  BrokenGpus& operator=(const BrokenGpus&) = delete;
  ~BrokenGpus() {
    cudasim::mend();
    for (std::size_t rank = 0; rank < kRanks; ++rank) stream_of(rank).synchronize();
  }
};

// Every read of the GPU throws as long as it lives.
class LostResults {
 public:
  explicit LostResults(Device device) : device_(device) {
    cuda::LostResults::note(
        device, nullptr, [](const std::string*) { throw std::runtime_error("results are lost"); });
  }
  LostResults(const LostResults&) = delete;
  LostResults& operator=(const LostResults&) = delete;
  ~LostResults() { cuda::LostResults::forget(device_); }

 private:
  const Device device_;
};

// An all_reduce of both ranks, in one thread.
class Sum {
 public:
  Sum() {
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      const Stream stream = stream_of(rank);
      tensors_[rank] = full({kCount}, 1, {.device = gpus()[rank]});
      stream.wait_stream(current_stream(gpus()[rank]));
      inputs_[rank] = outputs_[rank] = tensors_[rank].impl()->data();
      ThreadWorld::Slot& slot = world_.slot(rank, 0);
      slot.call = kCall;
      slot.on_gpu = true;
      slot.inputs = {&inputs_[rank], 1};
      slot.outputs = {&outputs_[rank], 1};
      slot.gpu.emplace(ThreadWorld::GpuSide{stream, stream.record_event(), nullptr, {}, {}});
    }
  }

  GpuMoves of(int rank) const { return {world_, 0, rank, kCall}; }

 private:
  static constexpr Call kCall{
      .collective = Collective::all_reduce, .dtype = Dtype::f32, .count = kCount};

  ThreadWorld world_{kRanks, gpus()};
  std::array<Tensor, kRanks> tensors_;
  std::array<const void*, kRanks> inputs_{};
  std::array<void*, kRanks> outputs_{};
  const BrokenGpus broken_;
};

void under_lazy(const auto& body) { testing::under(cudasim::Policy::lazy, 1, body); }

TEST(GpuMoves, ARankWhoseGpuFailsAfterItsShareIsNamed) {
  under_lazy([] {
    const Sum sum;
    GpuMoves mine = sum.of(0);
    GpuMoves others = sum.of(1);
    mine.issue();
    others.issue();
    break_gpu(1);
    bool in_use = false;
    EXPECT_TRUE(throws<DeviceError>(
        [&] { mine.await_others(in_use); },
        "all_reduce(sum) of 9 x f32: failed on rank 1, on cuda:1: ", "cudaErrorIllegalAddress"));
    EXPECT_TRUE(in_use);
    in_use = false;
    EXPECT_TRUE(throws<CudaError>([&] { others.await_others(in_use); }, "on cuda:1",
                                  "cudaErrorIllegalAddress"));
    EXPECT_FALSE(in_use);
  });
}

TEST(GpuMoves, ARankWhoseGpuFailsBeforeItsShareIsNamed) {
  under_lazy([] {
    const Sum sum;
    break_gpu(1);
    GpuMoves mine = sum.of(0);
    mine.issue();
    EXPECT_TRUE(throws<DeviceError>([&] { mine.check(); },
                                    "failed on rank 1, on cuda:1: ", "cudaErrorIllegalAddress"));
  });
}

// Work that has ended has ended, whatever is known of its results.
TEST(GpuMoves, LostResultsKeepNoMemory) {
  under_lazy([] {
    const Sum sum;
    GpuMoves mine = sum.of(0);
    GpuMoves others = sum.of(1);
    mine.issue();
    others.issue();
    const LostResults lost(gpus()[1]);
    cudasim::fail_next("cudaStreamWaitEvent", cudaErrorLaunchOutOfResources);
    bool in_use = false;
    EXPECT_TRUE(throws<CudaError>([&] { mine.await_others(in_use); }, "cudaStreamWaitEvent",
                                  "cudaErrorLaunchOutOfResources"));
    EXPECT_FALSE(in_use);
  });
}

TEST(GpuMoves, WhoWaitsForWorkTakesNoErrorThatTheProgramIsToBeTold) {
  under_lazy([] {
    const Sum sum;
    const detail::StreamState& stream = stream_of(0).state();
    cuda::IndexFaults& faults = cuda::IndexFaults::instance();
    (void)cuda::in_range(faults.of(stream), lockstep::detail::RowsOf::embedding, 12, 3, 10);
    GpuMoves mine = sum.of(0);
    cudasim::fail_next("cudaEventRecord", cudaErrorLaunchOutOfResources, 2);
    mine.issue();
    cudasim::mend();
    EXPECT_TRUE(throws<CudaError>([&] { mine.check(); }, "cudaErrorLaunchOutOfResources"));
    EXPECT_TRUE(throws<IndexError>([&] { faults.raise(stream); }, "index 12"));
  });
}

// A message from rank 0 to rank 1, which comes second.
struct Exchange {
  Exchange() {
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      stream_of(rank).wait_stream(current_stream(gpus()[rank]));
    }
    send();
  }

  void send() {
    const Stream stream = stream_of(0);
    world.mailbox.post(0, message(true), tensors[0].impl()->data(), keep(0), &stream);
  }
  void receive() {
    const Stream stream = stream_of(1);
    world.mailbox.post(1, message(false), tensors[1].impl()->data(), keep(1), &stream);
  }

  static Message message(bool sends) {
    return {.peer = sends ? 1 : 0, .dtype = Dtype::f32, .count = kCount, .sends = sends};
  }
  Done keep(std::size_t rank) {
    return [this, rank](std::exception_ptr error) { errors[rank] = std::move(error); };
  }
  std::string text(std::size_t rank) const {
    try {
      if (errors[rank]) std::rethrow_exception(errors[rank]);
    } catch (const std::exception& error) {
      return error.what();
    }
    return {};
  }

  std::array<std::exception_ptr, kRanks> errors;
  ThreadWorld world{kRanks, gpus()};  // tells what it still has as it ends
  const std::array<Tensor, kRanks> tensors = {full({kCount}, 1, {.device = gpus()[0]}),
                                              full({kCount}, 2, {.device = gpus()[1]})};
  const BrokenGpus broken;
};

TEST(GpuMailbox, ASenderWhoseGpuFailsIsNamed) {
  under_lazy([] {
    Exchange message;
    break_gpu(0);
    message.receive();
    EXPECT_NE(message.text(0).find("cudaErrorIllegalAddress"), std::string::npos);
    EXPECT_EQ(message.text(0).find("failed on rank"), std::string::npos);
    const std::string told = "a message from rank 0 to rank 1: failed on rank 0, on cuda:0: ";
    EXPECT_NE(message.text(1).find(told), std::string::npos) << message.text(1);
  });
}

// At every call that may fail.
TEST(GpuMailbox, TheErrorOfACopyIsNotReplacedByLostResults) {
  under_lazy([] {
    Exchange().receive();  // tries out what the GPUs can reach, and reads that
    int failed = 0;
    for (std::uint64_t n = 0;; ++n) {
      Exchange message;
      const LostResults lost(gpus()[1]);
      cudasim::fail_call(n, cudaErrorLaunchOutOfResources);
      std::string error;
      try {
        message.receive();
        error = message.text(1);
      } catch (const CudaError& thrown) {
        error = thrown.what();
      }
      if (cudasim::end_failing_calls().empty()) break;
      (void)cudaSetDevice(gpus()[0].index);  // in case that it was this call
      if (error.empty()) continue;
      EXPECT_NE(error.find("cudaErrorLaunchOutOfResources"), std::string::npos) << error;
      ++failed;
    }
    EXPECT_GT(failed, 3);
  });
}

class Mends {
 public:
  Mends() = default;
  Mends(const Mends&) = delete;
  Mends& operator=(const Mends&) = delete;
  ~Mends() { cudasim::mend(); }
};

// A rank's memory may be in use for ever where another one's GPU has failed in a collective. What
// comes after that is not, on the GPU as on the host.
TEST(ProcessGroupCuda, NothingThatIsIssuedAfterTheEndOfAGroupIsKept) {
  const testing::WithoutNccl copies;
  const testing::MayLeak memory;
  under_lazy([] {
    int kept = 0;
    for (std::uint64_t n = 0;; ++n) {
      SCOPED_TRACE("call " + std::to_string(n));
      std::string failed;
      const Mends mends;
      distributed::run(gpus(), [&](const ProcessGroup& group) {
        const testing::MayLeak its_memory;
        const auto in_its_thread = [&](const auto& body) {
          group.impl()->thread()->issue(detail::Task([&]() noexcept { body(); }));
          group.impl()->thread()->drain();
        };
        const auto refused = [&](const Tensor& tensor) {
          try {
            group.all_reduce(tensor).wait();
          } catch (const std::exception&) {
            group.impl()->thread()->drain();
            return true;
          }
          return false;
        };
        const Tensor met = full({kCount}, 1, {.device = group.device()});
        (void)group.blocking().barrier();
        if (group.rank() == 0) {
          in_its_thread([&] { cudasim::fail_call(n, cudaErrorIllegalAddress, gpus()[1].index); });
        }
        const bool within = refused(met);  // or when it lets go of its memory
        if (group.rank() != 0) return;
        in_its_thread([&] { failed = cudasim::end_failing_calls(); });
        if (met.impl().use_count() == 1) return;
        if (within) ++kept;
        const Device device = kept % 2 == 0 ? group.device() : "cpu";
        const Tensor later = full({kCount}, 1, {.device = device});
        EXPECT_TRUE(refused(later));
        EXPECT_EQ(later.impl().use_count(), 1) << device;
      });
      if (failed.empty()) break;
    }
    EXPECT_GT(kept, 1);
  });
}

}  // namespace gpu_moves_test
}  // namespace lockstep
