// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/carrier.hpp>
#include <lockstep/distributed/reduce_ranks.hpp>
#include <lockstep/error.hpp>
#include <lockstep/mpi/api.hpp>
#include <lockstep/mpi/messages.hpp>
#include <lockstep/mpi/runtime.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::mpi::detail {

using distributed::detail::Call;
using distributed::detail::Carrier;
using distributed::detail::Collective;
using distributed::detail::Done;
using distributed::detail::Message;
using distributed::detail::reduce_ranks;
using distributed::detail::share_begin;

// Whether ranks compare their calls before each collective: LOCKSTEP_DISTRIBUTED_DEBUG is DETAIL.
inline bool debug_detail() {
  const char* level = std::getenv("LOCKSTEP_DISTRIBUTED_DEBUG");
  return level && std::strcmp(level, "DETAIL") == 0;
}

// The ranks of an MPI communicator. MPI moves bytes; sums are taken here, in the order of the
// ranks, so that they do not depend on which algorithm an MPI chooses. Data goes in pieces through
// a buffer that stays, and no count exceeds an int.
class MpiCarrier final : public Carrier {
 public:
  // Takes over the communicator, which nobody else uses.
  MpiCarrier(MPI_Comm comm, bool compares)
      : Carrier(rank_in(comm), size_of(comm)),
        comm_(comm),
        compares_(compares),
        messages_(comm),
        counts_(ranks()),
        offsets_(ranks()),
        own_counts_(ranks()),
        own_offsets_(ranks()),
        sources_(ranks()) {}
  ~MpiCarrier() override {
    if (Runtime::finalized()) return;
    messages_.abandon();
    MPI_Comm comm = comm_;
    MPI_Comm_free(&comm);
  }

  void run(const Call& call, std::span<const void* const> inputs,
           std::span<void* const> outputs) override {
    if (compares_) compare(call);
    switch (call.collective) {
      case Collective::all_reduce:
      case Collective::reduce:
        return reduce(call, inputs[0], outputs.empty() ? nullptr : outputs[0]);
      case Collective::reduce_scatter:
        return reduce_scatter(call, inputs, outputs[0]);
      case Collective::broadcast:
        return broadcast(call, outputs.empty() ? const_cast<void*>(inputs[0]) : outputs[0]);
      case Collective::all_gather:
      case Collective::gather:
        return gather(call, inputs[0], outputs);
      case Collective::scatter:
        return scatter(call, inputs, outputs[0]);
      case Collective::barrier:
        return check_mpi(MPI_Barrier(comm_), "MPI_Barrier");
      case Collective::new_group:
        return;
    }
  }

  void send(const Message& message, const void* data, Done done) override {
    messages_.send(message, data, std::move(done));
  }
  void receive(const Message& message, void* data, Done done) override {
    messages_.receive(message, data, std::move(done));
  }
  bool progress() override { return messages_.progress(); }

