// SPDX-License-Identifier: Apache-2.0
#include "cudasim/api.hpp"
#include "cudasim/errors.hpp"
#include "cudasim/fiber.hpp"
#include "cudasim/machine.hpp"

#include <atomic>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

// The machine and its lock, and those functions of cudasim.hpp that steer it.
namespace cudasim {
namespace {

std::mutex the_mutex;
thread_local bool holds_mutex = false;
// Never destroyed: static objects may call the runtime when the program ends.
Machine* the_machine = nullptr;
std::atomic<unsigned> machines_made{0};

void start(const Config& config) {
  delete the_machine;
  the_machine = nullptr;
  the_machine = new Machine(config);
  ++machines_made;
  print_errors(config.print);
  install_fault_handler();
}

}  // namespace

thread_local const Operation* running_operation = nullptr;

void SimulatorMutex::lock() {
  Unseen::begin();
  the_mutex.lock();
  holds_mutex = true;
}

void SimulatorMutex::unlock() {
  holds_mutex = false;
  the_mutex.unlock();
  Unseen::end();
}

bool SimulatorMutex::held_here() { return holds_mutex; }

Machine& machine() {
  if (the_machine == nullptr) start(config_from_environment());
  return *the_machine;
}

Machine* machine_if_any() { return the_machine; }

ThreadState& thread_state() {
  const Unseen unseen;
  static thread_local ThreadState state;
  static thread_local unsigned of_machine = 0;
  // The first machine starts at the first call; a thread that has come before belongs to it.
  const unsigned made = machines_made.load();
  if (made > 1 && of_machine != made) state = ThreadState();
  of_machine = made;
  return state;
}

void reset(const Config& config) {
  const SimulatorLock lock(simulator_mutex);
  start(config);
  collect_errors();
}

Config config() {
  const SimulatorLock lock(simulator_mutex);
  return machine().config;
}

void set_policy(Policy policy, int pick, unsigned seed) {
  const SimulatorLock lock(simulator_mutex);
  machine().drain();
  machine().set_policy(policy, pick, seed);
}

bool enqueue(cudaStream_t stream, std::string name, std::vector<MemoryUse> uses,
             std::function<void()> body) {
  ApiCall call("enqueue");
  return call.on(stream).launching(name).run([&](Machine& machine) {
    return launch(machine, stream, std::move(name), std::move(uses), std::move(body));
  }) == cudaSuccess;
}

std::shared_ptr<Collective> make_collective(int ranks, std::string name) {
  auto collective = std::make_shared<Collective>();
  const auto count = static_cast<std::size_t>(ranks);
  collective->name = std::move(name);
  collective->parts.resize(count);
  collective->stores.resize(count);
  collective->waits_for.resize(count);
  return collective;
}

void join_collective(const std::shared_ptr<Collective>& collective, int rank, CollectivePart part) {
  ApiCall call("join_collective");
  (void)call.internal().on(part.stream).launching(part.name).run([&](Machine& machine) {
    const auto place = static_cast<std::size_t>(rank);
    if (collective->parts.at(place)) {
      report("COLLECTIVE: rank " + std::to_string(rank) + " joins " + collective->name + " twice");
      return cudaErrorInvalidValue;
    }
    const OperationPtr operation = machine.issue(part.stream, std::move(part.name),
                                                 std::move(part.uses), std::move(part.load));
    operation->collective = collective;
    operation->rank = place;
    collective->parts[place] = operation;
    collective->stores[place] = std::move(part.store);
    collective->waits_for[place] = std::move(part.waits_for);
    ++collective->joined;
    machine.notify();
    return cudaSuccess;
  });
}

bool has_run(const std::shared_ptr<Collective>& collective) {
  const SimulatorLock lock(simulator_mutex);
  return collective->parts.empty();  // they are let go of then
}

OperationPtr abort_collective(const std::shared_ptr<Collective>& collective, int rank) {
  const SimulatorLock lock(simulator_mutex);
  if (collective->parts.empty()) return nullptr;
  OperationPtr& joined = collective->parts.at(static_cast<std::size_t>(rank));
  if (!joined || joined->done || joined->running) return nullptr;
  const OperationPtr part = std::exchange(joined, nullptr);
  --collective->joined;
  part->collective.reset();
  part->uses.clear();
  part->body = nullptr;
  collective->stores.at(static_cast<std::size_t>(rank)) = nullptr;  // may hold the collective
  machine().notify();
  return part;
}

void await_end(const OperationPtr& operation, const std::string& what) {
  const SimulatorLock lock(simulator_mutex);
  (void)machine().await_end(operation, what);
}

void drain() {
  const SimulatorLock lock(simulator_mutex);
  machine().drain();
}

std::vector<std::string> take_errors() {
  drain();
  return collect_errors();
}

std::vector<std::string> leaks() {
  const SimulatorLock lock(simulator_mutex);
  Machine& on = machine();
  for (int i = 0; i < on.config.devices; ++i) on.synchronize_device(i, "cudasim::leaks");
  on.drain();
  std::vector<std::string> found;
  for (const auto& [begin, block] : on.memory.blocks()) {
    if (block.live) found.push_back(describe(block));
  }
  for (const CUevent_st* event : on.live_events()) {
    found.push_back("event " + std::to_string(event->number) + " of device " +
                    std::to_string(event->device));
  }
  return found;
}

void record_calls(bool on) {
  const SimulatorLock lock(simulator_mutex);
  machine().recording = on;
  machine().calls.clear();
}

std::vector<Call> take_calls() {
  const SimulatorLock lock(simulator_mutex);
  return std::exchange(machine().calls, {});
}

void fail_next(const char* function, cudaError_t error, int times) {
  const SimulatorLock lock(simulator_mutex);
  machine().failures[function] = {error, times};
}

void fail_call(std::uint64_t n, cudaError_t error, int device) {
  ThreadState& state = thread_state();
  state.calls_left = n;
  state.failure = error;
  state.breaks = device;
  state.failed.clear();
}

void fail_calls(bool (*fails)(), cudaError_t error) {
  const SimulatorLock lock(simulator_mutex);
  machine().fails = fails;
  machine().failure = error;
}

std::string end_failing_calls() {
  ThreadState& state = thread_state();
  state.calls_left = std::numeric_limits<std::uint64_t>::max();
  return std::exchange(state.failed, {});
}

void break_stream(cudaStream_t stream, cudaError_t error) {
  (void)ApiCall("break_stream").internal().on(stream).run([&](Machine& machine) {
    const OperationPtr fault = machine.issue(stream, "faulting kernel", {}, {});
    fault->completed = [&machine, error, device = stream->device] {
      machine.break_device(device, error);
    };
    return cudaSuccess;
  });
}

void mend() {
  const SimulatorLock lock(simulator_mutex);
  machine().drain();
  for (Device& device : machine().devices) device.broken = cudaSuccess;
  machine().failures.clear();
}

int current_device() { return thread_state().device; }

std::vector<int> contexts() {
  const SimulatorLock lock(simulator_mutex);
  std::vector<int> found;
  const auto& devices = machine().devices;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].context) found.push_back(static_cast<int>(i));
  }
  return found;
}

int stream_number(cudaStream_t stream) {
  const SimulatorLock lock(simulator_mutex);
  return machine().known(stream) ? stream->number : -1;
}

int stream_count() {
  const SimulatorLock lock(simulator_mutex);
  return static_cast<int>(machine().streams.size());
}

std::size_t pending() {
  const SimulatorLock lock(simulator_mutex);
  return machine().pending();
}

}  // namespace cudasim
