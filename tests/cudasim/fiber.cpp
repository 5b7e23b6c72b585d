// SPDX-License-Identifier: Apache-2.0
#include "cudasim/fiber.hpp"

#if defined(CUDASIM_FIBERS)

#include <sanitizer/tsan_interface.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <stdexcept>
#include <utility>

// In libtsan, but not in its header.
extern "C" {
const char* __tsan_default_options();
void __tsan_ignore_thread_begin();  // memory accesses
void __tsan_ignore_thread_end();
void AnnotateIgnoreSyncBegin(const char* file, int line);  // locks and atomics
void AnnotateIgnoreSyncEnd(const char* file, int line);
void __tsan_write_range(void* data, long bytes);
}

// A page trap is taken where the program runs into it, not at a moment when it may hold any lock,
// so that its handler may do what others may not. Nothing runs on at the end. And a size beyond all
// reason is the program's error.
const char* __tsan_default_options() {
  return "report_signal_unsafe=0:atexit_sleep_ms=0:allocator_may_return_null=1";
}

// What runs while the sanitizer takes one fiber for another must not be instrumented.
#if defined(__clang__)
#define CUDASIM_UNINSTRUMENTED __attribute__((noinline, disable_sanitizer_instrumentation))
#else
#define CUDASIM_UNINSTRUMENTED __attribute__((noinline, no_sanitize("thread")))
#endif

namespace cudasim {
namespace {

constexpr std::size_t kStack = std::size_t{1} << 20;
constexpr std::size_t kGuard = 4096;

// How many Unseen are alive in the fiber that the thread runs, or in the thread itself.
thread_local int hidden = 0;

CUDASIM_UNINSTRUMENTED int set_hidden(int depth) {
  const int before = hidden;
  hidden = depth;
  return before;
}

CUDASIM_UNINSTRUMENTED void ignore() {
  __tsan_ignore_thread_begin();
  AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
}

CUDASIM_UNINSTRUMENTED void look() {
  AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  __tsan_ignore_thread_end();
}

void* address_of(const Edge& edge) { return const_cast<Edge*>(&edge); }

}  // namespace

CUDASIM_UNINSTRUMENTED void Unseen::begin() {
  lockstep::testing::begin_allocations_of_others();
  if (hidden++ == 0) ignore();
}
CUDASIM_UNINSTRUMENTED void Unseen::end() {
  lockstep::testing::end_allocations_of_others();
  if (--hidden == 0) look();
}

CUDASIM_UNINSTRUMENTED Seen::Seen() : hidden_(set_hidden(0)) {
  if (hidden_ != 0) look();
}
CUDASIM_UNINSTRUMENTED Seen::~Seen() {
  if (hidden_ != 0) ignore();
  set_hidden(hidden_);
}

void host_release(const Edge& edge) {
  const Seen seen;
  __tsan_release(address_of(edge));
}

void host_acquire(const Edge& edge) {
  const Seen seen;
  __tsan_acquire(address_of(edge));
}

void write_whole(const void* data, std::size_t bytes) {
  const Seen seen;
  __tsan_write_range(const_cast<void*>(data), static_cast<long>(bytes));
}

struct Fiber::Context {
  explicit Context(const std::string& name) {
    stack = mmap(nullptr, kGuard + kStack, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) throw std::runtime_error("cudasim: no stack for " + name);
    mprotect(stack, kGuard, PROT_NONE);
    fiber = __tsan_create_fiber(0);
    __tsan_set_fiber_name(fiber, name.c_str());
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() {
    __tsan_destroy_fiber(fiber);
    munmap(stack, kGuard + kStack);
  }

  // Begins `run` on the fiber's own stack, where locals are its own for the sanitizer, too.
  CUDASIM_UNINSTRUMENTED void jump(const std::function<void()>& what) {
    body = &what;
    caller_fiber = __tsan_get_current_fiber();
    const int depth = set_hidden(0);
    getcontext(&own);
    own.uc_stack.ss_sp = static_cast<char*>(stack) + kGuard;
    own.uc_stack.ss_size = kStack;
    own.uc_link = nullptr;
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&own, reinterpret_cast<void (*)()>(&Context::run), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
    __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync);
    swapcontext(&caller, &own);
    set_hidden(depth);
  }

  CUDASIM_UNINSTRUMENTED static void run(unsigned high, unsigned low) {
    auto* const self = reinterpret_cast<Context*>(std::uintptr_t{high} << 32 | std::uintptr_t{low});
    (*self->body)();
    __tsan_switch_to_fiber(self->caller_fiber, __tsan_switch_to_fiber_no_sync);
    setcontext(&self->caller);
  }

  // Does something on the fiber's behalf that needs no stack.
  CUDASIM_UNINSTRUMENTED void on_behalf(void (*act)(void*), void* edge) const {
    void* const thread = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync);
    act(edge);
    __tsan_switch_to_fiber(thread, __tsan_switch_to_fiber_no_sync);
  }

  void* stack = nullptr;
  void* fiber = nullptr;
  void* caller_fiber = nullptr;
  const std::function<void()>* body = nullptr;
  ucontext_t own{};
  ucontext_t caller{};
};

Fiber::Fiber() = default;
Fiber::Fiber(Fiber&&) noexcept = default;
Fiber::~Fiber() = default;

void Fiber::name(const std::string& name) { name_ = name; }

Fiber::Context& Fiber::context() {
  if (!context_) context_ = std::make_unique<Context>(name_);
  return *context_;
}

void Fiber::run(const std::function<void()>& body) {
  const Unseen unseen;
  context().jump(body);
}

void Fiber::acquire(const Edge& edge) { context().on_behalf(&__tsan_acquire, address_of(edge)); }

void Fiber::release(const Edge& edge) { context().on_behalf(&__tsan_release, address_of(edge)); }

}  // namespace cudasim

#endif
