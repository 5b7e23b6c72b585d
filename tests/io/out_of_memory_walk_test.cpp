// SPDX-License-Identifier: Apache-2.0
#include <lockstep/io/checkpoint.hpp>
#include <lockstep/io/random_state.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/tensor/random.hpp>

#include "io/files.hpp"
#include "io/training.hpp"
#include "support/out_of_memory_walk.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {
namespace out_of_memory_walk_test {

using testing::fails_at;
using testing::files_in;
using testing::Place;
using testing::set_parameters;
using testing::SmallNet;
using testing::TempDirectory;
using testing::walk;

// Everything that a checkpoint can have; `variant` decides all of it.
io::Checkpoint checkpoint(int variant) {
  const SmallNet net;
  set_parameters(net, variant);
  optim::SGD sgd{parameters(net), {.lr = 0.1, .momentum = 0.9}};
  manual_seed(static_cast<std::uint64_t>(variant));
  return {.model = state_dict(net),
          .optimizer = sgd.state_dict(),
          .random = io::random_state(),
          .epoch = variant,
          .metadata = {{"written by", "a test"}}};
}

// A file has the tensors in an order of its own.
std::map<std::string, std::vector<double>> by_name(const StateDict& dict) {
  std::map<std::string, std::vector<double>> values;
  for (const NamedTensor& entry : dict) {
    values[entry.name] = entry.tensor.to(Dtype::f64).to_vector<double>();
  }
  return values;
}

bool same(const io::Checkpoint& a, const io::Checkpoint& b) {
  return by_name(a.model) == by_name(b.model) && by_name(a.optimizer) == by_name(b.optimizer) &&
         by_name(a.random) == by_name(b.random) && a.epoch == b.epoch && a.metadata == b.metadata;
}

TEST(OutOfMemoryWalk, SavingACheckpoint) {
  const TempDirectory folder;
  const io::Checkpoint before = checkpoint(1);
  const io::Checkpoint after = checkpoint(2);
  walk("save_checkpoint", [&](Place place) {
    io::save_checkpoint(folder / "last", before);
    const bool failed =
        fails_at(place, [&] { io::save_checkpoint(folder / "last", checkpoint(2)); });
    const io::Checkpoint found = io::load_checkpoint(folder / "last");
    EXPECT_TRUE(same(found, failed ? before : after));
    io::set_random_state(found.random);
    EXPECT_EQ(files_in(folder.path()), 1);
  });
}

TEST(OutOfMemoryWalk, LoadingACheckpoint) {
  const TempDirectory folder;
  const io::Checkpoint saved = checkpoint(1);
  io::save_checkpoint(folder / "last", saved);
  walk("load_checkpoint", [&](Place place) {
    const SmallNet net;
    optim::SGD sgd{parameters(net), {.lr = 0.2}};
    const auto load = [&] {
      const io::Checkpoint found = io::load_checkpoint(folder / "last", "cpu:1");
      load_state_dict(net, found.model);
      sgd.load_state_dict(found.optimizer);
      io::set_random_state(found.random);
      return found;
    };
    std::optional<io::Checkpoint> found;
    if (fails_at(place, [&] { found = load(); })) found = load();
    EXPECT_TRUE(same(*found, saved));
    EXPECT_EQ(by_name(state_dict(net)), by_name(saved.model));
    EXPECT_EQ(by_name(io::random_state()), by_name(saved.random));
  });
}

}  // namespace out_of_memory_walk_test
}  // namespace lockstep
