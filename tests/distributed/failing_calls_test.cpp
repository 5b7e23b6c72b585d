// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/distributed/store/file_store.hpp>
#include <lockstep/distributed/store/tcp_store.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/creation.hpp>

#include "data/files.hpp"
#include "support/define_failing_calls.hpp"
#include "support/expect_error.hpp"
#include "support/failing_calls_walk.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {
namespace failing_calls_test {

using distributed::FileStore;
using distributed::ProcessGroup;
using distributed::StoreError;
using distributed::TCPStore;
using testing::CallKind;
using testing::fails_with;
using testing::Place;
using testing::TempDirectory;
using testing::walk_calls;

// The threads of ranks, and those that communicate for them.
TEST(FailingCalls, RanksThatAreThreads) {
  LOCKSTEP_NEEDS_FAILING_CALLS();
  constexpr std::size_t count = 3;
  walk_calls("run", [&](Place place) {
    std::vector<float> sums(count);
    const auto run = [&] {
      distributed::run(std::vector<Device>(count, "cpu:0"), [&](const ProcessGroup& group) {
        const Tensor one = ones({1000}, {.device = group.device()});
        group.all_reduce(one).wait();
        sums[static_cast<std::size_t>(group.rank())] = one.to_vector<float>()[999];
      });
    };
    if (fails_with<Error>(CallKind::thread, place, "Resource temporarily", run)) run();
    EXPECT_EQ(sums, std::vector<float>(count, static_cast<float>(count)));
  });
}

TEST(FailingCalls, AFileStore) {
  LOCKSTEP_NEEDS_FAILING_CALLS();
  const TempDirectory folder;
  const std::string path = (folder / "store").string();
  int number = 0;
  walk_calls("FileStore", [&](Place place) {
    const std::string key = "key" + std::to_string(++number);
    const auto use = [&] {
      FileStore store(path);
      store.set(key, "value");
      EXPECT_EQ(store.get(key), "value");
    };
    if (fails_with<StoreError>(CallKind::file, place, path, use)) use();
    EXPECT_EQ(FileStore(path).get(key), "value");
  });
}

// A call that a signal has interrupted is made again, and one that has moved less than it should
// goes on.
TEST(FailingCalls, AFileStoreWhoseCallsAreInterruptedOrCutShort) {
  LOCKSTEP_NEEDS_FAILING_CALLS();
  const TempDirectory folder;
  FileStore one(folder / "store");
  FileStore other(folder / "store");
  bool interrupted = true;
  int number = 0;
  for (std::uint64_t nth = 1; interrupted; ++nth) {
    const std::string value = std::to_string(++number);
    other.set("other", value);
    {
      const testing::FailingCalls failing(CallKind::file, nth, false, EINTR);
      one.set("one", value);  // reads what the other has written
      interrupted = testing::FailingCalls::has_struck();
    }
    EXPECT_EQ(one.get("other"), value);
    EXPECT_EQ(other.get("one"), value);
  }
  EXPECT_GT(number, 2);
  for (const std::size_t most : {1U, 5U}) {
    const std::uintmax_t before = std::filesystem::file_size(folder / "store");
    const testing::ShortCalls few(most);
    one.set("one", "by few bytes");
    EXPECT_EQ(other.get("one"), "by few bytes");
    other.set("other", "these, too");
    EXPECT_EQ(one.get("other"), "these, too");
    EXPECT_EQ(std::filesystem::file_size(folder / "store") - before, 64U);
  }
  other.set("other", "late");
  const testing::ShortCalls nothing(0);
  EXPECT_TRUE(testing::throws<StoreError>([&] { one.get("other"); }, "shorter while it was read"));
}

TEST(FailingCalls, ATCPStore) {
  LOCKSTEP_NEEDS_FAILING_CALLS();
  walk_calls("TCPStore", [&](Place place) {
    if (place.lasting) return;  // it tries until its timeout
    std::string found;
    const auto use = [&] {
      TCPStore server("localhost", {.port = 0, .is_server = true});
      TCPStore client("localhost", {.port = server.port()});
      client.set("key", "value");
      found = server.get("key");
    };
    if (fails_with<Error>(CallKind::socket, place, "", use)) use();
    EXPECT_EQ(found, "value");
  });
}

TEST(FailingCalls, TheThreadOfATCPStoresServer) {
  LOCKSTEP_NEEDS_FAILING_CALLS();
  walk_calls("TCPStore's thread", [&](Place place) {
    std::string found;
    const auto use = [&] {
      TCPStore server("localhost", {.port = 0, .is_server = true});
      server.set("key", "value");
      found = server.get("key");
    };
    if (fails_with<Error>(CallKind::thread, place, "no thread for sockets", use)) use();
    EXPECT_EQ(found, "value");
  });
}

}  // namespace failing_calls_test
}  // namespace lockstep
