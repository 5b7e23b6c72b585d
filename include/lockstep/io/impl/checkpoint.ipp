// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/io/checkpoint.hpp>
#include <lockstep/io/json.hpp>
#include <lockstep/io/safetensors.hpp>
#include <lockstep/io/safetensors_header.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/number_in_text.hpp>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::io::detail {

inline constexpr std::string_view kReservedKeys = "lockstep.";

inline constexpr const char* kVersionKey = "lockstep.checkpoint";
inline constexpr const char* kEpochKey = "lockstep.epoch";
inline constexpr const char* kStepKey = "lockstep.step";

// The parts, with the prefixes of their names in the file.
inline constexpr std::array<std::pair<std::string_view, StateDict Checkpoint::*>, 4>
    kCheckpointParts = {{{"model.", &Checkpoint::model},
                         {"optimizer.", &Checkpoint::optimizer},
                         {"lr_scheduler.", &Checkpoint::lr_scheduler},
                         {"random.", &Checkpoint::random}}};

// Removes a number that save_checkpoint has written from the metadata, and returns it.
inline std::int64_t take_number(Metadata& metadata, const char* key, const std::string& where) {
  const auto found = metadata.find(key);
  check<DataError>(found != metadata.end(), where,
                   ": no checkpoint of lockstep's: its metadata has no ", json_string(key));
  const std::string text = std::move(found->second);
  metadata.erase(found);
  const auto value = lockstep::detail::number_in<std::int64_t>(text);
  check<DataError>(value.has_value(), where, ": the metadata ", json_string(key), " is ",
                   json_string(text), ": expected a number");
  return *value;
}

}  // namespace lockstep::io::detail

namespace lockstep::io {

LOCKSTEP_INLINE void save_checkpoint(const std::filesystem::path& path,
                                     const Checkpoint& checkpoint) {
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

LOCKSTEP_INLINE Checkpoint load_checkpoint(const std::filesystem::path& path, Device device) {
  const SafetensorsFile file(path);
  const std::string where = path.string();
  Checkpoint result;
  result.metadata = file.metadata();
  const std::int64_t version = detail::take_number(result.metadata, detail::kVersionKey, where);
  check<DataError>(version == 1, where, ": a checkpoint of version ", version,
                   ": this lockstep reads version 1");
  result.epoch = detail::take_number(result.metadata, detail::kEpochKey, where);
  result.step = detail::take_number(result.metadata, detail::kStepKey, where);
  for (const NamedTensor& entry : file.get_tensors(device)) {
    const auto part = lockstep::detail::find_if(
        detail::kCheckpointParts,
        [&entry](const auto& known) { return entry.name.starts_with(known.first); });
    check<DataError>(part != detail::kCheckpointParts.end(), where, ": tensor ",
                     detail::json_string(entry.name), " is of no part of a checkpoint");
    const auto& [prefix, dict] = *part;
    (result.*dict).push_back({entry.name.substr(prefix.size()), entry.tensor});
  }
  return result;
}

}  // namespace lockstep::io
