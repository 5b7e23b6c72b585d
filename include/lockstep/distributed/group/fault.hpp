// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstdint>
#include <string>

namespace lockstep::distributed {

// What a watchdog has found.
struct Fault {
  enum class Kind : std::uint8_t {
    died,        // its process has ended without saying goodbye
    silent,      // no heartbeat has come for too long
    absent,      // it has never connected
    threw,       // it has reported a failure of its own
    late,        // others wait in a collective that it has not reached
    left,        // others wait in a collective, but it has ended or finished normally
    mismatched,  // its collective differs from that of the others with the same number
    stuck,       // all ranks are in a collective that does not end
  };

  Kind kind = Kind::died;
  int rank = -1;     // -1: no rank in particular
  std::string text;  // "rank 2 has died: ..."; names the rank and the collective that waits for it
};

}  // namespace lockstep::distributed
