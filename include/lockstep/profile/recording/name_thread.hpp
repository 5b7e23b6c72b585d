// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <string>

namespace lockstep::profile {

namespace detail {

// The calling thread's name by name_thread. Null if there is none, and while the thread's
// later-destroyed objects are destroyed.
const std::string*& thread_name();

}  // namespace detail

// Names the calling thread, and its row in timelines where it has no range yet. The system takes
// only the first 15 characters. Threads of one name share a row.
void name_thread(const std::string& name);

}  // namespace lockstep::profile

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/profile/recording/impl/name_thread.ipp>
#endif
