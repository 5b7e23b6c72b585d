// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstddef>
#include <string>

namespace lockstep {

// A device's properties. Host devices are equal slices of one machine: each has the same share of
// its cores, and may use all of its memory.
//
// **Torch counterpart.** torch.cuda.get_device_properties.
struct DeviceProperties {
  std::string name;
  std::size_t total_memory = 0;  // bytes
  int multi_processor_count = 0;
};

}  // namespace lockstep
