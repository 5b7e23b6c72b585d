// SPDX-License-Identifier: Apache-2.0
#include "cudasim/machine.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

// When operations run.
namespace cudasim {
namespace {

// A GPU's queues are not endless either; past this the oldest operation runs.
constexpr std::size_t kMostPending = 8192;
// A loop that polls would never end otherwise.
constexpr int kMostPolls = 64;

bool all_done(const std::vector<OperationPtr>& operations) {
  return std::all_of(operations.begin(), operations.end(),
                     [](const OperationPtr& each) { return each->done; });
}

bool at_head(const Operation& operation) {
  const auto& queue = operation.stream->queue;
  return !queue.empty() && queue.front().get() == &operation;
}

}  // namespace

std::vector<CUstream_st*> Machine::all_streams() {
  std::vector<CUstream_st*> all;
  all.reserve(streams.size() + devices.size());
  for (const auto& stream : streams) all.push_back(stream.get());
  for (Device& device : devices) all.push_back(&device.synchronous);
  return all;
}

bool Machine::runnable(const Operation& operation) const {
  if (operation.running || operation.done || !at_head(operation)) return false;
  if (!operation.collective) return all_done(operation.awaited);
  const Collective& collective = *operation.collective;
  return collective.complete() &&
         std::all_of(collective.parts.begin(), collective.parts.end(), [](const auto& part) {
           return at_head(*part) && !part->running && all_done(part->awaited);
         });
}

void Machine::execute(const OperationPtr& operation) {
  const OperationPtr keep = operation;  // the queue lets go of it
  const auto collective = operation->collective;
  const std::vector<OperationPtr> parts =
      collective ? collective->parts : std::vector<OperationPtr>{operation};
  bool sound = true;
  for (const OperationPtr& part : parts) {
    part->running = true;
    const cudaError_t broken = devices[static_cast<std::size_t>(part->stream->device)].broken;
    if (broken != cudaSuccess) part->uses.clear();
    if (!settle(part) || broken != cudaSuccess) sound = false;
    enter_fiber(*part);
  }
  if (sound) {
    for (const OperationPtr& part : parts) run_body(*part, part->body);
    if (collective) join_fibers(*collective);
    for (std::size_t rank = 0; collective && rank < parts.size(); ++rank) {
      run_body(*parts[rank], collective->stores[rank]);
    }
  }
  for (const OperationPtr& part : parts) {
    if (part->completed) part->completed();
    retire(part);
  }
  if (collective) {
    (void)std::exchange(collective->parts, {});
    (void)std::exchange(collective->stores, {});
  }
  progress_.notify_all();
}

void Machine::retire(const OperationPtr& operation) {
  const OperationPtr keep = operation;
  operation->stream->fiber.release(operation->ended);
  operation->running = false;
  operation->done = true;
  operation->ended_at = std::chrono::steady_clock::now();
  operation->stream->queue.pop_front();
  operation->stream->last = operation;
  operation->awaited.clear();
  operation->uses = {};
  operation->body = nullptr;
  operation->completed = nullptr;
  operation->issued = {};
  operation->collective = nullptr;
  --pending_;
}

// Something that has to run before the head of a stream can; null if nothing that has been issued
// would help.
OperationPtr Machine::blocker(const Operation& head) const {
  const auto undone = [](const std::vector<OperationPtr>& operations) -> OperationPtr {
    const auto found = std::find_if(operations.begin(), operations.end(),
                                    [](const OperationPtr& each) { return !each->done; });
    return found == operations.end() ? nullptr : *found;
  };
  if (OperationPtr awaited = undone(head.awaited)) return awaited;
  if (!head.collective || !head.collective->complete()) return nullptr;
  for (const OperationPtr& part : head.collective->parts) {
    if (!at_head(*part)) return part->stream->queue.front();
    if (OperationPtr awaited = undone(part->awaited)) return awaited;
  }
  return nullptr;
}

// Runs an operation and what it needs, no more. False: that is impossible as things stand.
bool Machine::force(const OperationPtr& target) {
  struct Wanted {
    OperationPtr operation;
    const Operation* blocked;  // the head of its stream, if that waits for the next in the list
  };
  std::vector<Wanted> wanted{{target, nullptr}};
  while (!wanted.empty()) {
    Wanted& last = wanted.back();
    if (last.operation->done) {
      wanted.pop_back();
      continue;
    }
    const OperationPtr head = last.operation->stream->queue.front();
    if (head->running) {  // in another thread
      const Unseen unseen;
      progress_.wait(simulator_mutex);
    } else if (runnable(*head)) {
      execute(head);
    } else {
      const bool cycle =
          std::any_of(wanted.begin(), wanted.end() - 1,
                      [&head](const Wanted& earlier) { return earlier.blocked == head.get(); });
      const OperationPtr next = cycle ? nullptr : blocker(*head);
      if (!next) return false;
      last.blocked = head.get();
      wanted.push_back({next, nullptr});
    }
  }
  return true;
}

template <class Keep>
void Machine::run_streams(Keep keep) {
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t i = 0; i < streams.size(); ++i) {  // a host function may let another one in
      CUstream_st& stream = *streams[i];
      while (keep(stream) && !stream.queue.empty() && runnable(*stream.queue.front())) {
        execute(stream.queue.front());
        progress = true;
      }
    }
  }
}

