// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/io/json.hpp>
#include <lockstep/io/safetensors_header.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::io::detail {

// In the order of dtype_rank.
inline constexpr std::array<std::pair<std::string_view, Dtype>, 8> kDtypeNames = {
    {{"I64", Dtype::i64},
     {"F64", Dtype::f64},
     {"F32", Dtype::f32},
     {"I32", Dtype::i32},
     {"BF16", Dtype::bf16},
     {"F16", Dtype::f16},
     {"U8", Dtype::u8},
     {"BOOL", Dtype::boolean}}};

LOCKSTEP_INLINE std::size_t dtype_rank(Dtype dtype) {
  const auto found = std::find_if(kDtypeNames.begin(), kDtypeNames.end(),
                                  [dtype](const auto& name) { return name.second == dtype; });
  return static_cast<std::size_t>(found - kDtypeNames.begin());
}

LOCKSTEP_INLINE std::string format_header(const SafetensorsHeader& header) {
  std::string text = "{";
  const auto separate = [](std::string& list, char open) {
    if (list.back() != open) list += ',';
  };
  if (!header.metadata.empty()) {
    text += json_string(kMetadataKey) + ":{";
    for (const auto& [key, value] : header.metadata) {
      separate(text, '{');
      text += json_string(key) + ':' + json_string(value);
    }
    text += '}';
  }
  for (const TensorEntry& entry : header.tensors) {
    separate(text, '{');
    text += json_string(entry.name) + ":{\"dtype\":\"";
    text += kDtypeNames[dtype_rank(entry.dtype)].first;
    text += "\",\"shape\":[";
    for (const std::int64_t size : entry.shape) {
      separate(text, '[');
      text += std::to_string(size);
    }
    text += "],\"data_offsets\":[" + std::to_string(entry.begin) + ',' + std::to_string(entry.end) +
            "]}";
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

inline void read_dtype(JsonReader& json, TensorEntry& entry) {
  std::string text = json.string();
  for (const auto& [name, dtype] : kDtypeNames) {
    if (name == text) {
      entry.dtype = dtype;
      return;
    }
  }
  if (text.empty()) json.fail("tensor ", json_string(entry.name), ": expected a dtype");
  entry.foreign_dtype = std::move(text);
}

inline Shape read_shape(JsonReader& json, const std::string& tensor) {
  Shape shape;
  json.array([&] {
    const std::uint64_t size = json.whole_number();
    if (size > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
      json.fail("tensor ", json_string(tensor), " has a size of ", size);
    }
    if (shape.size() == Shape::kMaxDims) {
      json.fail("tensor ", json_string(tensor), " has more than ", Shape::kMaxDims, " dimensions");
    }
    shape.push_back(static_cast<std::int64_t>(size));
  });
  return shape;
}

inline TensorEntry read_entry(JsonReader& json, std::string name) {
  TensorEntry entry;
  entry.name = std::move(name);
  int fields = 0;  // no duplicates: `object` refuses them
  json.object([&](const std::string& field) {
    ++fields;
    if (field == "dtype") {
      read_dtype(json, entry);
    } else if (field == "shape") {
      entry.shape = read_shape(json, entry.name);
    } else if (field == "data_offsets") {
      std::vector<std::uint64_t> offsets;
      json.array([&] { offsets.push_back(json.whole_number()); });
      if (offsets.size() != 2 || offsets[0] > offsets[1]) {
        json.fail("tensor ", json_string(entry.name), ": expected data_offsets [begin, end]");
      }
      entry.begin = offsets[0];
      entry.end = offsets[1];
    } else {
      json.fail("tensor ", json_string(entry.name), " has an unknown field ", json_string(field));
    }
  });
  if (fields != 3) {
    json.fail("tensor ", json_string(entry.name), ": expected dtype, shape and data_offsets");
  }
  if (!entry.foreign_dtype.empty()) return entry;  // its element size is unknown
  const std::optional<std::uint64_t> bytes =
      lockstep::detail::byte_size(entry.shape, element_size(entry.dtype));
  if (!bytes || *bytes != entry.end - entry.begin) {
    json.fail("tensor ", json_string(entry.name), " of ", entry.dtype, " and shape ", entry.shape,
              " does not fit the bytes from ", entry.begin, " to ", entry.end);
  }
  return entry;
}

// Checks that the tensors fill `data_size` bytes one after another, and sorts them in that order.
inline void check_layout(std::vector<TensorEntry>& tensors, std::uint64_t data_size,
                         const std::string& where) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t at = 0;
  for (const TensorEntry& entry : tensors) {
    check<DataError>(entry.begin == at, where, ": tensor ", json_string(entry.name),
                     " begins at byte ", entry.begin, " of the data, ",
                     entry.begin < at ? "within" : "leaving a hole behind",
                     " the one before, which ends at ", at);
    at = entry.end;
  }
  check<DataError>(at <= data_size, where, ": truncated: holds ", data_size,
                   " bytes of data, expected ", at);
  check<DataError>(at == data_size, where, ": goes on after the ", at, " bytes of data expected");
}

LOCKSTEP_INLINE SafetensorsHeader parse_header(std::string_view text, std::uint64_t data_size,
                                               const std::string& where) {
  SafetensorsHeader header;
  JsonReader json(text, where);
  if (!text.starts_with('{')) json.fail("expected '{'");
  json.object([&](std::string name) {
    if (name != kMetadataKey) {
      header.tensors.push_back(read_entry(json, std::move(name)));
      return;
    }
    if (json.take_null()) return;
    json.object([&](const std::string& key) { header.metadata[key] = json.string(); });
  });
  json.end();
  check_layout(header.tensors, data_size, where);
  return header;
}

}  // namespace lockstep::io::detail
