// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>

#include <cstddef>

namespace lockstep::cuda {

// Lets tensors on a CUDA device take at most so many bytes, all together; SIZE_MAX for as many as
// there are. What is in use already stays.
//
// **Torch counterpart.** torch.cuda.set_per_process_memory_fraction.
// **Threads and exceptions.** Any thread; allocations from now on follow it, and one that goes
// beyond is an OutOfMemoryError. A DeviceError for a device that is not there or no GPU.
// **Example.** ls::cuda::set_memory_limit("cuda:0", std::size_t{8} << 30);
void set_memory_limit(Device device, std::size_t bytes);

}  // namespace lockstep::cuda

#if defined(LOCKSTEP_CUDA_DEFINITIONS)
#include <lockstep/cuda/memory/impl/memory_limit.ipp>
#endif
