// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>

namespace lockstep::distributed {

// Thrown if a port cannot be listened on, a host cannot be reached or a connection is lost; names
// host and port.
//
// **Torch counterpart.** torch.distributed.DistNetworkError.
class NetworkError : public Error {
 public:
  using Error::Error;
};

}  // namespace lockstep::distributed
