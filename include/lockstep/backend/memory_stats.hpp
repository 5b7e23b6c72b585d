// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstddef>
#include <cstdint>

namespace lockstep {

// What a device's allocator has done so far. Bytes are those of whole blocks, rounding included.
// Reserved bytes count address space, also where no block has been cut from it yet and none of it
// is resident.
//
// **Torch counterpart.** torch.cuda.memory_stats.
struct MemoryStats {
  std::uint64_t allocations = 0;        // blocks handed out
  std::uint64_t fresh_allocations = 0;  // of these, blocks that were not there to be reused
  std::size_t allocated_bytes = 0;      // in use by tensors
  std::size_t peak_bytes = 0;           // the most that was ever in use at once
  std::size_t reserved_bytes = 0;       // taken from the system, in use or kept for reuse
};

}  // namespace lockstep
