// SPDX-License-Identifier: Apache-2.0
#pragma once

// The primitives, DataParallel, DistributedDataParallel, and the rest of parallel/; and the
// arithmetic that losses and outputs need.
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/parallel/comm.hpp>
#include <lockstep/parallel/criterion.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/parallel/ddp/bucket_assignment.hpp>
#include <lockstep/parallel/distributed.hpp>
#include <lockstep/parallel/distributed_hooks.hpp>
#include <lockstep/parallel/functions.hpp>
#include <lockstep/parallel/join.hpp>
#include <lockstep/parallel/parallel_apply.hpp>
#include <lockstep/parallel/per_replica.hpp>
#include <lockstep/parallel/powersgd_hook.hpp>
#include <lockstep/parallel/replica_error.hpp>
#include <lockstep/parallel/replica_group.hpp>
#include <lockstep/parallel/replicas/shared_by_replicas.hpp>
#include <lockstep/parallel/replicate.hpp>
#include <lockstep/parallel/replication_callback.hpp>
#include <lockstep/parallel/scatter_gather.hpp>
#include <lockstep/parallel/scattered.hpp>
#include <lockstep/parallel/split.hpp>
#include <lockstep/parallel/tensor_traits.hpp>
