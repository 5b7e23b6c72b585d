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

// The next `count` numbers that dropout draws in this thread's replica on a device.
RandomRange dropout_numbers(Device device, std::int64_t count);

// Dropout with p in (0, 1] by given numbers: one for each element of x, in row-major order.
Tensor dropout_by(const Tensor& x, double p, const RandomRange& random);

}  // namespace detail

// In training each element becomes 0 with probability p, and is divided by 1 − p otherwise; outside
// of it x is returned as it is.
//
// Each replica on each device has its own sequence of random numbers: the same seed, devices and
// calls give the same bits (unless replicas of two DataParallels, one within the other, share a
// device).
//
// **Torch counterpart.** torch.nn.functional.dropout, which draws other numbers.
// **Backward.** The gradient of each element that forward let pass, times the same factor;
// derivatives of any order.
// **Threads and exceptions.** A ValueError for a probability outside [0, 1], a DtypeError for
// integers.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/dropout.ipp>
#endif
