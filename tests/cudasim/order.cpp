// SPDX-License-Identifier: Apache-2.0
#include "cudasim/machine.hpp"

#include <algorithm>

// What is ordered before what: in a stream as issued, after the host that issues, after events that
// the stream waits for, and the host after what it has waited for.
namespace cudasim {

Clock Machine::order_before(const Operation& operation) const {
  Clock clock = operation.issued;
  if (operation.stream->last) clock.join(operation.stream->last->clock);
  for (const OperationPtr& awaited : operation.awaited) clock.join(awaited->clock);
  return clock;
}

// Gives an operation its clock, and looks whether what it touches is in order. False: its body
// would touch memory that it must not.
bool Machine::settle(const OperationPtr& operation) {
  Clock clock = order_before(*operation);
  if (operation->collective) {
    const std::vector<bool>& waits_for = operation->collective->waits_for[operation->rank];
    for (std::size_t rank = 0; rank < waits_for.size(); ++rank) {
      const Operation& part = *operation->collective->parts[rank];
      if (waits_for[rank] && rank != operation->rank) clock.join(order_before(part));
    }
  }
  const std::size_t actor = operation->stream->actor;
  const unsigned step = clock.advance(actor);
  operation->clock = std::move(clock);
  bool sound = true;
  for (const MemoryUse& use : operation->uses) {
    if (!check_use(operation, use, actor, step)) sound = false;
  }
  return sound;
}

// What ThreadSanitizer has to know before an operation's body runs, and between the two halves of a
// collective.
void Machine::enter_fiber(const Operation& operation) {
  Fiber& fiber = operation.stream->fiber;
  fiber.acquire(operation.from_host);
  for (const OperationPtr& awaited : operation.awaited) fiber.acquire(awaited->ended);
}

void Machine::join_fibers(const Collective& collective) {
  for (const OperationPtr& part : collective.parts) part->stream->fiber.release(part->to_ranks);
  for (std::size_t rank = 0; rank < collective.parts.size(); ++rank) {
    Fiber& fiber = collective.parts[rank]->stream->fiber;
    const std::vector<bool>& waits_for = collective.waits_for[rank];
    for (std::size_t other = 0; other < waits_for.size(); ++other) {
      if (waits_for[other]) fiber.acquire(collective.parts[other]->to_ranks);
    }
  }
}

bool Machine::is_after(const Clock& clock, const Operation& operation) {
  if (!operation.done) return false;
  const std::size_t actor = operation.stream ? operation.stream->actor : kHostActor;
  return clock.covers(actor, operation.clock.step_of(actor));
}

bool Machine::host_is_after(const Operation& operation) const {
  return is_after(host_clock_, operation);
}

void Machine::order_host_after(const Operation& operation) {
  host_clock_.join(operation.clock);
  host_acquire(operation.ended);
  if (!held_blocks_.empty()) release_held();
}

void Machine::hold(const OperationPtr& operation) {
  for (const MemoryUse& use : operation->uses) {
    Block* block = memory.find(use.data);
    if (use.shared || block == nullptr || block->device != kHost || !block->live) continue;
    const Memory::Rights before = memory.resting_rights(*block);
    if (block->held.empty()) held_blocks_.push_back(block);
    block->held.emplace_back(use, operation);
    if (use.write) ++block->held_writes;
    const Memory::Rights after = memory.resting_rights(*block);
    if (after != before) memory.protect(*block, after);
  }
}

void Machine::release_held() {
  for (Block* block : held_blocks_) {
    const Memory::Rights before = memory.resting_rights(*block);
    std::erase_if(block->held, [&](const auto& held) {
      if (!host_is_after(*held.second)) return false;
      if (held.first.write) --block->held_writes;
      return true;
    });
    const Memory::Rights after = memory.resting_rights(*block);
    if (after != before) memory.protect(*block, after);
  }
  std::erase_if(held_blocks_, [](const Block* block) { return block->held.empty(); });
}

}  // namespace cudasim
