// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/parallel/distributed_options.hpp>

#include <vector>

// Checks that all ranks have made the same model.
namespace lockstep::detail {

// Throws on every rank unless all have the same parameters and buffers (names, order, shapes,
// strides, dtypes) and options. The ranks compare hashes, and send the rest only if these differ.
void verify_same_model(const distributed::ProcessGroup& group, Device device,
                       const std::vector<NamedParameter>& parameters,
                       const std::vector<NamedBuffer>& buffers,
                       const DistributedDataParallelOptions& options);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/ddp/impl/distributed_verify.ipp>
#endif
