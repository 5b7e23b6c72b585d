// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/memory_stats.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/error.hpp>

#include "support/operator_new.hpp"
#include "support/sanitizers.hpp"
#include "support/time_limit.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <string_view>

// Something that an operation needs fails at every place in turn: allocation n, once or lastingly,
// or the n-th call of a kind (FailingCalls), for n = 1, 2, … until a run passes unharmed. Whatever
// the place, the caller gets an exception that says so or the right result; nothing ends the
// process or hangs; and what comes afterwards is as if nothing had been.
namespace lockstep::testing {

// What fails: the allocation, or call, of that number, and maybe every later one.
struct Place {
  std::uint64_t number;
  bool lasting;
};

// While it lives, std::terminate says at which place it was called.
class Walking {
 public:
  Walking() : before_(std::set_terminate([] { TimeLimit::end("std::terminate"); })) {}
  ~Walking() {
    std::set_terminate(before_);
    TimeLimit::at_no_place();
  }
  Walking(const Walking&) = delete;
  Walking& operator=(const Walking&) = delete;

 private:
  const std::terminate_handler before_;
};

// What tensors have of the devices' memory, and of the host's.
inline std::size_t allocated_bytes() {
  std::size_t bytes = memory_stats(Device()).allocated_bytes;
  for (const Device device : devices()) bytes += memory_stats(device).allocated_bytes;
  return bytes;
}

// The same once as much is free as was before, or as can be: a block that was given back when
// nobody could note the end of its use is known to be free only once that is asked again.
inline std::size_t allocated_bytes_after(std::size_t before) {
  if (allocated_bytes() == before) return before;
  for (const Device device : devices()) synchronize(device);
  empty_cache(Device());  // first, as freeing a GPU's is work of the GPU
  for (const Device device : devices()) empty_cache(device);
  return allocated_bytes();
}

// What may be kept for ever of the devices' memory: what an operation of ranks was given that
// nobody could end, since all calls failed.
enum class Kept { nothing, in_flight };

// Calls visit(place) for every stride-th place, until `has_struck` says that nothing has failed any
// more, and prints how many there were. False once one of them has failed.
template <class Visit>
bool walk_places(const std::string& operation, const std::string& what, std::uint64_t stride,
                 bool (*has_struck)(), const Visit& visit, Kept kept = Kept::nothing) {
  const Walking walking;
  for (const bool lasting : {false, true}) {
    std::uint64_t places = 0;
    for (std::uint64_t n = lasting ? 1 : 1 + stride / 2;; n += stride) {
      const Place place{n, lasting};
      TimeLimit::at(operation.c_str(), n, lasting);
      SCOPED_TRACE(operation + ", " + what + " " + std::to_string(n) +
                   (lasting ? " and later ones" : ""));
      const std::size_t before = allocated_bytes();
      visit(place);
      const std::size_t after = allocated_bytes_after(before);
      if (kept == Kept::nothing || !lasting) {
        EXPECT_EQ(after, before) << "bytes are lost";
      }
      if (!has_struck()) break;
      ++places;
      if (::testing::Test::HasFailure()) return false;
    }
    std::printf("%s: %llu places, %s failing %s\n", operation.c_str(),
                static_cast<unsigned long long>(places), what.c_str(),
                lasting ? "from there on" : "once");
  }
  return true;
}

// For allocations. A run takes every kStride-th place only, other ones in each of the two kinds;
// LOCKSTEP_TEST_ALL_PLACES=1 in the environment takes them all.
template <class Visit>
bool walk(const std::string& operation, const Visit& visit, Kept kept = Kept::nothing) {
  // AddressSanitizer's library keeps no memory for the next time, and so has more places; and
  // simulated GPUs are slow.
#ifdef LOCKSTEP_TEST_SIMULATED_GPUS
  constexpr std::uint64_t kStride = 29;
#else
  constexpr std::uint64_t kStride = kAddressSanitizer ? 29 : 7;
#endif
  const std::uint64_t stride = std::getenv("LOCKSTEP_TEST_ALL_PLACES") != nullptr ? 1 : kStride;
  return walk_places(operation, "memory", stride, &OutOfMemory::has_struck, visit, kept);
}

// True for an exception that tells of a lack of memory: a bad_alloc, or a device's error, maybe
// another rank's. A library says no more than that a call has failed.
inline bool tells_of_memory(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const Error& thrown) {
    const std::string_view text = thrown.what();
    for (const char* const told : {"out of memory", "std::bad_alloc", "EXECUTION_FAILED"}) {
      if (text.find(told) != std::string_view::npos) return true;
    }
    return false;
  } catch (...) {
    return false;
  }
}

inline std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& thrown) {
    return thrown.what();
  } catch (...) {
    return "no std::exception";
  }
}

// True if `body` ends with an exception, which has to be one that tells of the lack of memory.
template <class Body>
bool fails_at(Place place, const Body& body) {
  std::exception_ptr error;
  {
    const OutOfMemory scarce(place.number, place.lasting);
    try {
      body();
    } catch (...) {
      error = std::current_exception();
    }
  }
  if (!error) return false;
  EXPECT_TRUE(OutOfMemory::has_struck()) << text_of(error);
  EXPECT_TRUE(tells_of_memory(error)) << text_of(error);
  return true;
}

}  // namespace lockstep::testing
