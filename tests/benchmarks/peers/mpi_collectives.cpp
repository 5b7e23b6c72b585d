// SPDX-License-Identifier: Apache-2.0
//
// MPI's collectives between two ranks, served to `compare`: OP/BYTES/kept and OP/BYTES/fresh, with
// the names and the bytes of compare_calls.cpp. A sample is one call after a barrier, as the slower
// rank saw it. fresh: the result lies in memory that comes from the system for each call.
#include "../served_steps.hpp"

#include <mpi.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include <malloc.h>
#include <sys/mman.h>

namespace compare {
namespace {

constexpr std::size_t kMost = std::size_t{1} << 26;
constexpr std::size_t kHuge = std::size_t{2} << 20;

// Memory in huge pages from 2 MiB on. (Smaller blocks of lockstep share huge pages.)
struct Block {
  explicit Block(std::size_t bytes) {
    const bool huge = bytes >= kHuge;
    data = std::aligned_alloc(huge ? kHuge : 64, (bytes + 63) / 64 * 64);
    if (huge) (void)madvise(data, bytes, MADV_HUGEPAGE);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { std::free(data); }
  void* data;
};

struct Call {
  std::string op;
  std::size_t bytes = 0;
  bool fresh = false;

  explicit Call(const std::string& name) {
    const auto first = name.find('/');
    const auto second = name.find('/', first + 1);
    if (second == std::string::npos) throw std::invalid_argument("there is no step " + name);
    op = name.substr(0, first);
    bytes = std::stoul(name.substr(first + 1, second - first - 1));
    fresh = name.substr(second + 1) == "fresh";
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
      const Block result(call.bytes);
      call.run(from, result.data);
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
  mallopt(M_MMAP_THRESHOLD, 1 << 18);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const Block from(kMost), to(kMost);
  std::memset(from.data, 0, kMost);
  std::memset(to.data, 0, kMost);
  for (Order order; share(rank, order);) {
    const double taken = median(measure(order, from.data, to.data));
    if (rank == 0) answer(taken);
  }
  MPI_Finalize();
}
