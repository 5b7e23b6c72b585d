// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/allocation_faults.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

// What ThreadSanitizer is told, where the program is compiled with it. Operations run at moments
// that the policy chooses, on whichever host thread happens to be inside the simulator; what that
// thread does before and after, and the simulator's own lock, order nothing on a GPU. So each
// stream is a fiber to the sanitizer, the simulator's own state is out of its sight, and the only
// order it sees is what CUDA gives:
//
//   the host → an operation that it issues           host_release, Fiber::acquire
//   an operation → another that waits for it         Fiber::release, Fiber::acquire
//   an operation → the host that has waited for it   Fiber::release, host_acquire
//
// Elsewhere all of this is empty.

#if defined(__SANITIZE_THREAD__)
#define CUDASIM_FIBERS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CUDASIM_FIBERS 1
#endif
#endif

namespace cudasim {

#if defined(CUDASIM_FIBERS)

inline constexpr bool kFibers = true;

// While one lives, neither the accesses nor the synchronisation of the calling thread, or fiber,
// are seen, and its allocations do not fail. Nests.
class Unseen {
 public:
  Unseen() { begin(); }
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;
  ~Unseen() { end(); }

  static void begin();
  static void end();
};

// The opposite, inside of any number of those.
class Seen {
 public:
  Seen();
  Seen(const Seen&) = delete;
  Seen& operator=(const Seen&) = delete;
  ~Seen();

 private:
  int hidden_;
};

// A point in an order; its address is what counts, and it holds nothing.
struct alignas(8) Edge {
  char address[8];
};

// What the calling thread has done so far is before whatever acquires the edge, and so on.
void host_release(const Edge& edge);
void host_acquire(const Edge& edge);
// The calling thread, or fiber, writes memory as a whole.
void write_whole(const void* data, std::size_t bytes);

// A stream as a thread of its own, with its own stack. It runs in the thread that calls `run`,
// which returns when `body` has. Not in two threads at a time.
class Fiber {
 public:
  Fiber();
  Fiber(Fiber&&) noexcept;
  ~Fiber();

  void name(const std::string& name);
  void run(const std::function<void()>& body);
  void acquire(const Edge& edge);
  void release(const Edge& edge);

 private:
  struct Context;
  Context& context();

  std::string name_;
  std::unique_ptr<Context> context_;
};

#else

inline constexpr bool kFibers = false;

struct Unseen {
  Unseen() { begin(); }
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;
  ~Unseen() { end(); }
  static void begin() { lockstep::testing::begin_allocations_of_others(); }
  static void end() { lockstep::testing::end_allocations_of_others(); }
};
struct Seen {
  Seen() {}
};
struct Edge {};
inline void host_release(const Edge&) {}
inline void host_acquire(const Edge&) {}
inline void write_whole(const void*, std::size_t) {}
struct Fiber {
  void name(const std::string&) {}
  void run(const std::function<void()>& body) { body(); }
  void acquire(const Edge&) {}
  void release(const Edge&) {}
};

#endif

}  // namespace cudasim
