// SPDX-License-Identifier: Apache-2.0
#pragma once

// A call of MPI fails on the last rank, and all ranks go on as if nothing had been. mpi_test.cpp
// has the calls that ask `call_fails`.

#include <lockstep/distributed/init.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/error.hpp>
#include <lockstep/mpi.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

namespace ls = lockstep;
namespace dist = lockstep::distributed;

namespace mpi_test {

// So many more calls of MPI succeed before one fails; less than 0: none fails. Looks for messages
// that have not come, and for the end of what goes on, do not count.
inline std::atomic<int> calls_before_failure{-1};
inline bool call_fails() { return calls_before_failure >= 0 && calls_before_failure-- == 0; }

inline dist::ProcessGroup world() { return dist::default_group(); }
inline int last_rank() { return world().size() - 1; }

// What others wait for once a rank has failed, as long as nothing that counts can come in it.
class ShortLastChance {
 public:
  ShortLastChance() {
    FailureNotice::last_chance = std::chrono::milliseconds(2);
    ls::mpi::detail::fault_delay = std::chrono::milliseconds(2);
  }
  ShortLastChance(const ShortLastChance&) = delete;
  ShortLastChance& operator=(const ShortLastChance&) = delete;
  ~ShortLastChance() {
    FailureNotice::last_chance = before_;
    ls::mpi::detail::fault_delay = delay_before_;
  }

 private:
  using FailureNotice = ls::mpi::detail::FailureNotice;

  const std::chrono::milliseconds before_ = FailureNotice::last_chance;
  const std::chrono::milliseconds delay_before_ = ls::mpi::detail::fault_delay;
};

// What the last rank tells all others: whether it has met a fault, and whether it has failed.
struct Told {
  bool met;
  bool failed;
};
inline Told tell_all(bool met, bool failed) {
  const ls::Tensor state = ls::zeros({2});
  if (world().rank() == last_rank()) {
    state.narrow(0, 0, 1).fill_(met ? 1 : 0);
    state.narrow(0, 1, 1).fill_(failed ? 1 : 0);
  }
  (void)world().blocking().all_reduce(state);
  const std::vector<float> known = state.to_vector<float>();
  return {known[0] != 0, known[1] != 0};
}

// That these errors of another rank name the last one, which is the first one of a group whose
// ranks are in reverse order.
inline void expect_last_rank_in(const std::string& second, const std::string& third,
                                bool second_is_reversed = false) {
  const auto name = [](int rank) { return ls::detail::str("rank ", rank, " has "); };
  EXPECT_NE(second.find(name(second_is_reversed ? 0 : last_rank())), std::string::npos) << second;
  EXPECT_NE(third.find(name(last_rank())), std::string::npos) << third;
}

// The text of the Error that ends an operation; nothing where it ended well.
template <class Operation>
std::string error_text(const Operation& operation) {
  try {
    operation();
  } catch (const ls::Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace mpi_test
