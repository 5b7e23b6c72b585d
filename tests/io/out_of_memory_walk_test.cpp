// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/streams.hpp>
#include <lockstep/io/checkpoint.hpp>
#include <lockstep/io/random_state.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/tensor/creation.hpp>

#include "io/files.hpp"
#include "io/training.hpp"
#include "io/whole_checkpoint.hpp"
#include "support/out_of_memory_walk.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace lockstep {
namespace out_of_memory_walk_test {

using testing::by_name;
using testing::fails_at;
using testing::files_in;
using testing::OutOfMemory;
using testing::Place;
using testing::same;
using testing::SmallNet;
using testing::TempDirectory;
using testing::walk;
using testing::walk_places;
using testing::whole_checkpoint;

TEST(OutOfMemoryWalk, SavingACheckpoint) {
  const TempDirectory folder;
  const io::Checkpoint before = whole_checkpoint(1);
  const io::Checkpoint after = whole_checkpoint(2);
  walk("save_checkpoint", [&](Place place) {
    io::save_checkpoint(folder / "last", before);
    const bool failed =
        fails_at(place, [&] { io::save_checkpoint(folder / "last", whole_checkpoint(2)); });
    const io::Checkpoint found = io::load_checkpoint(folder / "last");
    EXPECT_TRUE(same(found, failed ? before : after));
    io::set_random_state(found.random);
    EXPECT_EQ(files_in(folder.path()), 1);
  });
}

TEST(OutOfMemoryWalk, LoadingACheckpoint) {
  const TempDirectory folder;
  const io::Checkpoint saved = whole_checkpoint(1);
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

TEST(OutOfMemoryWalk, LoadingAStateDictOfAnotherDtype) {
  StateDict dict;
  const SmallNet trained;
  for (const NamedTensor& entry : state_dict(trained)) {
    dict.push_back({entry.name, entry.tensor.detach().to(Dtype::f64).to("cpu:1")});
  }
  const auto after = by_name(state_dict(trained));
  walk("load_state_dict", [&](Place place) {
    const SmallNet net;
    const auto before = by_name(state_dict(net));
    const bool failed = fails_at(place, [&] { load_state_dict(net, dict); });
    EXPECT_EQ(by_name(state_dict(net)), failed ? before : after);
  });
}

TEST(OutOfMemoryWalk, MovingAModule) {
  const auto tensors_of = [](const SmallNet& net) {
    std::vector<Tensor> tensors;
    for (const Parameter& parameter : parameters(net)) {
      tensors.push_back(parameter);
      tensors.push_back(parameter.grad());
    }
    for (const Buffer& buffer : buffers(net)) tensors.push_back(buffer);
    return tensors;
  };
  const auto memory_of = [&](const SmallNet& net) {
    std::vector<const void*> memory;
    for (const Tensor& tensor : tensors_of(net)) memory.push_back(tensor.impl()->data());
    return memory;
  };
  walk_places("to", "memory", 1, &OutOfMemory::has_struck, [&](Place place) {
    const SmallNet net;
    for (const Parameter& parameter : parameters(net)) parameter.set_grad(ones_like(parameter));
    const auto memory = memory_of(net);
    const auto values = by_name(state_dict(net));
    for (const Device device : {Device(), Device("cpu:1")}) {
      empty_cache(device);  // what is kept does not fail
    }
    const bool failed = fails_at(place, [&] { to(net, "cpu:1"); });
    for (const Tensor& tensor : tensors_of(net)) {
      EXPECT_EQ(tensor.device(), failed ? Device() : Device("cpu:1"));
    }
    EXPECT_EQ(memory_of(net) == memory, failed);
    EXPECT_EQ(by_name(state_dict(net)), values);
  });
}

}  // namespace out_of_memory_walk_test
}  // namespace lockstep
