// SPDX-License-Identifier: Apache-2.0
//
// What plain threads reach, served to `compare`: memcpy/BYTES/MEMORY and add/BYTES/MEMORY, by two
// threads with half of the bytes each; handover/free, an empty function called on a thread that
// spins for it; condition_variable/free and condition_variable/busy, on one that sleeps until it is
// told; threads/free and threads/busy, two std::threads made and joined. A thread that spins is
// there only during a round. MEMORY: the result lies in memory that was there before
// (kept), or that comes from the system for each call (fresh), in huge pages from 2 MiB on.
// (Smaller blocks of lockstep share huge pages.)
#include "../served_steps.hpp"
#include "fresh_block.hpp"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

namespace compare {
namespace {

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Owns a thread that runs what is posted; spins in between, so that handing over costs least.
class Helper {
 public:
  Helper() : thread_([this](const std::stop_token& stop) { serve(stop); }) {}

  template <class Work>
  void both(const Work& work) {
    context_ = &work;
    invoke_ = [](const void* context) { (*static_cast<const Work*>(context))(1); };
    posted_.fetch_add(1, std::memory_order_release);
    work(0);
    while (done_.load(std::memory_order_acquire) != posted_.load(std::memory_order_relaxed)) {
      relax();
    }
  }

 private:
  void serve(const std::stop_token& stop) {
    for (long seen = 0; !stop.stop_requested();) {
      if (posted_.load(std::memory_order_acquire) == seen) {
        relax();
        continue;
      }
      invoke_(context_);
      done_.store(++seen, std::memory_order_release);
    }
  }

  const void* context_ = nullptr;
  void (*invoke_)(const void*) = nullptr;
  alignas(64) std::atomic<long> posted_{0};
  alignas(64) std::atomic<long> done_{0};
  std::jthread thread_;
};

// The same for a thread that sleeps in between.
class SleepingHelper {
 public:
  SleepingHelper() : thread_([this] { serve(); }) {}
  SleepingHelper(const SleepingHelper&) = delete;
  SleepingHelper& operator=(const SleepingHelper&) = delete;
  ~SleepingHelper() { post(kEnd); }

  void call_nothing() {
    post(kPosted);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return state_ == kIdle; });
  }

 private:
  enum State { kIdle, kPosted, kEnd };

  void post(State state) {
    {
      const std::lock_guard lock(mutex_);
      state_ = state;
    }
    changed_.notify_all();
  }

  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return state_ != kIdle; });
      if (state_ == kEnd) return;
      state_ = kIdle;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = kIdle;
  std::jthread thread_;
};

struct Buffers {
  explicit Buffers(std::size_t bytes) : a(bytes), b(bytes), result(bytes) {
    for (const FreshBlock* block : {&a, &b, &result}) std::memset(block->data(), 0, bytes);
  }
  FreshBlock a, b, result;
  std::optional<FreshBlock> fresh;
  std::shared_ptr<Helper> helper;
};

float* floats(const FreshBlock& block) { return static_cast<float*>(block.data()); }

template <class Half>
Step in_halves(std::size_t bytes, bool fresh, Half half) {
  const auto buffers = std::make_shared<Buffers>(bytes);
  const auto call = [buffers, bytes, fresh, half] {
    const auto into = [&](float* result) {
      const std::size_t count = bytes / sizeof(float) / 2;
      buffers->helper->both([&](std::size_t i) {
        half(result + i * count, floats(buffers->a) + i * count, floats(buffers->b) + i * count,
             count);
      });
    };
    if (fresh) buffers->fresh.emplace(bytes);
    into(floats(fresh ? *buffers->fresh : buffers->result));
  };
  // What one call took goes back to the system before the next, which is not timed.
  const auto give_back = [buffers] { buffers->fresh.reset(); };
  return {call, fresh ? give_back : std::function<void()>(), [buffers] {
            const auto helper = std::make_shared<Helper>();
            buffers->helper = helper;
            return std::shared_ptr<void>(nullptr, [buffers](void*) { buffers->helper = nullptr; });
          }};
}

void copy(float* to, const float* from, const float*, std::size_t count) {
  std::memcpy(to, from, count * sizeof(float));
}

void add(float* to, const float* a, const float* b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = a[i] + b[i];
}

Step hand_over() {
  const auto helper = std::make_shared<std::shared_ptr<Helper>>();
  return {[helper] { (*helper)->both([](std::size_t) {}); }, nullptr,
          [helper] {
            *helper = std::make_shared<Helper>();
            return std::shared_ptr<void>(nullptr, [helper](void*) { *helper = nullptr; });
          }};
}

Step sleeping_hand_over() {
  return {[helper = std::make_shared<SleepingHelper>()] { helper->call_nothing(); }};
}

void two_threads() {
  std::thread first([] {});
  std::thread second([] {});
  first.join();
  second.join();
}

std::shared_ptr<void> busy_neighbour() {
  return std::make_shared<std::jthread>([](const std::stop_token& stop) {
    while (!stop.stop_requested()) asm volatile("" : : : "memory");
  });
}

}  // namespace
}  // namespace compare

int main() {
  using namespace compare;
  Steps steps;
  for (const std::size_t bytes :
       {1UL << 3, 1UL << 10, 1UL << 16, 1UL << 20, 1UL << 24, 1UL << 26}) {
    for (const bool fresh : {false, true}) {
      const std::string end = std::to_string(bytes) + (fresh ? "/fresh" : "/kept");
      steps.add("memcpy/" + end, [=] { return in_halves(bytes, fresh, copy); });
      steps.add("add/" + end, [=] { return in_halves(bytes, fresh, add); });
    }
  }
  steps.add("handover/free", hand_over);
  steps.add("condition_variable/free", sleeping_hand_over);
  steps.add("condition_variable/busy", [] {
    return Step{sleeping_hand_over().call, nullptr, busy_neighbour};
  });
  steps.add("threads/free", [] { return Step{two_threads}; });
  steps.add("threads/busy", [] { return Step{two_threads, nullptr, busy_neighbour}; });
  serve(steps);
}
