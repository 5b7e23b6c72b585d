// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::io {

// Texts, by key, that a file has beside its tensors.
using Metadata = std::map<std::string, std::string>;

namespace detail {

// One tensor of a file: bytes `begin` to `end` after the header.
struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::f32;
  Shape shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::string foreign_dtype = {};  // replaces `dtype` if lockstep does not have it
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in the order of their bytes
  Metadata metadata;
};

// The longest header that the format allows, in bytes.
inline constexpr std::uint64_t kMaxHeader = 100'000'000;

// The key of the metadata in a header.
inline constexpr std::string_view kMetadataKey = "__metadata__";

// The rank of a dtype in the order in which files store their tensors: wider elements come first.
std::size_t dtype_rank(Dtype dtype);

// The header as JSON, padded so that the data behind it is aligned.
std::string format_header(const SafetensorsHeader& header);

// Parses the header of a file with `data_size` bytes after it. It checks every offset, and every
// size except those of foreign dtypes.
SafetensorsHeader parse_header(std::string_view text, std::uint64_t data_size,
                               const std::string& where);

}  // namespace detail

}  // namespace lockstep::io

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/io/impl/safetensors_header.ipp>
#endif
