// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/tensor/device_random.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep {

namespace detail {

void check_probability(const char* operation, double p);

// Takes the next `count` random numbers of this thread's replica on a device.
RandomRange dropout_numbers(Device device, std::int64_t count);

// Dropout with p in (0, 1] by the given numbers, one for each element of x in row-major order.
Tensor dropout_by(const Tensor& x, double p, const RandomRange& random);

}  // namespace detail

// In training sets each element to 0 with probability p and divides the others by 1 − p; otherwise
// returns x itself.
//
// Each replica on each device has its own sequence of random numbers: the same seed, devices and
// calls give the same bits. (Nested DataParallels whose replicas share a device are an exception.)
//
// **Torch counterpart.** torch.nn.functional.dropout, which draws other numbers.
// **Backward.** The gradient of each element that was kept, times the same factor; derivatives of
// any order.
// **Threads and exceptions.** A ValueError for a probability outside [0, 1], a DtypeError for
// integers.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/dropout.ipp>
#endif
