// SPDX-License-Identifier: Apache-2.0
#include "cudasim/machine.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace cudasim {
namespace {

constexpr std::size_t kDestroyedEvents = 4096;  // whose handles are not given out again yet

// A small part of it is in use at a time: the more there is, the later an address comes back.
std::size_t address_space(const Config& config) {
  return 16 * ((config.memory_bytes + kPage - 1) / kPage * kPage);
}

constexpr std::size_t kHostAddressSpace = std::size_t{16} << 30;

}  // namespace

Machine::Machine(const Config& configuration) : config(configuration), random_(config.seed) {
  const auto count = static_cast<std::size_t>(config.devices);
  memory.reserve(kHostAddressSpace, config.devices, address_space(config), config.traps);
  devices.resize(count);
  for (int i = 0; i < config.devices; ++i) {
    Device& device = devices[static_cast<std::size_t>(i)];
    device.synchronous.device = i;
    device.synchronous.actor = actors_++;
    device.synchronous.fiber.name(describe(device.synchronous));
    device.default_pool.device = i;
    device.default_pool.access.resize(count);
  }
  host_clock_.advance(kHostActor);
}

CUstream_st* Machine::create_stream(int device) {
  auto stream = std::make_unique<CUstream_st>();
  stream->number = static_cast<int>(streams.size());
  stream->device = device;
  stream->actor = actors_++;
  stream->fiber.name(describe(*stream));
  streams.push_back(std::move(stream));
  return streams.back().get();
}

CUevent_st* Machine::create_event(int device) {
  auto event = std::make_unique<CUevent_st>();
  event->number = event_count_++;
  event->device = device;
  events_.insert(event.get());
  return event.release();
}

void Machine::destroy_event(CUevent_st* event) {
  event->destroyed = true;
  event->recorded = nullptr;
  destroyed_events_.emplace_back(event);
  if (destroyed_events_.size() > kDestroyedEvents) {
    events_.erase(destroyed_events_.front().get());
    destroyed_events_.pop_front();
  }
}

CUmemPoolHandle_st* Machine::create_pool(int device) {
  auto pool = std::make_unique<CUmemPoolHandle_st>();
  pool->device = device;
  pool->access.resize(devices.size());
  pools.push_back(std::move(pool));
  return pools.back().get();
}

bool Machine::known(const CUstream_st* stream) const {
  return std::any_of(streams.begin(), streams.end(),
                     [stream](const auto& each) { return each.get() == stream; });
}

bool Machine::known(const CUmemPoolHandle_st* pool) const {
  return std::any_of(pools.begin(), pools.end(),
                     [pool](const auto& each) { return each.get() == pool; }) ||
         std::any_of(devices.begin(), devices.end(),
                     [pool](const Device& each) { return &each.default_pool == pool; });
}

std::vector<const CUevent_st*> Machine::live_events() const {
  std::vector<const CUevent_st*> live;
  std::copy_if(events_.begin(), events_.end(), std::back_inserter(live),
               [](const CUevent_st* event) { return !event->destroyed; });
  return live;
}

OperationPtr Machine::issue(CUstream_st* stream, std::string name, std::vector<MemoryUse> uses,
                            std::function<void()> body) {
  auto operation = std::make_shared<Operation>();
  operation->number = ++operations_;
  operation->stream = stream;
  operation->name = std::move(name);
  operation->scope = current_scope();
  operation->issued = host_clock_;
  std::erase_if(uses, [](const MemoryUse& use) { return use.bytes == 0 || use.rows == 0; });
  operation->uses = std::move(uses);
  operation->body = std::move(body);
  host_clock_.advance(kHostActor);
  stream->queue.push_back(operation);
  ++pending_;
  hold(operation);
  host_release(operation->from_host);
  return operation;
}

OperationPtr Machine::host_access(const MemoryUse& use, std::string what) {
  auto operation = std::make_shared<Operation>();
  operation->number = ++operations_;
  operation->name = std::move(what);
  operation->scope = current_scope();
  operation->frees = true;
  operation->done = true;
  operation->clock = host_clock_;
  const unsigned step = operation->clock.advance(kHostActor);
  host_clock_.advance(kHostActor);
  check_use(operation, use, kHostActor, step);
  return operation;
}

void Machine::give_back_memory(int device) {
  const auto give_back = [](CUmemPoolHandle_st& pool) {
    pool.reserved = std::max(pool.used, std::min(pool.reserved, pool.threshold));
  };
  give_back(devices[static_cast<std::size_t>(device)].default_pool);
  for (const auto& pool : pools) {
    if (pool->device == device) give_back(*pool);
  }
}

bool Machine::usable(const CUmemPoolHandle_st* pool, const char* function) const {
  if (known(pool) && !pool->destroyed) return true;
  report(std::string(known(pool) ? "DEAD POOL: " : "NOT A POOL: ") + function + in_scope());
  return false;
}

void Machine::check_mark(const Block& block) const {
  if (Memory::mark_intact(block)) return;
  report("OUT OF BOUNDS: something has written behind the end of " + describe(block));
}

void Machine::release(Block& block) {
  std::erase(held_blocks_, &block);
  memory.release(block);
}

std::size_t Machine::reserved_bytes(int device) const {
  const Device& on = devices[static_cast<std::size_t>(device)];
  std::size_t bytes = on.plain_bytes + on.default_pool.reserved;
  for (const auto& pool : pools) {
    if (pool->device == device) bytes += pool->reserved;
  }
  return bytes;
}

bool Machine::may_touch(int device, const Block& block, bool write) const {
  if (block.device == kHost || block.device == device) return true;
  if (block.pool == nullptr) return false;
  const int access = block.pool->access[static_cast<std::size_t>(device)];
  return access == cudaMemAccessFlagsProtReadWrite ||
         (!write && access == cudaMemAccessFlagsProtRead);
}

}  // namespace cudasim
