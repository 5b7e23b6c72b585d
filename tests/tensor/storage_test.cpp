// SPDX-License-Identifier: Apache-2.0
#include <lockstep/tensor/storage.hpp>

#include <lockstep/backend/host/host_stream.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <latch>
#include <optional>
#include <vector>

namespace lockstep {
namespace storage_test {

// Holds a stream until it is opened.
class Gate {
 public:
  explicit Gate(const Stream& stream) {
    static_cast<detail::HostStream&>(stream.state()).submit([this] { latch_.wait(); });
  }
  void open() { latch_.count_down(); }

 private:
  std::latch latch_{1};
};

TEST(Storage, MemoryRecordedOnAStreamIsNotReusedBeforeItsWorkHasEnded) {
  const Device device("cpu:3");
  const Stream copies = copy_stream(device);
  copies.synchronize();
  Gate gate(copies);
  std::optional<Tensor> first = ones({1 << 16}, {.device = device});
  const float* const address = first->const_data_ptr<float>();
  first->record_stream(copies);
  first.reset();
  const Tensor second = ones({1 << 16}, {.device = device});
  EXPECT_NE(second.const_data_ptr<float>(), address);
  gate.open();
  copies.synchronize();
}

TEST(Storage, AWriterWaitsForTheStreamsThatStillRead) {
  const Device device("cpu:4");
  const Stream copies = copy_stream(device);
  copies.synchronize();
  Gate gate(copies);
  const Tensor x = ones({4}, {.device = device});
  x.record_stream(copies);
  // The write has to wait for the copy stream: the stream it goes to is left with something to
  // wait for.
  x.impl()->storage->order_write(current_stream(device));
  EXPECT_FALSE(current_stream(device).query());
  gate.open();
  current_stream(device).synchronize();
  EXPECT_TRUE(copies.query());
  EXPECT_EQ(x.fill_(2).to_vector<float>(), std::vector<float>(4, 2.0F));
}

TEST(Storage, ItsOwnStreamNeedsNoRecord) {
  const Device device("cpu:5");
  const Tensor x = ones({4}, {.device = device});
  x.record_stream(current_stream(device));
  x.impl()->storage->order_write(copy_stream(device));
  EXPECT_TRUE(copy_stream(device).query());
}

}  // namespace storage_test
}  // namespace lockstep