void Machine::set_policy(Policy policy, int pick, unsigned seed) {
  config.policy = policy;
  config.pick = pick;
  config.seed = seed;
  random_.seed(seed);
}

void Machine::pump() {
  if (pumped_ == operations_) return;
  pumped_ = operations_;
  take_turn();
}

void Machine::take_turn() {
  const int pick = config.pick;
  switch (config.policy) {
    case Policy::eager:
      run_streams([](const CUstream_st&) { return true; });
      break;
    case Policy::lazy:
      break;
    case Policy::starve:
      run_streams([pick](const CUstream_st& stream) { return stream.number != pick; });
      break;
    case Policy::favour:
      run_streams([pick](const CUstream_st& stream) { return stream.number == pick; });
      break;
    case Policy::random:
      for (auto turns = random_() % 3; turns > 0; --turns) {
        std::vector<OperationPtr> heads;
        for (const auto& stream : streams) {
          if (stream->queue.empty() || !runnable(*stream->queue.front())) continue;
          heads.push_back(stream->queue.front());
        }
        if (heads.empty()) break;
        execute(heads[random_() % heads.size()]);
      }
      break;
  }
  while (pending_ > kMostPending) {
    OperationPtr oldest;
    for (const auto& stream : streams) {
      if (stream->queue.empty()) continue;
      const OperationPtr& head = stream->queue.front();
      if (!oldest || head->number < oldest->number) oldest = head;
    }
    if (!oldest || !force(oldest)) break;
  }
}

bool Machine::host_wait(const OperationPtr& target, const std::string& what) {
  if (!target) return true;
  if (!await_end(target, what)) return false;
  order_host_after(*target);
  return true;
}

bool Machine::await_end(const OperationPtr& target, const std::string& what) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(config.patience_ms);
  while (!target->done && !force(target)) {
    const Unseen unseen;
    if (progress_.wait_until(simulator_mutex, deadline) == std::cv_status::timeout &&
        !force(target)) {
      report("DEADLOCK: " + what + " waits for " + describe(*target) + ", which never runs" +
             reason(*target));
      return false;
    }
  }
  return true;
}

bool Machine::synchronize_device(int device, const std::string& what) {
  bool ended = true;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    CUstream_st& stream = *streams[i];
    if (stream.device == device && !host_wait(stream.tail(), what)) ended = false;
  }
  return ended;
}

bool Machine::poll(const OperationPtr& target) {
  take_turn();
  if (!target) return true;
  if (host_is_after(*target)) {
    host_acquire(target->ended);  // perhaps another thread has waited
    return true;
  }
  const int polls = ++target->polls;
  if (polls > kMostPolls && !target->done) force(target);
  if (!target->done || polls <= config.late_polls) return false;
  order_host_after(*target);
  return true;
}

void Machine::break_device(int device, cudaError_t error) {
  devices[static_cast<std::size_t>(device)].broken = error;
  for (const CUstream_st* stream : all_streams()) {
    if (stream->device == device && stream->last) order_host_after(*stream->last);
  }
}

void Machine::drain() {
  for (CUstream_st* stream : all_streams()) {
    const OperationPtr tail = stream->tail();
    if (!tail || tail->done || force(tail)) continue;
    report("DEADLOCK: " + describe(*tail) + " never runs" + reason(*tail));
  }
  for (CUstream_st* stream : all_streams()) abandon(*stream);
}

// Why the head of an operation's stream is stuck.
std::string Machine::reason(const Operation& stuck) const {
  const Operation& head = *stuck.stream->queue.front();
  std::string text = &head == &stuck ? "" : ": before it comes " + describe(head);
  if (!head.collective) return text;
  text += "; the collective " + head.collective->name;
  if (head.collective->complete()) return text + " waits for one that waits for it";
  text += " lacks rank";
  for (std::size_t rank = 0; rank < head.collective->parts.size(); ++rank) {
    if (!head.collective->parts[rank]) text.append(1, ' ').append(std::to_string(rank));
  }
  return text;
}

void Machine::abandon(CUstream_st& stream) {
  while (!stream.queue.empty()) {
    const OperationPtr operation = stream.queue.front();
    // What a part holds may hold the collective.
    if (const auto collective = std::exchange(operation->collective, nullptr)) {
      collective->stores[operation->rank] = nullptr;
    }
    settle(operation);
    if (operation->completed) operation->completed();
    retire(operation);
  }
}

}  // namespace cudasim
