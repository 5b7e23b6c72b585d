// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/io/json.hpp>
#include <lockstep/io/safetensors.hpp>
#include <lockstep/io/safetensors_header.hpp>
#include <lockstep/module/state_dict.hpp>

#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace lockstep::io {

// What a program needs to go on training where it was; parts that it does not need stay empty.
struct Checkpoint {
  StateDict model = {};         // state_dict(net)
  StateDict optimizer = {};     // sgd.state_dict()
  StateDict lr_scheduler = {};  // schedule.state_dict()
  StateDict random = {};        // the random numbers to come
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  Metadata metadata = {};  // whatever else is to be told; no key may begin with "lockstep."
};

namespace detail {

inline constexpr std::string_view kReservedKeys = "lockstep.";
inline constexpr const char* kVersionKey = "lockstep.checkpoint";
inline constexpr const char* kEpochKey = "lockstep.epoch";
inline constexpr const char* kStepKey = "lockstep.step";

using CheckpointMember = StateDict Checkpoint::*;

struct CheckpointPart {
  std::string_view prefix;  // of the names in the file
  CheckpointMember dict;
};

inline constexpr std::array<CheckpointPart, 4> kCheckpointParts = {
    {{"model.", &Checkpoint::model},
     {"optimizer.", &Checkpoint::optimizer},
     {"lr_scheduler.", &Checkpoint::lr_scheduler},
     {"random.", &Checkpoint::random}}};

// Takes one of our own entries out of the metadata.
inline std::int64_t take_number(Metadata& metadata, const char* key, const std::string& where) {
  const auto found = metadata.find(key);
  check<DataError>(found != metadata.end(), where,
                   ": no checkpoint of lockstep's: its metadata has no ", json_string(key));
  const std::string text = std::move(found->second);
  metadata.erase(found);
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  check<DataError>(error == std::errc() && stop == end, where, ": the metadata ", json_string(key),
                   " is ", json_string(text), ": expected a number");
  return value;
}

}  // namespace detail

// Writes everything to one safetensors file: the old file stays until the new one is whole.
//
// The names in the file are those of the parts behind "model.", "optimizer.", "lr_scheduler." and
// "random.", so that Python finds the model's weights in it.
//
// **Torch counterpart.** torch.save of a dict of state dicts.
// **Devices and streams.** See save_file: tensors are read on the current streams of their devices.
// **Threads and exceptions.** See save_file; a ValueError for metadata whose key is reserved.
// **Example.**
//   io::save_checkpoint("last.safetensors", {.model = state_dict(net),
//                                            .optimizer = sgd.state_dict(),
//                                            .epoch = epoch});
inline void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint) {
  Metadata metadata = checkpoint.metadata;
  for (const auto& [key, value] : metadata) {
    check<ValueError>(!key.starts_with(detail::kReservedKeys), "save_checkpoint: the metadata ",
                      detail::json_string(key), " has a name that is reserved");
  }
  metadata[detail::kVersionKey] = "1";
  metadata[detail::kEpochKey] = std::to_string(checkpoint.epoch);
  metadata[detail::kStepKey] = std::to_string(checkpoint.step);
  StateDict tensors;
  for (const auto& [prefix, dict] : detail::kCheckpointParts) {
    for (const auto& [name, tensor] : checkpoint.*dict) {
      tensors.push_back({std::string(prefix) + name, tensor});
    }
  }
  save_file(tensors, path, metadata);
}

// Reads what save_checkpoint wrote, as new tensors on `device`.
//
// Loading a part into its object converts each value to the device and dtype that it has there, so
// a checkpoint fits whatever devices the program has.
//
// **Torch counterpart.** torch.load.
// **Threads and exceptions.** See SafetensorsFile; a DataError for a file that is no checkpoint.
// **Example.**
//   const io::Checkpoint last = io::load_checkpoint("last.safetensors");
//   load_state_dict(net, last.model);
//   sgd.load_state_dict(last.optimizer);
//   for (std::int64_t epoch = last.epoch + 1; epoch < 90; ++epoch) { ... }
inline Checkpoint load_checkpoint(const std::filesystem::path& path, Device device = {}) {
  const SafetensorsFile file(path);
  const std::string where = path.string();
  Checkpoint result;
  result.metadata = file.metadata();
  const std::int64_t version = detail::take_number(result.metadata, detail::kVersionKey, where);
  check<DataError>(version == 1, where, ": a checkpoint of version ", version,
                   ": this lockstep reads version 1");
  result.epoch = detail::take_number(result.metadata, detail::kEpochKey, where);
  result.step = detail::take_number(result.metadata, detail::kStepKey, where);
  for (NamedTensor& entry : file.get_tensors(device)) {
    bool known = false;
    for (const auto& [prefix, dict] : detail::kCheckpointParts) {
      if (known || !entry.name.starts_with(prefix)) continue;
      known = true;
      (result.*dict).push_back({entry.name.substr(prefix.size()), entry.tensor});
    }
    check<DataError>(known, where, ": tensor ", detail::json_string(entry.name),
                     " is of no part of a checkpoint");
  }
  return result;
}

}  // namespace lockstep::io
