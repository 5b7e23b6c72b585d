// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <memory>

namespace lockstep::distributed::detail {

// Keeps what `owner` owns until the process has ended: memory that an operation which has failed
// may still read or write. Any thread.
void keep_for_ever(std::shared_ptr<const void> owner);

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/kept_memory.ipp>
#endif
