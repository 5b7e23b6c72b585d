// SPDX-License-Identifier: Apache-2.0
#include "cudasim/machine.hpp"

#include <algorithm>
#include <string>
#include <utility>

// Whether what operations touch is there, theirs, and in order.
namespace cudasim {
namespace {

constexpr std::size_t kManyAccesses = 16;  // of one block, before it is worth tidying up

std::string kind(const MemoryUse& use) { return use.write ? "write" : "read"; }

}  // namespace

// False: the operation's body must not run, it would touch what is not there.
bool Machine::check_use(const OperationPtr& operation, const MemoryUse& use, std::size_t actor,
                        unsigned step) {
  Block* block = memory.find(use.data);
  if (block == nullptr) {
    if (memory.reserved(use.data)) {
      report("OUT OF BOUNDS: " + describe(*operation) + " touches memory that is not allocated");
      return false;
    }
    report("PAGEABLE MEMORY: " + describe(*operation) +
           " touches memory of the host that is not page-locked");
    return true;
  }
  if (!block->live) {
    report("USE AFTER FREE: " + describe(*operation) + " touches " + describe(*block));
    return false;
  }
  const auto first = reinterpret_cast<std::uintptr_t>(use.data);
  if (first + extent(use) > block->end()) {
    report("OUT OF BOUNDS: " + describe(*operation) + " runs " +
           std::to_string(first + extent(use) - block->end()) + " bytes past " + describe(*block));
    return false;
  }
  if (operation->stream != nullptr && !operation->any_device &&
      !may_touch(operation->stream->device, *block, use.write)) {
    report("WRONG DEVICE: " + describe(*operation) + " touches " + describe(*block) +
           " without peer access");
    return false;
  }
  find_conflicts(*block, operation, use);
  enter_access(*block, operation, use, actor, step);
  return true;
}

void Machine::find_conflicts(const Block& block, const OperationPtr& operation,
                             const MemoryUse& use) {
  for (const Access& access : block.accesses) {
    if (!access.use.write && !use.write) continue;
    if (access.by == operation) continue;  // reads and writes the same bytes
    if (operation->clock.covers(access.actor, access.step)) continue;
    if (!overlap(access.use, use)) continue;
    report("RACE (" + kind(access.use) + "/" + kind(use) + "): " + describe(*access.by) + " and " +
           describe(*operation) + " touch the same bytes of " + describe(block) +
           " and are not ordered");
    return;  // one is enough to see it
  }
}

// Keeps the record of an access, and drops those that it stands for: whatever conflicts with one of
// them and is not ordered after it conflicts with this one, too.
void Machine::enter_access(Block& block, const OperationPtr& operation, const MemoryUse& use,
                           std::size_t actor, unsigned step) {
  std::erase_if(block.accesses, [&](const Access& access) {
    return (use.write || !access.use.write) && access.by != operation &&
           operation->clock.covers(access.actor, access.step) && covers(use, access.use);
  });
  if (block.accesses.size() >= kManyAccesses &&
      (block.accesses.size() & (block.accesses.size() - 1)) == 0) {
    // What the host knew when it issued the oldest operation that has not run yet is ordered before
    // everything that is still to come.
    const Clock* floor = &host_clock_;
    std::uint64_t oldest = operations_ + 1;
    for (CUstream_st* stream : all_streams()) {
      if (stream->queue.empty() || stream->queue.front()->number >= oldest) continue;
      oldest = stream->queue.front()->number;
      floor = &stream->queue.front()->issued;
    }
    std::erase_if(block.accesses,
                  [floor](const Access& each) { return floor->covers(each.actor, each.step); });
  }
  block.accesses.push_back({use, actor, step, operation});
}

// Whether an operation's body is held to exactly what it says. That takes some system calls, so
// that only the first operations of each name are, if there is another way.
bool Machine::exactly(const Operation& operation) {
  if (!memory.has_key()) return memory.traps();
  int& runs = runs_[operation.name];
  if (runs >= config.exact_runs) return false;
  ++runs;
  return true;
}

// Runs a body, in this thread and as its stream.
void Machine::run_here(const Operation& operation, const std::function<void()>& body) const {
  const Unseen unseen;
  running_operation = &operation;
  if (config.fibers) {
    operation.stream->fiber.run(body);
  } else {
    const Seen seen;
    body();
  }
  running_operation = nullptr;
}

// Opens the memory that an operation says it touches for the time that its body runs.
void Machine::run_body(const Operation& operation, const std::function<void()>& body) {
  if (!body) return;
  if (operation.host_function) {
    simulator_mutex.unlock();
    run_here(operation, body);
    simulator_mutex.lock();
    return;
  }
  std::vector<std::pair<Block*, Memory::Rights>> open;
  for (const MemoryUse& use : operation.uses) {
    Block* block = memory.find(use.data);
    if (block == nullptr) continue;
    const auto rights = use.write ? Memory::Rights::write : Memory::Rights::read;
    const auto known = std::find_if(open.begin(), open.end(),
                                    [block](const auto& each) { return each.first == block; });
    if (known == open.end()) {
      open.emplace_back(block, rights);
    } else {
      known->second = std::max(known->second, rights);
    }
  }
  const bool exact = exactly(operation);
  std::erase_if(open, [&](const auto& each) {
    const auto& [block, rights] = each;
    return block->device == kHost ? rights <= memory.resting_rights(*block)
                                  : !exact && block->rested;
  });
  for (const auto& [block, rights] : open) memory.protect(*block, rights);
  if (!exact) memory.turn_key(true);
  run_here(operation, body);
  if (!exact) memory.turn_key(false);
  for (const auto& [block, rights] : open) {
    memory.rest(*block);
    block->rested = true;
  }
}

}  // namespace cudasim
