// expect: the operation runs in the background: wait.*lockstep::distributed::all_reduce
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/collectives.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/tensor/creation.hpp>

#pragma GCC diagnostic error "-Wunused-result"

int main() {
  lockstep::distributed::run({"cpu:0"}, [](const lockstep::distributed::ProcessGroup& group) {
    const lockstep::Tensor total = lockstep::ones({3});
#ifdef LOCKSTEP_CONTROL
    lockstep::distributed::all_reduce(total, {}, group);
    group.all_reduce(total).wait();
#else
    group.all_reduce(total);
#endif
  });
}
