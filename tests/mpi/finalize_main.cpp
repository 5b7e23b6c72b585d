// SPDX-License-Identifier: Apache-2.0

// A program that initialises and finalises MPI itself, while lockstep's communication thread has
// something left to do, as after a group's last handle has gone.
#include <lockstep/backend/host/task_queue.hpp>
#include <lockstep/distributed/collectives.hpp>
#include <lockstep/distributed/group/communication_thread.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/mpi.hpp>
#include <lockstep/tensor/creation.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

int main(int argc, char** argv) {
  namespace dist = lockstep::distributed;
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);

  std::atomic<bool> finalized{false};
  std::atomic<bool> ended{false};
  {
    const dist::ProcessGroup group = lockstep::mpi::process_group();
    group.all_reduce(lockstep::ones({3})).wait();
    group.impl()->thread()->issue(dist::detail::CommunicationThread::Task([&]() noexcept {
      // Gives an MPI_Finalize that does not wait the time to return.
      const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
      while (!finalized && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
      ended = !finalized;
    }));
  }
  MPI_Finalize();
  finalized = true;
  if (ended) return 0;
  std::fputs("MPI_Finalize did not wait for the communication thread\n", stderr);
  return 1;
}
