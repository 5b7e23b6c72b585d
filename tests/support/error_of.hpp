// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/rank_failure.hpp>

#include <new>
#include <string>

namespace lockstep::testing {

// What ended an operation of which a rank's allocation fails: "std::bad_alloc" on that rank, the
// text of the RankGone on the others, nothing where it ended well.
template <class Operation>
std::string error_of(const Operation& operation) {
  try {
    operation();
  } catch (const std::bad_alloc&) {
    return "std::bad_alloc";
  } catch (const distributed::RankGone& gone) {
    return gone.what();
  }
  return {};
}

}  // namespace lockstep::testing
