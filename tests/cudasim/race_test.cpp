// SPDX-License-Identifier: Apache-2.0
#include "cudasim/cudasim.hpp"
#include "cudasim/program.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>

namespace cudasim::test {
namespace race_test {

TEST(CudasimRace, WriteThenRead) {
  expect_error(
      [] {
        const Stream one;
        const Stream two;
        Floats data(100, one);
        two.wait(one);
        one.write("fill", data.data(), 100, 1);
        two.read("use", data.data(), 100);
        data.record_stream(two);
      },
      {"RACE", "fill on stream 0 of device 0", "use on stream 1 of device 0", "not ordered"});
}

TEST(CudasimRace, ReadThenWriteNamesDevicesAndScopes) {
  expect_error(
      [] {
        const Stream one(0);
        const Stream two(1);
        PageLocked data(100);
        scope("first part");
        one.read("use", data.data(), 100);
        scope("second part");
        two.write("fill", data.data(), 100, 1);
        scope("");
        one.synchronize();
        two.synchronize();
      },
      {"RACE", "use on stream 0 of device 0 in first part",
       "fill on stream 1 of device 1 in second part", "page-locked"});
}

TEST(CudasimRace, TwoWritesOfTheSameByte) {
  expect_error(
      [] {
        const Stream one;
        const Stream two;
        Floats data(100, one);
        two.wait(one);
        one.write("low", data.data(), 51, 1);
        two.write("high", data.data() + 50, 50, 1);
        data.record_stream(two);
      },
      {"RACE (write/write)", "low", "high", "400 bytes"});
}

TEST(CudasimRace, TheAllocationCountsAsAWrite) {
  expect_error(
      [] {
        const Stream one;
        const Stream two;
        Floats data(100, one);
        two.write("early", data.data(), 100, 1);
        data.record_stream(two);
      },
      {"RACE", "cudaMallocAsync on stream 0", "early on stream 1"});
}

TEST(CudasimRace, TheFreeCountsAsAWrite) {
  for (const Config& config : schedules(1, 2, 5)) {
    reset(config);
    {
      const Stream one;
      const Stream two;
      const Floats data(100, one);
      two.wait(one);
      two.read("late", data.data(), 100);
    }
    // Whichever comes first: the free meets an unordered read, or the read what is freed.
    const auto errors = take_errors();
    ASSERT_EQ(errors.size(), 1U) << name_of(config);
    EXPECT_TRUE(contains(errors[0], {"late on stream 1", "cudaFreeAsync on stream 0"}))
        << errors[0];
  }
}

TEST(CudasimRace, NoneBetweenReadsOrNeighbours) {
  expect_clean([] {
    const Stream one;
    const Stream two;
    Floats data(100, one);
    one.write("fill", data.data(), 100, 1);
    two.wait(one);
    one.read("use", data.data(), 100);
    two.read("use", data.data(), 100);
    one.wait(two);
    two.wait(one);
    one.write("low", data.data(), 50, 1);
    two.write("high", data.data() + 50, 50, 1);
    data.record_stream(two);
  });
}

TEST(CudasimRace, EventsOrderTransitively) {
  expect_clean([] {
    const Stream one(0);
    const Stream two(1);
    const Stream three(0);
    Floats data(100, one);
    one.write("fill", data.data(), 100, 1);
    two.wait(one);
    three.wait(two);
    three.read("use", data.data(), 100);
    data.record_stream(three);
  });
}

TEST(CudasimRace, AnEventOrdersWhatCameBeforeItOnly) {
  expect_error(
      [] {
        const Stream one;
        const Stream two;
        Floats data(100, one);
        two.wait(one);
        one.write("after the event", data.data(), 100, 1);
        two.read("use", data.data(), 100);
        data.record_stream(two);
      },
      {"RACE", "after the event", "use"});
}

TEST(CudasimRace, AHostThatHasWaitedOrdersWhatItIssuesThen) {
  expect_clean([] {
    const Stream one;
    const Stream two;
    Floats data(100, one);
    one.write("fill", data.data(), 100, 1);
    one.synchronize();
    two.read("use", data.data(), 100);
    data.record_stream(two);
  });
}

// Columns of one matrix, copied by two streams: the rows alternate, no byte is shared.
TEST(CudasimRace, StridedCopiesAreComparedRowByRow) {
  constexpr std::size_t kRows = 8;
  constexpr std::size_t kPitch = 64;
  const auto columns = [](std::size_t first, std::size_t width) {
    return [=] {
      const Stream one;
      const Stream two;
      const PageLocked source(kRows * kPitch);
      Floats data(kRows * kPitch / sizeof(float), one);
      two.wait(one);
      char* const to = reinterpret_cast<char*>(data.data());
      ok(cudaMemcpy2DAsync(to, kPitch, source.data(), kPitch, 32, kRows, cudaMemcpyHostToDevice,
                           one.get()));
      ok(cudaMemcpy2DAsync(to + first, kPitch, source.data(), kPitch, width, kRows,
                           cudaMemcpyHostToDevice, two.get()));
      data.record_stream(two);
      one.synchronize();
      two.synchronize();
    };
  };
  expect_clean(columns(32, 32));
  expect_error(columns(28, 32), {"RACE (write/write)", "cudaMemcpy2DAsync on stream 0",
                                 "cudaMemcpy2DAsync on stream 1"});
}

TEST(CudasimRace, PageLockedMemoryFreedWhileItIsCopied) {
  for (Config config : schedules(1, 1, 5)) {
    config.fibers = false;
    reset(config);
    const Stream stream;
    const Floats data(100, stream);
    {
      const PageLocked source(100);
      ok(cudaMemcpyAsync(data.data(), source.data(), source.bytes(), cudaMemcpyHostToDevice,
                         stream.get()));
    }
    const auto errors = take_errors();
    ASSERT_EQ(errors.size(), 1U) << name_of(config);
    EXPECT_TRUE(contains(errors[0], {"cudaMemcpyAsync on stream 0", "cudaFreeHost by the host"}))
        << errors[0];
  }
}

TEST(CudasimRace, TheHostReadsPageLockedMemoryTooEarly) {
  float seen = 0;
  expect_error(
      [&seen] {
        const Stream stream;
        const Floats data(100, stream);
        PageLocked target(100);
        stream.write("fill", data.data(), 100, 3);
        ok(cudaMemcpyAsync(target.data(), data.data(), data.bytes(), cudaMemcpyDeviceToHost,
                           stream.get()));
        seen = *static_cast<const volatile float*>(target.data());
        stream.synchronize();
      },
      {"RACE (write/host)", "cudaMemcpyAsync on stream 0", "the host reads"});
}

TEST(CudasimRace, TheHostWritesPageLockedMemoryTooEarly) {
  expect_error(
      [] {
        const Stream stream;
        const Floats data(100, stream);
        PageLocked source(100);
        ok(cudaMemcpyAsync(data.data(), source.data(), data.bytes(), cudaMemcpyHostToDevice,
                           stream.get()));
        *static_cast<volatile float*>(source.data() + 99) = 1;
        stream.synchronize();
      },
      {"RACE (read/host)", "cudaMemcpyAsync on stream 0", "the host writes"});
}

TEST(CudasimRace, TheHostMayUseTheRestOfAPage) {
  expect_clean([] {
    const Stream stream;
    Floats data(100, stream);
    PageLocked source(200);
    ok(cudaMemcpyAsync(data.data(), source.data(), data.bytes(), cudaMemcpyHostToDevice,
                       stream.get()));
    *static_cast<volatile float*>(source.data() + 100) = 1;
    EXPECT_EQ(*static_cast<volatile float*>(source.data() + 100), 1);
    stream.synchronize();
    *static_cast<volatile float*>(source.data()) = 1;
  });
}

}  // namespace race_test
}  // namespace cudasim::test
