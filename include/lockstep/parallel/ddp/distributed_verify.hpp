// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/parallel/distributed_options.hpp>

#include <vector>

// Whether all ranks have made the same model.
namespace lockstep::detail {

// Throws, on every rank alike, unless all have the same parameters and buffers (names, order,
// shapes, strides, dtypes) and options. What the ranks send each other is a hash; only where these
// differ, everything.
void verify_same_model(const distributed::ProcessGroup& group, Device device,
                       const std::vector<NamedParameter>& parameters,
                       const std::vector<NamedBuffer>& buffers,
                       const DistributedDataParallelOptions& options);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/ddp/impl/distributed_verify.ipp>
#endif
