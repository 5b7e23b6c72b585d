// SPDX-License-Identifier: Apache-2.0
//
// MPI's collectives between two ranks, served to `compare`: OP/BYTES/kept and OP/BYTES/fresh, with
// the names and the bytes of compare_calls.cpp, and all_reduce/BYTES, in place. A sample is one
// call after a barrier, as the slower rank saw it. fresh: the result lies in memory that comes from
// the system for each call; what MPI itself allocates is kept in both.
#include "../served_steps.hpp"
#include "fresh_block.hpp"

#include <mpi.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstring>

#include <malloc.h>

namespace compare {
namespace {

constexpr std::size_t kMost = std::size_t{1} << 26;

struct Call {
  std::string op;
  std::size_t bytes = 0;
  bool fresh = false;

  explicit Call(const std::string& name) {
    const auto first = name.find('/');
    if (first == std::string::npos) throw std::invalid_argument("there is no step " + name);
    op = name.substr(0, first);
    bytes = std::stoul(name.substr(first + 1));
    fresh = name.ends_with("/fresh");
  }

  void run(void* from, void* to) const {
    const int all = static_cast<int>(bytes);
    const int half = all / 2;
    if (op == "scatter") {
      MPI_Scatter(from, half, MPI_BYTE, to, half, MPI_BYTE, 0, MPI_COMM_WORLD);
    } else if (op == "gather") {
      MPI_Gather(from, half, MPI_BYTE, to, half, MPI_BYTE, 0, MPI_COMM_WORLD);
    } else if (op == "broadcast") {
      int rank = 0;
      MPI_Comm_rank(MPI_COMM_WORLD, &rank);
      MPI_Bcast(rank == 0 ? from : to, all, MPI_BYTE, 0, MPI_COMM_WORLD);
    } else if (op == "reduce_add") {
      MPI_Reduce(from, to, all / 4, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
    } else if (op == "all_reduce") {
      MPI_Allreduce(MPI_IN_PLACE, to, all / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
  }
};

std::vector<double> measure(const Order& order, void* from, void* to) {
  const Call call(order.name);
  const auto samples = static_cast<std::size_t>(order.samples);
  std::vector<double> mine, slowest(samples);
  for (std::size_t i = 0; i < samples; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    if (call.fresh) {
      const FreshBlock result(call.bytes);
      call.run(from, result.data());
      mine.push_back(1e6 * (MPI_Wtime() - start));
    } else {
      call.run(from, to);
      mine.push_back(1e6 * (MPI_Wtime() - start));
    }
  }
  MPI_Allreduce(mine.data(), slowest.data(), static_cast<int>(samples), MPI_DOUBLE, MPI_MAX,
                MPI_COMM_WORLD);
  return slowest;
}

// Rank 0's next order on every rank. Ranks sleep until it is there: MPI itself would spin, beside
// whatever else is measured.
bool share(int rank, Order& order) {
  std::array<char, 256> text{};
  if (rank == 0) {
    if (const std::optional<Order> next = next_order()) {
      std::snprintf(text.data(), text.size(), "%ld %s", next->samples, next->name.c_str());
    }
  }
  MPI_Request request;
  MPI_Ibcast(text.data(), text.size(), MPI_CHAR, 0, MPI_COMM_WORLD, &request);
  for (int done = 0;;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done != 0) break;
    usleep(2000);
  }
  std::istringstream(text.data()) >> order.samples >> order.name;
  return text[0] != '\0';
}

}  // namespace
}  // namespace compare

int main(int argc, char** argv) {
  using namespace compare;
  MPI_Init(&argc, &argv);
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const FreshBlock from(kMost), to(kMost);
  std::memset(from.data(), 0, kMost);
  std::memset(to.data(), 0, kMost);
  for (Order order; share(rank, order);) {
    const double taken = median(measure(order, from.data(), to.data()));
    if (rank == 0) answer(taken);
  }
  MPI_Finalize();
}
