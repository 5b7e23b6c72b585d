// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

// A simulated CUDA runtime with several devices, for tests on machines without a GPU. It defines
// the functions of the real cuda_runtime_api.h and is linked in place of libcudart; this header is
// how a test steers it and asks what it found.
//
// Calls only enqueue. A policy decides when an operation runs, as late or as early as CUDA allows;
// each operation carries a vector clock of what is ordered before it, so that two operations that
// touch the same bytes without an order between them are reported whatever the schedule was. See
// README.md beside this file.
namespace cudasim {

// When operations run. Stream numbers count streams in order of creation.
enum class Policy {
  eager,   // each as early as possible
  lazy,    // only what a host synchronisation forces, and no more than that
  starve,  // eager, except that stream `pick` runs only what is forced
  favour,  // lazy, except that stream `pick` runs as early as possible
  random,  // after each call a random number of operations that may run, from random streams
};

struct Config {
  int devices = 2;
  Policy policy = Policy::eager;
  unsigned seed = 1;
  int pick = -1;
  std::size_t memory_bytes = std::size_t{1} << 30;  // of each device
  bool driver = true;       // false: every call gives cudaErrorInsufficientDriver
  bool peer_access = true;  // false: no device can map another's memory
  bool peer_data = true;    // false: what a copy between devices writes is garbage
  bool print = false;       // errors to stderr, too
  // So often a query says "not ready" of an operation that the host is not ordered after yet, even
  // if it has run: a GPU owes nobody an early answer. Not more than 64.
  int late_polls = 0;
  // How long a host thread waits for another one to issue what it needs, before it is a deadlock.
  int patience_ms = 1000;
  // So many operations of each name are held to exactly what they say they touch. After that only
  // other threads and the program itself are kept off device memory while they run, which is much
  // faster; where the processor has no protection keys, all are.
  int exact_runs = 32;
  // False: device memory that lives is open to the program, and to every operation. That what they
  // touch is theirs does not depend on the policy, and to watch it takes a third of a test's time.
  bool traps = true;
  // Where the program is compiled with ThreadSanitizer, each stream is a fiber to it, and only what
  // CUDA orders is ordered. False: whatever runs is in order to it, for programs whose lack of
  // order is for the simulator to find.
  bool fibers = true;
};

// CUDASIM_DEVICES, CUDASIM_POLICY (eager, lazy, starve:N, favour:N, random), CUDASIM_SEED,
// CUDASIM_LATE_POLLS, CUDASIM_EXACT_RUNS, CUDASIM_TRAPS, CUDASIM_PRINT. Throws
// std::invalid_argument for a value that it cannot read.
Config config_from_environment();

// A fresh machine. The first call of the runtime starts one by itself, from the environment; a test
// may start another where nothing of the old one is in use.
void reset(const Config& config);
Config config();
// Another schedule for the same machine: what is pending runs first.
void set_policy(Policy policy, int pick = -1, unsigned seed = 1);

// Bytes that an operation touches: `rows` pieces of `bytes`, each `pitch` after the one before.
struct MemoryUse {
  const void* data;
  std::size_t bytes;
  bool write;  // or read and written
  std::size_t rows = 1;
  std::size_t pitch = 0;
  bool shared = false;  // with the host, which may look at any time: the two agree by atomics
};

// Issues an operation as a kernel launch does: `body` runs later, and touches what `uses` says.
// False: it was refused, which is the thread's last error.
bool enqueue(cudaStream_t stream, std::string name, std::vector<MemoryUse> uses,
             std::function<void()> body);

// What runs in place of a kernel compiled by nvcc. It copies the arguments at once, adds what they
// let it touch to `uses`, and returns the body.
using TwinFunction = std::function<void()> (*)(void** arguments, std::vector<MemoryUse>& uses);
void register_twin(const void* kernel, const char* name, TwinFunction twin);

// Operations of several streams that run as one step once every rank has joined: all loads, then
// all stores. Rank r is ordered after the ranks in its `waits_for` only.
struct Collective;
struct Operation;
struct CollectivePart {
  cudaStream_t stream;
  std::string name;
  std::vector<MemoryUse> uses;
  std::function<void()> load;
  std::function<void()> store;
  std::vector<bool> waits_for;
};
std::shared_ptr<Collective> make_collective(int ranks, std::string name);
void join_collective(const std::shared_ptr<Collective>& collective, int rank, CollectivePart part);
// Whether it has run.
bool has_run(const std::shared_ptr<Collective>& collective);
// The part of a rank, if it has not run, ends without doing anything and waits for no other rank,
// who wait for ever. Returns it, or null.
std::shared_ptr<Operation> abort_collective(const std::shared_ptr<Collective>& collective,
                                            int rank);
// Blocks until an operation has ended, and orders nobody after it; reports it if that never ends.
void await_end(const std::shared_ptr<Operation>& operation, const std::string& what);

void report(const std::string& error);
// Runs what is pending, without ordering the host after it.
void drain();
// The errors since the last call, after a `drain`.
std::vector<std::string> take_errors();
// Synchronises every device, then names each allocation and event that is still alive.
std::vector<std::string> leaks();

// What the calling thread's operations are part of, for messages.
void scope(std::string label);

// One call of the runtime, as recorded. What does not apply is -1, nullptr or empty.
struct Call {
  std::string
      function;        // "cudaMemcpyAsync"; a kernel is "cudaLaunchKernel", `enqueue` is "enqueue"
  std::string name;    // of the kernel
  int device;          // the current one
  int stream;          // its number, see Policy
  int event;           // events are numbered in order of creation
  const void* target;  // memory that is written, allocated or freed
  const void* source;
  std::size_t bytes;
};
void record_calls(bool on);
std::vector<Call> take_calls();

// The next calls of a function fail with `error` and do nothing else.
void fail_next(const char* function, cudaError_t error, int times = 1);
// The calling thread's call number n from here on, counted from 0, of whatever function, fails with
// `error` and does nothing else. With a device, that one breaks then, as by a faulting kernel.
void fail_call(std::uint64_t n, cudaError_t error, int device = -1);
// From here on each thread's calls ask, and that to which it says yes fails with `error` and does
// nothing else. Null: none does.
void fail_calls(bool (*fails)(), cudaError_t error);
// None of the calling thread's fails any more. The function that has, or nothing.
std::string end_failing_calls();
// A faulting kernel: once it has run, every call that concerns its device gives `error`, and the
// device does nothing more.
void break_stream(cudaStream_t stream, cudaError_t error);
// Undoes what broken streams and failures still to come have done.
void mend();

int current_device();
// The devices that the program has a context on: those that were made current, or were current in a
// call that makes something or names a stream or an event.
std::vector<int> contexts();
int stream_number(cudaStream_t stream);
int stream_count();
// Operations issued and not run yet.
std::size_t pending();

}  // namespace cudasim
