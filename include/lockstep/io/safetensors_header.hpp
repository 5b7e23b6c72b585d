// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::io {

// Text that a file carries beside its tensors.
using Metadata = std::map<std::string, std::string>;

namespace detail {

// One tensor of a file: bytes `begin` to `end` behind the header.
struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::f32;
  Shape shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in the order of their bytes
  Metadata metadata;
};

}  // namespace detail

}  // namespace lockstep::io

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/io/safetensors_header.ipp>
#endif
