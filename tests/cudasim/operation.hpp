// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cudasim/clock.hpp"
#include "cudasim/cudasim.hpp"
#include "cudasim/fiber.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace cudasim {

struct Operation;
using OperationPtr = std::shared_ptr<Operation>;

// One thing that a stream does. It stays alive, with its name and clock, as long as an event or the
// record of an access refers to it; what it needs to run goes when it has run.
struct Operation {
  std::uint64_t number = 0;
  CUstream_st* stream = nullptr;  // none: the host itself
  std::string name;
  std::string scope;
  Clock issued;                       // of the host, when it issued this
  std::vector<OperationPtr> awaited;  // of other streams
  std::vector<MemoryUse> uses;
  std::function<void()> body;
  std::function<void()> completed;  // bookkeeping, runs even where the body is skipped
  std::shared_ptr<Collective> collective;
  std::size_t rank = 0;
  bool any_device = false;     // may touch memory that its device has no access to
  bool frees = false;          // may touch a block whose free has been issued
  bool host_function = false;  // the body is the program's own, and may take its locks
  bool running = false;
  bool done = false;
  int polls = 0;
  Clock clock;                                       // once done
  std::chrono::steady_clock::time_point ended_at{};  // once done
  // The same order as ThreadSanitizer is told of it: from the host that issues this, to the other
  // ranks of a collective, and to whatever waits for this.
  Edge from_host{};
  Edge to_ranks{};
  Edge ended{};
};

struct Collective {
  std::string name;
  std::vector<OperationPtr> parts;
  std::vector<std::function<void()>> stores;
  std::vector<std::vector<bool>> waits_for;
  std::size_t joined = 0;
  bool complete() const { return joined == parts.size(); }
};

}  // namespace cudasim

// The runtime's opaque handles.

struct CUstream_st {
  int number = -1;  // -1: the one behind a device's synchronous copies
  int device = 0;
  std::size_t actor = 0;
  bool destroyed = false;
  std::deque<cudasim::OperationPtr> queue{};
  cudasim::OperationPtr last{};  // that has run
  cudasim::Fiber fiber{};

  cudasim::OperationPtr tail() const { return queue.empty() ? last : queue.back(); }
};

struct CUevent_st {
  int number = 0;
  int device = 0;
  bool destroyed = false;
  bool timing = false;
  cudasim::OperationPtr recorded{};
};

struct CUmemPoolHandle_st {
  int device = 0;
  bool destroyed = false;
  std::vector<int> access{};  // of each device: cudaMemAccessFlags
  std::uint64_t threshold = 0;
  std::uint64_t used = 0;
  std::uint64_t reserved = 0;
};
