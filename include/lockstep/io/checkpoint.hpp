// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/io/safetensors_header.hpp>
#include <lockstep/module/state_dict.hpp>

#include <cstdint>
#include <filesystem>

namespace lockstep::io {

// What a program needs to resume training. Parts that it does not need stay empty.
struct Checkpoint {
  StateDict model = {};         // state_dict(net)
  StateDict optimizer = {};     // sgd.state_dict()
  StateDict lr_scheduler = {};  // schedule.state_dict()
  StateDict random = {};        // random_state()
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  Metadata metadata = {};  // anything else; no key may begin with "lockstep."
};

// Writes everything to one safetensors file. The old file stays until the new one is complete.
//
// The names in the file are those of the parts, with the prefixes "model.", "optimizer.",
// "lr_scheduler." and "random.", so Python can read the model's weights from it.
//
// **Torch counterpart.** torch.save of a dict of state dicts.
// **Devices and streams.** See save_file.
// **Threads and exceptions.** See save_file; a ValueError for metadata whose key is reserved.
// **Example.**
//   io::save_checkpoint("last.safetensors", {.model = state_dict(net),
//                                            .optimizer = sgd.state_dict(),
//                                            .epoch = epoch});
void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint);

// Reads what save_checkpoint wrote, as new tensors on `device`.
//
// Loading a part into its object converts each value to the object's device and dtype, so a
// checkpoint can be loaded on any devices.
//
// **Torch counterpart.** torch.load.
// **Threads and exceptions.** See SafetensorsFile; a DataError for a file that is not a checkpoint.
// **Example.**
//   const io::Checkpoint last = io::load_checkpoint("last.safetensors");
//   load_state_dict(net, last.model);
//   sgd.load_state_dict(last.optimizer);
//   for (std::int64_t epoch = last.epoch + 1; epoch < 90; ++epoch) { ... }
Checkpoint load_checkpoint(const std::filesystem::path& path, Device device = {});

}  // namespace lockstep::io

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/io/impl/checkpoint.ipp>
#endif
