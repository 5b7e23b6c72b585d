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
class IntraopScope {
 public:
  // The share of one of `replicas`, for the threads that run them. Called by their caller.
  static int share(std::size_t replicas) {
    return std::max(1, at::get_num_threads() / static_cast<int>(replicas));
  }

  explicit IntraopScope(int count) : before_(at::get_num_threads()) { set(count); }
  IntraopScope(const IntraopScope&) = delete;
  IntraopScope& operator=(const IntraopScope&) = delete;
  ~IntraopScope() { set(before_); }

 private:
  // Of the OpenMP that LibTorch has brought along, whatever the program is compiled with.
  static void set(int count) {
    using Function = void (*)(int);
    static const auto function =
        reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    if (function != nullptr) function(count);
  }

  const int before_;  // asked first of all: a thread's first question sets its number
};

}  // namespace lockstep::libtorch::detail
