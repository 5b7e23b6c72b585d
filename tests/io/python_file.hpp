// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iterator>
#include <string>

#include "io/files.hpp"

namespace lockstep::testing {

// What Python's safetensors 0.8.0 wrote of one tensor of each dtype, a scalar, an empty one and a
// name that JSON has to escape, byte for byte.
inline std::string python_file() {
  const std::string header = R"({"__metadata__":{"by":"python é\t"},)"
                             R"("long":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
                             R"("fc.bias":{"dtype":"F64","shape":[2],"data_offsets":[16,32]},)"
                             R"("fc.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[32,56]},)"
                             R"("none":{"dtype":"F32","shape":[0,4],"data_offsets":[56,56]},)"
                             R"("scalar":{"dtype":"F32","shape":[],"data_offsets":[56,60]},)"
                             R"("int":{"dtype":"I32","shape":[1,1],"data_offsets":[60,64]},)"
                             R"("bf":{"dtype":"BF16","shape":[2],"data_offsets":[64,68]},)"
                             R"("half":{"dtype":"F16","shape":[2],"data_offsets":[68,72]},)"
                             R"("bytes":{"dtype":"U8","shape":[3],"data_offsets":[72,75]},)"
                             R"("naïve \"x\"\n":{"dtype":"U8","shape":[1],"data_offsets":[75,76]},)"
                             R"("flags":{"dtype":"BOOL","shape":[3],"data_offsets":[76,79]}})";
  constexpr unsigned char kData[] = {
      0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xc0, 0x07, 0x00, 0x00, 0x00, 0x00, 0x00,
      0x00, 0x00, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0xd5, 0x3f, 0x9c, 0x75, 0x00, 0x88,
      0x3c, 0xe4, 0x37, 0xfe, 0x00, 0x00, 0x80, 0x3f, 0x00, 0x00, 0x00, 0xc0, 0x00, 0x00,
      0x40, 0x40, 0x00, 0x00, 0x00, 0x3f, 0x00, 0x00, 0x80, 0x40, 0x00, 0x00, 0x80, 0xbe,
      0x00, 0x00, 0x20, 0x40, 0xfb, 0xff, 0xff, 0xff, 0xc0, 0x3f, 0x00, 0xc0, 0x00, 0x3e,
      0xff, 0xfb, 0x00, 0xff, 0x07, 0x09, 0x01, 0x00, 0x01};
  constexpr std::size_t kPadding = 6;
  return safetensors(header + std::string(kPadding, ' '), {std::begin(kData), std::end(kData)});
}

}  // namespace lockstep::testing
