// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/warning.hpp>

#include <torch/torch.h>

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>

namespace lockstep::libtorch::detail {

// Advice for a program with `threads` intra-op threads of OpenMP and these values of
// OMP_WAIT_POLICY and GOMP_SPINCOUNT; nothing unless the threads spin for milliseconds after each
// operation, on cores that other replicas need.
inline std::optional<std::string> spinning_advice(int threads, const char* policy,
                                                  const char* spins) {
  if (threads < 2 || spins != nullptr) return std::nullopt;
  if (policy != nullptr && (policy[0] == 'p' || policy[0] == 'P')) return std::nullopt;
  return "LibTorch has " + std::to_string(threads) +
         " intra-op threads of OpenMP, which go on using cores for a while after each operation "
         "and slow down the replicas of a DataParallel: set OMP_WAIT_POLICY=passive in the "
         "environment, or call at::set_num_threads(1)";
}

// Gives that advice, once.
inline void advise_on_spinning() {
#if AT_PARALLEL_OPENMP
  static std::atomic<bool> given{false};
  const auto advice = spinning_advice(at::get_num_threads(), std::getenv("OMP_WAIT_POLICY"),
                                      std::getenv("GOMP_SPINCOUNT"));
  if (advice && !given.exchange(true)) warn(*advice);
#endif
}

// Limits the calling thread's operations to `count` intra-op threads until destroyed: each replica
// gets its share of the caller's, so that there are no more than cores. OpenMP keeps this number
// for each thread; with another pool, whose number is the process's, nothing changes.
class IntraopScope : lockstep::detail::NonCopyable {
 public:
  // The share of each of `replicas`. Called by the thread that starts them.
  static int share(std::size_t replicas) {
    return std::max(1, at::get_num_threads() / static_cast<int>(replicas));
  }

  explicit IntraopScope(int count) : before_(at::get_num_threads()) { set(count); }
  ~IntraopScope() { set(before_); }

 private:
  // Sets it in the OpenMP that LibTorch uses, whatever the program is compiled with.
  static void set(int count) {
    using Function = void (*)(int);
    static const auto function =
        reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    if (function != nullptr) function(count);
  }

  const int before_;  // read first: a thread's first query sets its number
};

}  // namespace lockstep::libtorch::detail
