// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <atomic>
#include <cstdint>

namespace lockstep::profile {

namespace detail {

struct RangeListener;  // profile/device_timer.hpp

// All that a range looks at where nothing is recorded: 0. Otherwise bit 0 says that there is a
// RangeListener, and the bits above are the number of the session that is recorded, if any.
//
// Written with the recorder's mutex held. It publishes nothing: whoever sees a session in it takes
// the mutex before the first use of that session's log.
inline constinit std::atomic<std::uint64_t> recording{0};

inline constinit std::atomic<const RangeListener*> range_listener{nullptr};

}  // namespace detail

// True while ranges are recorded, or a tool listens to their names. What only a range needs to know
// is worked out if this is so.
inline bool enabled() { return detail::recording.load(std::memory_order_relaxed) != 0; }

}  // namespace lockstep::profile
