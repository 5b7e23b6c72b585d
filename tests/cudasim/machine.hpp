// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cudasim/clock.hpp"
#include "cudasim/cudasim.hpp"
#include "cudasim/memory.hpp"
#include "cudasim/operation.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace cudasim {

struct Device {
  CUmemPoolHandle_st default_pool{};
  CUstream_st synchronous{};         // behind cudaMemcpy
  std::size_t plain_bytes = 0;       // by cudaMalloc
  cudaError_t broken = cudaSuccess;  // by a faulting kernel
  bool context = false;              // the program has one there
};

struct Failure {
  cudaError_t error;
  int times;
};

// The whole state. Everything below is called with the lock held, which a call of the runtime takes
// once (api.hpp).
//
// All host threads are one actor: what one of them has waited for counts as known to the others,
// since the program orders its threads by means that are not seen here.
class Machine {
 public:
  explicit Machine(const Config& configuration);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  Config config;
  Memory memory;
  std::vector<Device> devices;
  std::vector<std::unique_ptr<CUstream_st>> streams;       // by number, the destroyed ones too
  std::vector<std::unique_ptr<CUmemPoolHandle_st>> pools;  // that the program made, likewise
  std::map<std::string, Failure> failures;
  // What `fail_calls` asked for.
  bool (*fails)() = nullptr;
  cudaError_t failure = cudaSuccess;
  std::vector<Call> calls;
  bool recording = false;

  // Handles, as a program may pass them.
  CUstream_st* create_stream(int device);
  CUevent_st* create_event(int device);
  void destroy_event(CUevent_st* event);
  CUmemPoolHandle_st* create_pool(int device);
  bool known(const CUstream_st* stream) const;
  bool known(const CUevent_st* event) const { return events_.count(event) != 0; }
  bool known(const CUmemPoolHandle_st* pool) const;
  std::vector<const CUevent_st*> live_events() const;

  // An operation at the end of a stream. It runs when the policy lets it, not in here.
  OperationPtr issue(CUstream_st* stream, std::string name, std::vector<MemoryUse> uses,
                     std::function<void()> body);

  // Runs what the policy wants to run at this point, if anything has been issued since the last.
  void pump();
  // Blocks the host until an operation has run (null: for nothing), and orders it after that.
  // False: it cannot run, which is reported as a deadlock.
  bool host_wait(const OperationPtr& target, const std::string& what);
  // The same, and orders nothing.
  bool await_end(const OperationPtr& target, const std::string& what);
  bool synchronize_device(int device, const std::string& what);
  // The answer of a query, which orders the host as well if it is yes.
  bool poll(const OperationPtr& target);
  // Runs all there is; what cannot run is reported and dropped.
  void drain();
  std::size_t pending() const { return pending_; }
  void set_policy(Policy policy, int pick, unsigned seed);
  // Nothing of the device runs any more, which is known to whoever gets `error` from now on.
  void break_device(int device, cudaError_t error);
  // Something has been issued that another thread may wait for.
  void notify() { progress_.notify_all(); }

  // Enters an access by the host itself, by way of the runtime.
  OperationPtr host_access(const MemoryUse& use, std::string what);
  // What to do where the program touched memory that is closed. False: no memory of this machine.
  bool handle_fault(void* address, bool write);

  // Memory of a device that nobody else can have, whoever asked for it.
  std::size_t reserved_bytes(int device) const;
  // What pools keep beyond their thresholds goes back at every synchronisation.
  void give_back_memory(int device);
  // A pool that a program may name; otherwise it is reported.
  bool usable(const CUmemPoolHandle_st* pool, const char* function) const;
  bool may_touch(int device, const Block& block, bool write) const;
  // Reports if somebody has written behind the end of a block, which must be open.
  void check_mark(const Block& block) const;
  void release(Block& block);

 private:
  // schedule.cpp
  bool runnable(const Operation& operation) const;
  void execute(const OperationPtr& operation);
  bool force(const OperationPtr& target);
  OperationPtr blocker(const Operation& head) const;
  void retire(const OperationPtr& operation);
  void take_turn();
  void abandon(CUstream_st& stream);
  std::string reason(const Operation& stuck) const;
  template <class Keep>
  void run_streams(Keep keep);
  std::vector<CUstream_st*> all_streams();

  // order.cpp
  Clock order_before(const Operation& operation) const;
  bool settle(const OperationPtr& operation);
  static void enter_fiber(const Operation& operation);
  static void join_fibers(const Collective& collective);
  void order_host_after(const Operation& operation);
  static bool is_after(const Clock& clock, const Operation& operation);
  bool host_is_after(const Operation& operation) const;
  void hold(const OperationPtr& operation);
  void release_held();

  // checks.cpp
  bool check_use(const OperationPtr& operation, const MemoryUse& use, std::size_t actor,
                 unsigned step);
  void find_conflicts(const Block& block, const OperationPtr& operation, const MemoryUse& use);
  void enter_access(Block& block, const OperationPtr& operation, const MemoryUse& use,
                    std::size_t actor, unsigned step);
  bool exactly(const Operation& operation);
  void run_here(const Operation& operation, const std::function<void()>& body) const;
  void run_body(const Operation& operation, const std::function<void()>& body);

  Clock host_clock_;
  std::mt19937 random_;
  std::condition_variable_any progress_;
  std::unordered_set<const CUevent_st*> events_;
  std::deque<std::unique_ptr<CUevent_st>> destroyed_events_;
  std::vector<Block*> held_blocks_;
  std::unordered_map<std::string, int> runs_;  // of the operations of each name
  std::size_t actors_ = 1;
  std::uint64_t operations_ = 0;  // issued, by the host or to a stream
  std::uint64_t pumped_ = 0;      // of them, when the policy had its last turn
  int event_count_ = 0;
  std::size_t pending_ = 0;
};

// Every entry to the simulator holds this, except while a host function of a stream runs. Not
// recursive: what a stream runs must not call the runtime.
struct SimulatorMutex {
  static void lock();
  static void unlock();
  static bool held_here();
};
inline constexpr SimulatorMutex simulator_mutex{};
using SimulatorLock = std::lock_guard<const SimulatorMutex>;

// The machine, started from the environment if there is none yet.
Machine& machine();
// Null where none has been started.
Machine* machine_if_any();
void install_fault_handler();

std::string describe(const CUstream_st& stream);
std::string describe(const Operation& operation);
std::string describe(const Block& block);
const std::string& current_scope();
// " in LABEL", or nothing.
std::string in_scope();

// The operation whose body the calling thread runs, or null.
extern thread_local const Operation* running_operation;
// The calling thread's current device, and its last error.
struct ThreadState {
  int device = 0;
  cudaError_t error = cudaSuccess;
  // What `fail_call` asked for.
  std::uint64_t calls_left = std::numeric_limits<std::uint64_t>::max();  // that do not fail
  cudaError_t failure = cudaSuccess;
  int breaks = -1;     // the device
  std::string failed;  // the function
};
ThreadState& thread_state();

}  // namespace cudasim
