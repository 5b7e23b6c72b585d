// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/carrier.hpp>
#include <lockstep/distributed/thread/reduce_ranks.hpp>
#include <lockstep/distributed/watchdog/watchdog.hpp>
#include <lockstep/error.hpp>
#include <lockstep/mpi/api.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/mpi/compared_call.hpp>
#include <lockstep/mpi/failure_notice.hpp>
#include <lockstep/mpi/messages.hpp>
#include <lockstep/mpi/requests.hpp>
#include <lockstep/mpi/runtime.hpp>
#include <lockstep/mpi/scratch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
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

// The carrier between the ranks of an MPI communicator. MPI only moves bytes; the ranks add, in the
// order of the ranks, so that sums do not depend on MPI's algorithms. Data goes in pieces, so that
// the buffer, which is kept, stays small and no count exceeds an int.
//
// Nothing here blocks within MPI, where a missing rank would hang it (see Requests), except
// MPI_Comm_split, before which all ranks meet.
class MpiCarrier final : public Carrier {
 public:
  // `rank` is this one of `size`. Call `connect` next: the carrier allocates its memory before the
  // ranks make a communicator. `watchdog` may be null. Up to `direct` ranks use messages for
  // everything, which is faster than MPI's non-blocking collectives. More ranks use those, which
  // may write past the end of their memory if lengths differ; so the ranks compare their calls
  // first.
  MpiCarrier(int rank, int size, std::shared_ptr<const distributed::Watchdog> watchdog,
             int direct = 16)
      : Carrier(rank, size),
        direct_(size <= direct),
        watchdog_(watchdog),
        notice_(MPI_COMM_NULL, rank, size),
        requests_(watchdog, &notice_),
        messages_(std::move(watchdog), &notice_),
        sources_(ranks()),
        targets_(ranks()) {
    // So that a rank cannot run out of memory after it has sent its call to some ranks only.
    requests_.reserve(direct_ ? 2 * ranks() : 1);
  }
  ~MpiCarrier() override {
    const bool in_flight = messages_.are_in_flight();
    messages_.fail_in_flight();
    if (finalized() || (watchdog_ && watchdog_->faulted()) || requests_.failed() ||
        notice_.told() || notice_.has_told() || in_flight) {
      // MPI may still use it.
      if (requests_.failed()) (void)scratch_.release();
      return;
    }
    MPI_Comm comm = requests_.comm();
    if (comm == MPI_COMM_NULL) return;
    // If a communicator is freed, MPI may deliver its remaining messages to a later one.
    int left = 0;
    const int code = MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &left, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS && !left) MPI_Comm_free(&comm);
  }

  // Takes over a communicator that returns errors. `compares` is the same on all ranks.
  void connect(MPI_Comm comm, bool compares) noexcept {
    compares_ = compares;
    notice_.connect(comm);
  }

  std::exception_ptr mismatch() noexcept override { return notice_.mismatch(); }
  bool buffers_in_flight() const override { return carrying_ && requests_.under_way(); }

  void leave(const std::exception_ptr& error) noexcept override { requests_.leave(error); }
  void break_off(const std::exception_ptr& error) noexcept override { requests_.break_off(error); }

  void run(const Call& call, std::span<const void* const> inputs, std::span<void* const> outputs,
           const Stream*, const Done&) override {
    carrying_ = false;
    check_not_finalized();
    requests_.check_usable();
    if (is_compared(call)) compare(call);
    requests_.run_collective([&] {
      carrying_ = true;
      carry(call, inputs, outputs);
      carrying_ = false;
    });
  }

  void start(const Message& message, void* data, Done done, const Stream*) override {
    check_not_finalized();
    requests_.check_not_left();
    messages_.check(message);
    or_leave([&] { messages_.start(message, data, std::move(done)); });
  }
  bool progress() override {
    const bool more = messages_.progress();
    if (const auto error = messages_.failure()) requests_.fail_in_message(error);
    return more;
  }
  void call_in_waits(std::function<void()> poll) override {
    requests_.call_in_waits(std::move(poll));
  }

  std::unique_ptr<Carrier> split(std::span<const int> members) override {
    check_not_finalized();
    requests_.check_usable();
    const auto at = lockstep::detail::find(members, rank());
    std::unique_ptr<MpiCarrier> part;
    or_leave([&] {
      if (at == members.end()) return;
      part = std::make_unique<MpiCarrier>(static_cast<int>(at - members.begin()),
                                          static_cast<int>(members.size()), watchdog_);
    });
    // After this all ranks are here, and have the memory that they need.
    compare({.collective = Collective::new_group, .count = members.size()},
            distributed::detail::hash_of(members));
    if (members.size() == ranks() && std::is_sorted(members.begin(), members.end())) {
      requests_.run_collective([&] {
        requests_.duplicate(&scratch_->copy);
        part->connect(scratch_->copy, compares_);
        part->or_leave([&] { requests_.meet(); });  // the others may go on with theirs
      });
      return part;
    }
    or_leave([&] {
      requests_.meet_to_block();
      const MPI_Comm comm = part_of(requests_.comm(), members, rank());
      if (part) part->connect(comm, compares_);
      (part ? part.get() : this)->or_leave([&] { requests_.check_not_left(); });  // and tells them
    });
    return part;
  }

 private:
  void carry(const Call& call, std::span<const void* const> inputs,
             std::span<void* const> outputs) {
    switch (call.collective) {
      case Collective::all_reduce:
      case Collective::reduce:
        return reduce(call, inputs[0], outputs.empty() ? nullptr : outputs[0]);
      case Collective::reduce_scatter:
        return reduce_scatter(call, inputs, outputs[0]);
      case Collective::broadcast:
        return direct_ ? move(call, inputs, outputs) : broadcast(call, inputs, outputs);
      case Collective::all_gather:
        return direct_ ? move(call, inputs, outputs) : all_gather(call, inputs[0], outputs);
      case Collective::gather:
      case Collective::scatter:
        return move(call, inputs, outputs);
      case Collective::barrier:
        return requests_.meet();
      case Collective::new_group:
        return;
    }
  }

  // Up to this many bytes, over all ranks, each rank gets all parts and adds them up itself.
  static constexpr std::size_t kSmall = std::size_t{16} << 10;

  // Calls of several pieces are compared: pieces of another call could have the same lengths.
  bool is_one_piece(const Call& call) const {
    const bool of_all =
        call.collective == Collective::all_gather || call.collective == Collective::reduce_scatter;
    return call.bytes() * (of_all ? ranks() : 1) <= kPiece;
  }

  bool is_compared(const Call& call) const {
    return compares_ || !direct_ || call.collective == Collective::new_group || !is_one_piece(call);
  }

  std::size_t ranks() const { return static_cast<std::size_t>(size()); }
  std::size_t own() const { return static_cast<std::size_t>(rank()); }

  using Bytes = std::span<std::byte>;
  using ConstBytes = std::span<const std::byte>;

  static Bytes bytes_at(void* whole, std::size_t at, std::size_t bytes) {
    return {static_cast<std::byte*>(whole) + at, bytes};
  }
  static ConstBytes bytes_at(const void* whole, std::size_t at, std::size_t bytes) {
    return {static_cast<const std::byte*>(whole) + at, bytes};
  }

  // Sends from(r) to each rank r, and receives to(r) from it; nothing if that is empty. This rank's
  // own part is copied, unless it is in place. It begins with the next rank, so that the ranks do
  // not all send to the same one.
  template <class From, class To>
  void exchange(const From& from, const To& to) {
    for (std::size_t i = 1; i < ranks(); ++i) {
      const std::size_t r = (own() + i) % ranks();
      const Bytes part = to(r);
      requests_.receive(part.data(), part.size(), static_cast<int>(r));
    }
    for (std::size_t i = 1; i < ranks(); ++i) {
      const std::size_t r = (own() + i) % ranks();
      const ConstBytes part = from(r);
      requests_.send(part.data(), part.size(), static_cast<int>(r));
    }
    const ConstBytes kept = from(own());
    const Bytes mine = to(own());
    if (!kept.empty() && !mine.empty() && kept.data() != mine.data()) {
      std::memcpy(mine.data(), kept.data(), mine.size());
    }
    requests_.wait();
  }

  // Gathers the parts of all ranks in `all`, one after another.
  void gather_all(const void* part, std::size_t bytes, std::byte* all) {
    if (direct_) {
      return exchange([&](std::size_t) { return bytes_at(part, 0, bytes); },
                      [&](std::size_t r) { return bytes_at(all, r * bytes, bytes); });
    }
    const int count = static_cast<int>(bytes);
    requests_.start("MPI_Iallgather", [&](MPI_Request* request) {
      return MPI_Iallgather(part, count, MPI_BYTE, all, count, MPI_BYTE, requests_.comm(), request);
    });
    requests_.wait();
  }

  // Sends part(r) to each other rank r, and receives as many bytes as part(own()) from each, into
  // the buffer that it returns, one after another. Sets `sources_` to all parts, this rank's own
  // included, which stays in place.
  template <class PartOf>
  std::byte* exchange_parts(const PartOf& part) {
    const ConstBytes mine = part(own());
    std::byte* const received = scratch_->room(mine.size() * ranks());
    for (std::size_t r = 0; r < ranks(); ++r) sources_[r] = received + r * mine.size();
    sources_[own()] = mine.data();
    exchange(part, [&](std::size_t r) {
      return r == own() ? Bytes() : bytes_at(received, r * mine.size(), mine.size());
    });
    return received;
  }

  // Every rank adds up one share; then all ranks, or the root, get the shares.
  void reduce(const Call& call, const void* input, void* output) {
    const std::size_t element = element_size(call.dtype);
    const bool all = call.collective == Collective::all_reduce;
    const auto root = static_cast<std::size_t>(call.root);
    if (call.bytes() * ranks() <= kSmall) return reduce_small(call, input, output);
    std::vector<int>& counts = scratch_->counts;
    std::vector<int>& offsets = scratch_->offsets;
    counts.resize(ranks());
    offsets.resize(ranks());
    in_pieces(call, 1, [&](std::size_t at, std::size_t bytes) {
      const std::size_t count = bytes / element;
      for (std::size_t r = 0; r < ranks(); ++r) {
        const std::size_t begin = share_begin(count, call.dtype, r, ranks());
        const std::size_t end = share_begin(count, call.dtype, r + 1, ranks());
        counts[r] = static_cast<int>((end - begin) * element);
        offsets[r] = static_cast<int>(begin * element);
      }
      const auto share_of = [&](auto* whole, std::size_t r) {
        return bytes_at(whole, at + static_cast<std::size_t>(offsets[r]),
                        static_cast<std::size_t>(counts[r]));
      };
      std::byte* const received = exchange_parts([&](std::size_t r) { return share_of(input, r); });
      const auto share = static_cast<std::size_t>(counts[own()]);
      void* const sum = output ? share_of(output, own()).data() : received + own() * share;
      reduce_ranks(call.dtype, call.op, sources_, {&sum, 1}, 0, share / element);
      if (all && !direct_) {
        requests_.start("MPI_Iallgatherv", [&](MPI_Request* request) {
          return MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL,
                                 static_cast<std::byte*>(output) + at, counts.data(),
                                 offsets.data(), MPI_BYTE, requests_.comm(), request);
        });
        return requests_.wait();
      }
      exchange([&](std::size_t r) { return all || r == root ? bytes_at(sum, 0, share) : Bytes(); },
               [&](std::size_t r) { return output ? share_of(output, r) : Bytes(); });
    });
  }

  // Every rank that gets the sum receives all parts, and adds them up.
  void reduce_small(const Call& call, const void* input, void* output) {
    if (call.count == 0) return;
    const std::size_t bytes = call.bytes();
    std::byte* const received = scratch_->room(bytes * ranks());
    for (std::size_t r = 0; r < ranks(); ++r) sources_[r] = targets_[r] = received + r * bytes;
    if (call.collective == Collective::all_reduce) {
      gather_all(input, bytes, received);
    } else {
      move(call, {&input, 1}, std::span(targets_).first(output ? ranks() : 0));
    }
    if (output) reduce_ranks(call.dtype, call.op, sources_, {&output, 1}, 0, call.count);
  }

  void reduce_scatter(const Call& call, std::span<const void* const> inputs, void* output) {
    in_pieces(call, ranks(), [&](std::size_t at, std::size_t bytes) {
      (void)exchange_parts([&](std::size_t r) { return bytes_at(inputs[r], at, bytes); });
      void* const sum = static_cast<std::byte*>(output) + at;
      reduce_ranks(call.dtype, call.op, sources_, {&sum, 1}, 0, bytes / element_size(call.dtype));
    });
  }

  void broadcast(const Call& call, std::span<const void* const> inputs,
                 std::span<void* const> outputs) {
    void* const data = outputs.empty() ? const_cast<void*>(inputs[0]) : outputs[0];
    in_pieces(call, 1, [&](std::size_t at, std::size_t bytes) {
      requests_.start("MPI_Ibcast", [&](MPI_Request* request) {
        return MPI_Ibcast(static_cast<std::byte*>(data) + at, static_cast<int>(bytes), MPI_BYTE,
                          call.root, requests_.comm(), request);
      });
      requests_.wait();
    });
  }

  void all_gather(const Call& call, const void* input, std::span<void* const> outputs) {
    in_pieces(call, ranks(), [&](std::size_t at, std::size_t bytes) {
      std::byte* const received = scratch_->room(bytes * ranks());
      gather_all(static_cast<const std::byte*>(input) + at, bytes, received);
      for (std::size_t r = 0; r < ranks(); ++r) {
        std::memcpy(static_cast<std::byte*>(outputs[r]) + at, received + r * bytes, bytes);
      }
    });
  }

  // Moves parts that nobody adds up, directly: from the root alone or from every rank, to the root
  // alone or to every rank. A list of one part is that for, or from, each of them.
  void move(const Call& call, std::span<const void* const> inputs, std::span<void* const> outputs) {
    const auto root = static_cast<std::size_t>(call.root);
    const bool to_root =
        call.collective == Collective::gather || call.collective == Collective::reduce;
    const bool from_root =
        call.collective == Collective::broadcast || call.collective == Collective::scatter;
    in_pieces(call, 1, [&](std::size_t at, std::size_t bytes) {
      exchange(
          [&](std::size_t r) {
            const bool sends = !inputs.empty() && (!to_root || r == root);
            return sends ? bytes_at(inputs[r % inputs.size()], at, bytes) : ConstBytes();
          },
          [&](std::size_t r) {
            const bool receives = !outputs.empty() && (!from_root || r == root);
            return receives ? bytes_at(outputs[r % outputs.size()], at, bytes) : Bytes();
          });
    });
  }

  // Throws on all ranks unless all make the same call, with the same `details`, and tells a rank
  // that is in a collective without comparison. Returns when all ranks are here.
  void compare(const Call& call, std::uint64_t details = 0) {
    std::byte* all = nullptr;
    requests_.run_collective([&] {
      scratch_->call = {call, details};
      all = scratch_->room(sizeof(ComparedCall) * ranks());
      gather_all(&scratch_->call, sizeof(ComparedCall), all);
      const auto is_one = [this](const Call& other) { return is_compared(other); };
      const std::string error = uncompared_call_error(all, ranks(), is_one);
      if (!error.empty()) requests_.fail_mismatch(error);
    });
    check_same_calls(all, ranks());
  }

  bool compares_ = false;
  const bool direct_;
  const std::shared_ptr<const distributed::Watchdog> watchdog_;
  FailureNotice notice_;
  Requests requests_;
  Messages messages_;
  bool carrying_ = false;  // requests under way use the memory of a call
  std::unique_ptr<Scratch> scratch_ = std::make_unique<Scratch>();
  std::vector<const void*> sources_;  // one for each rank, like `targets_`
  std::vector<void*> targets_;
};

}  // namespace lockstep::mpi::detail