  std::unique_ptr<Carrier> split(std::span<const int> members) override {
    if (compares_) compare({.collective = Collective::new_group, .count = members.size()});
    const auto at = std::find(members.begin(), members.end(), rank());
    MPI_Comm part = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(comm_, at == members.end() ? MPI_UNDEFINED : 0,
                             static_cast<int>(at - members.begin()), &part),
              "MPI_Comm_split");
    return part == MPI_COMM_NULL ? nullptr : std::make_unique<MpiCarrier>(part, compares_);
  }

 private:
  // Up to here each rank gets all parts and adds them up itself, in bytes of all ranks together.
  static constexpr std::size_t kSmall = std::size_t{16} << 10;
  // The most that goes through the buffer at once, in bytes of all ranks together.
  static constexpr std::size_t kPiece = std::size_t{4} << 20;

  static int rank_in(MPI_Comm comm) {
    check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    int rank = 0;
    check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    return rank;
  }
  static int size_of(MPI_Comm comm) {
    int size = 0;
    check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    return size;
  }
  std::size_t ranks() const { return static_cast<std::size_t>(size()); }
  std::size_t own() const { return static_cast<std::size_t>(rank()); }

  std::byte* buffer(std::size_t bytes) {
    if (buffer_.size() < bytes) buffer_.resize(bytes);
    return buffer_.data();
  }

  // Calls piece(first element, number of elements) for pieces of which `parts` fit into kPiece.
  template <class Piece>
  static void in_pieces(const Call& call, std::size_t parts, const Piece& piece) {
    const std::size_t element = element_size(call.dtype);
    const std::size_t most = std::max<std::size_t>(64, kPiece / parts / element / 64 * 64);
    for (std::size_t at = 0; at < call.count; at += most) {
      piece(at, std::min(most, call.count - at));
    }
  }

  // Every rank adds up the share that is its own, and the shares come together where they are
  // wanted: on all ranks, or on the root.
  void reduce(const Call& call, const void* input, void* output) {
    const std::size_t element = element_size(call.dtype);
    const bool all = call.collective == Collective::all_reduce;
    if (call.bytes() * ranks() <= kSmall) return reduce_small(call, input, output, all);
    in_pieces(call, 1, [&](std::size_t at, std::size_t count) {
      for (std::size_t r = 0; r < ranks(); ++r) {
        const std::size_t begin = share_begin(count, call.dtype, r, ranks());
        const std::size_t end = share_begin(count, call.dtype, r + 1, ranks());
        counts_[r] = static_cast<int>((end - begin) * element);
        offsets_[r] = static_cast<int>(begin * element);
      }
      const auto share = static_cast<std::size_t>(counts_[own()]);
      std::byte* const received = buffer(share * ranks());
      for (std::size_t r = 0; r < ranks(); ++r) {
        own_counts_[r] = static_cast<int>(share);
        own_offsets_[r] = static_cast<int>(r * share);
        sources_[r] = received + r * share;
      }
      check_mpi(MPI_Alltoallv(static_cast<const std::byte*>(input) + at * element, counts_.data(),
                              offsets_.data(), MPI_BYTE, received, own_counts_.data(),
                              own_offsets_.data(), MPI_BYTE, comm_),
                "MPI_Alltoallv");
      std::byte* const piece = output ? static_cast<std::byte*>(output) + at * element : nullptr;
      void* const sum = piece ? piece + offsets_[own()] : received;
      reduce_ranks(call.dtype, call.op, sources_, {&sum, 1}, 0, share / element);
      if (all) {
        check_mpi(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, piece, counts_.data(),
                                 offsets_.data(), MPI_BYTE, comm_),
                  "MPI_Allgatherv");
      } else {
        check_mpi(MPI_Gatherv(piece ? MPI_IN_PLACE : sum, counts_[own()], MPI_BYTE, piece,
                              counts_.data(), offsets_.data(), MPI_BYTE, call.root, comm_),
                  "MPI_Gatherv");
      }
    });
  }

  void reduce_small(const Call& call, const void* input, void* output, bool all) {
    if (call.count == 0) return;
    const int bytes = static_cast<int>(call.bytes());
    std::byte* const received = buffer(call.bytes() * ranks());
    if (all) {
      check_mpi(MPI_Allgather(input, bytes, MPI_BYTE, received, bytes, MPI_BYTE, comm_),
                "MPI_Allgather");
    } else {
      check_mpi(MPI_Gather(input, bytes, MPI_BYTE, received, bytes, MPI_BYTE, call.root, comm_),
                "MPI_Gather");
    }
    if (!output) return;
    for (std::size_t r = 0; r < ranks(); ++r) sources_[r] = received + r * call.bytes();
    reduce_ranks(call.dtype, call.op, sources_, {&output, 1}, 0, call.count);
  }

  void reduce_scatter(const Call& call, std::span<const void* const> inputs, void* output) {
    const std::size_t element = element_size(call.dtype);
    in_pieces(call, ranks(), [&](std::size_t at, std::size_t count) {
      const std::size_t bytes = count * element;
      std::byte* const sent = buffer(2 * bytes * ranks());
      std::byte* const received = sent + bytes * ranks();
      for (std::size_t r = 0; r < ranks(); ++r) {
        const auto* const part = static_cast<const std::byte*>(inputs[r]);
        std::memcpy(sent + r * bytes, part + at * element, bytes);
        sources_[r] = received + r * bytes;
      }
      const int part = static_cast<int>(bytes);
      check_mpi(MPI_Alltoall(sent, part, MPI_BYTE, received, part, MPI_BYTE, comm_),
                "MPI_Alltoall");
      void* const sum = static_cast<std::byte*>(output) + at * element;
      reduce_ranks(call.dtype, call.op, sources_, {&sum, 1}, 0, count);
    });
  }

  void broadcast(const Call& call, void* data) {
    in_pieces(call, 1, [&](std::size_t at, std::size_t count) {
      check_mpi(
          MPI_Bcast(static_cast<std::byte*>(data) + at * element_size(call.dtype),
                    static_cast<int>(count * element_size(call.dtype)), MPI_BYTE, call.root, comm_),
          "MPI_Bcast");
    });
  }

  // To all ranks, or to the root.
  void gather(const Call& call, const void* input, std::span<void* const> outputs) {
    const std::size_t element = element_size(call.dtype);
    in_pieces(call, ranks(), [&](std::size_t at, std::size_t count) {
      const std::size_t bytes = count * element;
      const int part = static_cast<int>(bytes);
      const auto* const from = static_cast<const std::byte*>(input) + at * element;
      std::byte* const received = outputs.empty() ? nullptr : buffer(bytes * ranks());
      if (call.collective == Collective::all_gather) {
        check_mpi(MPI_Allgather(from, part, MPI_BYTE, received, part, MPI_BYTE, comm_),
                  "MPI_Allgather");
      } else {
        check_mpi(MPI_Gather(from, part, MPI_BYTE, received, part, MPI_BYTE, call.root, comm_),
                  "MPI_Gather");
      }
      for (std::size_t r = 0; r < outputs.size(); ++r) {
        std::byte* const to = static_cast<std::byte*>(outputs[r]) + at * element;
        std::memcpy(to, received + r * bytes, bytes);
      }
    });
  }

  void scatter(const Call& call, std::span<const void* const> inputs, void* output) {
    const std::size_t element = element_size(call.dtype);
    in_pieces(call, ranks(), [&](std::size_t at, std::size_t count) {
      const std::size_t bytes = count * element;
      const int part = static_cast<int>(bytes);
      std::byte* const sent = inputs.empty() ? nullptr : buffer(bytes * ranks());
      for (std::size_t r = 0; r < inputs.size(); ++r) {
        const auto* const from = static_cast<const std::byte*>(inputs[r]) + at * element;
        std::memcpy(sent + r * bytes, from, bytes);
      }
      check_mpi(MPI_Scatter(sent, part, MPI_BYTE, static_cast<std::byte*>(output) + at * element,
                            part, MPI_BYTE, call.root, comm_),
                "MPI_Scatter");
    });
  }

  // Throws on all ranks unless they all make the same call.
  void compare(const Call& call) {
    const long long mine[] = {static_cast<long long>(call.collective),
                              static_cast<long long>(call.dtype), static_cast<long long>(call.op),
                              call.root, static_cast<long long>(call.count)};
    constexpr int kNumbers = static_cast<int>(std::size(mine));
    std::vector<long long> all(kNumbers * ranks());
    check_mpi(
        MPI_Allgather(mine, kNumbers, MPI_LONG_LONG, all.data(), kNumbers, MPI_LONG_LONG, comm_),
        "MPI_Allgather");
    const auto call_of = [&](std::size_t r) {
      const long long* const numbers = all.data() + r * kNumbers;
      return Call{.collective = static_cast<Collective>(numbers[0]),
                  .dtype = static_cast<Dtype>(numbers[1]),
                  .op = static_cast<distributed::ReduceOp>(numbers[2]),
                  .root = static_cast<int>(numbers[3]),
                  .count = static_cast<std::size_t>(numbers[4])};
    };
    for (std::size_t r = 1; r < ranks(); ++r) {
      check<ValueError>(call_of(r) == call_of(0), "collectives do not match: rank 0 called ",
                        call_of(0), ", but rank ", r, " called ", call_of(r));
    }
  }

  const MPI_Comm comm_;
  const bool compares_;
  Messages messages_;
  std::vector<std::byte> buffer_;
  // For each rank: bytes of its share and where it lies, in a piece and in the buffer.
  std::vector<int> counts_;
  std::vector<int> offsets_;
  std::vector<int> own_counts_;
  std::vector<int> own_offsets_;
  std::vector<const void*> sources_;
};

}  // namespace lockstep::mpi::detail
