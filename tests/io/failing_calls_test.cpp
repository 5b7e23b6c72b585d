// SPDX-License-Identifier: Apache-2.0
#include <lockstep/error.hpp>
#include <lockstep/io/checkpoint.hpp>

#include "io/files.hpp"
#include "io/whole_checkpoint.hpp"
#include "support/define_failing_calls.hpp"
#include "support/failing_calls.hpp"
#include "support/failing_calls_walk.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {
namespace failing_calls_test {

using testing::CallKind;
using testing::fails_with;
using testing::files_in;
using testing::Place;
using testing::same;
using testing::TempDirectory;
using testing::walk_calls;
using testing::whole_checkpoint;

TEST(FailingCalls, SavingACheckpoint) {
  LOCKSTEP_NEEDS_FAILING_CALLS();
  const TempDirectory folder;
  const std::string path = (folder / "last").string();
  const io::Checkpoint before = whole_checkpoint(1);
  const io::Checkpoint after = whole_checkpoint(2);
  walk_calls("save_checkpoint", [&](Place place) {
    io::save_checkpoint(path, before);
    const bool failed = fails_with<DataError>(CallKind::file, place, path,
                                              [&] { io::save_checkpoint(path, after); });
    const io::Checkpoint found = io::load_checkpoint(path);
    // Whole in any case; if only the folder could not be synced, it is the new one.
    EXPECT_TRUE(same(found, after) || (failed && same(found, before)));
    EXPECT_EQ(files_in(folder.path()), 1);
  });
}

TEST(FailingCalls, LoadingACheckpoint) {
  LOCKSTEP_NEEDS_FAILING_CALLS();
  const TempDirectory folder;
  const std::string path = (folder / "last").string();
  const io::Checkpoint saved = whole_checkpoint(1);
  io::save_checkpoint(path, saved);
  walk_calls("load_checkpoint", [&](Place place) {
    std::optional<io::Checkpoint> found;
    const auto load = [&] { found = io::load_checkpoint(path, "cpu:1"); };
    if (fails_with<DataError>(CallKind::file, place, path, load)) load();
    EXPECT_TRUE(same(*found, saved));
  });
}

// Of reading: whether opening a file may be interrupted is the file system's affair.
TEST(FailingCalls, AnInterruptedReadIsMadeAgain) {
  LOCKSTEP_NEEDS_FAILING_CALLS();
  const TempDirectory folder;
  const std::string path = (folder / "last").string();
  const io::Checkpoint saved = whole_checkpoint(1);
  io::save_checkpoint(path, saved);
  bool interrupted = true;
  std::uint64_t nth = 2;
  for (; interrupted; ++nth) {
    const testing::FailingCalls failing(CallKind::file, nth, false, EINTR);
    EXPECT_TRUE(same(io::load_checkpoint(path), saved));
    interrupted = testing::FailingCalls::has_struck();
  }
  EXPECT_GT(nth, 4U);
}

}  // namespace failing_calls_test
}  // namespace lockstep
