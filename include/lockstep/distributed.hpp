// SPDX-License-Identifier: Apache-2.0
#pragma once

// Process groups and their collectives, rendezvous, and the watchdog.
#include <lockstep/distributed/collectives.hpp>
#include <lockstep/distributed/init.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/distributed/store/file_store.hpp>
#include <lockstep/distributed/store/hash_store.hpp>
#include <lockstep/distributed/store/prefix_store.hpp>
#include <lockstep/distributed/store/tcp_store.hpp>
#include <lockstep/distributed/watchdog/watchdog.hpp>
