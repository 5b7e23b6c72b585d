// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <torch/torch.h>

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>

namespace lockstep::libtorch::detail {

// Gives the thread `count` threads for the operations that it runs, until destroyed: each replica
// has its share of those that the caller has, or they would be more than the cores. OpenMP keeps
// this number for each thread; a LibTorch with another pool is left as it is, since its number is
// the process's.
//
// OpenMP's threads go on using their cores for milliseconds after they have been needed, where
// other replicas are to run. So those of the thread end here, and are made again when they are next
// needed.
class IntraopScope {
 public:
  // The share of one of `replicas`, for the threads that run them. Called by their caller.
  static int share(std::size_t replicas) {
    return std::max(1, at::get_num_threads() / static_cast<int>(replicas));
  }

  explicit IntraopScope(int count) : count_(count), before_(at::get_num_threads()) {
    if (count_ == before_) return;
    if (before_ > 1) openmp().end_threads();
    openmp().set(count_);
  }
  IntraopScope(const IntraopScope&) = delete;
  IntraopScope& operator=(const IntraopScope&) = delete;
  ~IntraopScope() {
    if (count_ == before_) return;
    if (count_ > 1) openmp().end_threads();
    openmp().set(before_);
  }

 private:
  // The OpenMP that LibTorch has brought along, whatever the program is compiled with.
  class OpenMp {
   public:
    void set(int count) const {
      if (set_num_threads_ != nullptr) set_num_threads_(count);
    }
    void end_threads() const {
      constexpr int kSoft = 1;  // omp_pause_soft
      if (pause_ != nullptr) (void)pause_(kSoft);
    }

   private:
    template <class Function>
    static Function find(const char* name) {
      return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
    }

    void (*const set_num_threads_)(int) = find<void (*)(int)>("omp_set_num_threads");
    int (*const pause_)(int) = find<int (*)(int)>("omp_pause_resource_all");
  };

  static const OpenMp& openmp() {
    static const OpenMp found;
    return found;
  }

  const int count_;
  const int before_;  // asked for in any case: a thread's first question sets its number
};

}  // namespace lockstep::libtorch::detail
