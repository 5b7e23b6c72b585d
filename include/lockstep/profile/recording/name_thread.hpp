// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <string>

namespace lockstep::profile {

namespace detail {

// The name that name_thread has given the calling thread. Null if it has not, and for those of the
// thread's own objects that are destroyed after it.
const std::string*& thread_name();

}  // namespace detail

// Names the calling thread: its row in timelines in which it has no range yet, and the thread
// itself, for which the system takes the first 15 characters. Threads of one name share a row.
void name_thread(const std::string& name);

}  // namespace lockstep::profile

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/profile/recording/impl/name_thread.ipp>
#endif
