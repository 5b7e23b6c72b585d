// SPDX-License-Identifier: Apache-2.0
#pragma once

// Collectives between the devices of one process, without autograd: torch's torch.nn.parallel.comm.
#include <lockstep/parallel/comm/broadcast.hpp>
#include <lockstep/parallel/comm/gather.hpp>
#include <lockstep/parallel/comm/reduce_add.hpp>
#include <lockstep/parallel/comm/scatter.hpp>
