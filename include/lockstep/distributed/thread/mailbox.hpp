// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/relayed_error.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/carrier.hpp>
#include <lockstep/distributed/group/rank_failure.hpp>
#include <lockstep/distributed/thread/gpu_faults.hpp>
#include <lockstep/distributed/thread/reduce_on_gpu.hpp>
#include <lockstep/error.hpp>

#include <cstddef>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

// Whether a rank of a world of threads has gone, and why. Copies need no memory.
struct Departure {
  int rank = 0;                  // its number in `run`, which messages name
  std::optional<Device> device;  // its device in `run`, if known
  bool gone = false;
  std::optional<lockstep::detail::DescribedError> thrown = {};  // nothing if it has returned

  // "rank 2 on device cpu:2 has thrown lockstep::ShapeError: …"
  std::string text() const {
    std::string who = lockstep::detail::str("rank ", rank);
    if (device) who += lockstep::detail::str(" on device ", *device);
    return who + (thrown
                      ? " has thrown " + thrown->text()
                      : " has returned and takes part no more (for uneven inputs there is join)");
  }
};

// Messages between the ranks of a world of threads of which only one side has called yet. The side
// that calls second copies from the sender's memory to the receiver's and notifies both.
//
// Threads: `mutex_` guards everything. The thread that comes second, or that leaves, copies and
// calls `done` without it.
class Mailbox {
 public:
  explicit Mailbox(std::size_t size) : departures_(size) {}
  // The last rank has released its group: messages that are still posted fail.
  ~Mailbox() {
    for (const Posted& posted : posted_) {
      posted.done(lockstep::detail::thrown_by([&] {
        lockstep::detail::fail<Error>(posted.message.text(), ": the process group was destroyed");
      }));
    }
  }

  // Posts a message of `rank`. With a stream the memory is on its GPU; the copy is work of the
  // receiver's stream, and the sender's waits for it.
  void post(int rank, const Message& message, void* data, Done done, const Stream* stream) {
    Posted mine{rank, message, data, std::move(done), {}};
    if (stream) mine.gpu = GpuSide{*stream, stream->record_event()};
    Departure why;
    Posted other{};
    {
      const std::lock_guard lock(mutex_);
      const auto fits = lockstep::detail::find_if(posted_, [&](const Posted& posted) {
        return posted.rank == message.peer && posted.message.peer == rank &&
               posted.message.sends != message.sends && posted.message.tag == message.tag;
      });
      if (departure(rank).gone) {
        why = departure(rank);
      } else if (fits != posted_.end()) {
        other = std::move(*fits);
        posted_.erase(fits);
      } else if (departure(message.peer).gone) {
        why = departure(message.peer);
      } else {
        posted_.push_back(std::move(mine));
        return;
      }
    }
    if (why.gone) return fail_gone(mine, why);
    deliver(message.sends ? mine : other, message.sends ? other : mine, rank);
  }

  // `rank` posts no more messages. Messages from and to it that others have posted fail and say
  // why; its own may still be taken. Works without memory, which only the errors' texts need.
  void leave(int rank, const Departure& why) noexcept {
    {
      const std::lock_guard lock(mutex_);
      departure(rank) = why;
    }
    const auto waits = [rank](const Posted& posted) { return posted.message.peer == rank; };
    while (true) {
      Posted failed{};
      {
        const std::lock_guard lock(mutex_);
        const auto found = lockstep::detail::find_if(posted_, waits);
        if (found == posted_.end()) return;
        failed = std::move(*found);
        posted_.erase(found);
      }
      fail_gone(failed, why);
    }
  }

 private:
  struct GpuSide {
    Stream stream;
    Event ready;  // from here on the memory may be used
  };
  struct Posted {
    int rank;
    Message message;
    void* data;
    Done done;
    std::optional<GpuSide> gpu;
  };

  Departure& departure(int rank) { return departures_[static_cast<std::size_t>(rank)]; }

  // Passes its only reference to the exception on to `done`.
  void fail_gone(const Posted& posted, const Departure& why) const noexcept {
    std::exception_ptr error;
    try {
      error = std::make_exception_ptr(RankGone(posted.message.text() + ": " + why.text()));
    } catch (...) {
      error = std::make_exception_ptr(RankGoneWithoutMemory(why.rank, spare_));
    }
    posted.done(std::move(error));
  }

  // Copies, and notifies both sides. Called by the thread of `rank`, one of the two.
  void deliver(const Posted& sent, const Posted& received, int rank) const noexcept {
    const Message& out = sent.message;
    const Message& in = received.message;
    const bool same_place = sent.gpu.has_value() == received.gpu.has_value();
    if (out.dtype != in.dtype || out.count != in.count || !same_place) {
      const auto where = [same_place](const Posted& posted) {
        return same_place ? "" : posted.gpu ? " on a GPU" : " in host memory";
      };
      // Each side gets an exception of its own: this one, or bad_alloc.
      const auto differ = [&] {
        lockstep::detail::fail<ValueError>("messages do not match: rank ", sent.rank, " sent ",
                                           out.count, " x ", out.dtype, where(sent), ", but rank ",
                                           received.rank, " receives ", in.count, " x ", in.dtype,
                                           where(received));
      };
      sent.done(lockstep::detail::thrown_by(differ));
      return received.done(lockstep::detail::thrown_by(differ));
    }
    std::exception_ptr cause = lockstep::detail::thrown_by([&] {
      if (sent.gpu) {
        copy_on_gpu(sent, received);
      } else if (out.bytes() > 0) {
        std::memcpy(received.data, sent.data, out.bytes());
      }
    });
    if (!cause) {
      sent.done(nullptr);
      return received.done(nullptr);
    }
    // The rank whose GPU has failed (`rank`, if neither has) gets the error itself, and the other
    // one an error that names it.
    const auto& [caller, peer] =
        rank == sent.rank ? std::tie(sent, received) : std::tie(received, sent);
    const bool of_peer = !has_failed(caller.gpu->stream) && has_failed(peer.gpu->stream);
    const auto& [mine, other] = of_peer ? std::tie(peer, caller) : std::tie(caller, peer);
    const int failed = mine.rank;
    std::exception_ptr told;
    try {
      told = std::make_exception_ptr(DeviceError(
          lockstep::detail::str("a message from rank ", sent.rank, " to rank ", received.rank,
                                ": failed on rank ", failed, ", on ", mine.gpu->stream.device(),
                                ": ", lockstep::detail::described(cause).text())));
    } catch (...) {
      told = std::make_exception_ptr(RankGoneWithoutMemory(failed, spare_, "failed"));
    }
    other.done(std::move(told));
    mine.done(std::move(cause));
  }

  // Copies on the receiver's stream; later work of the sender's stream waits for it. If this
  // throws, the copy has ended, unless the receiver's GPU has failed.
  static void copy_on_gpu(const Posted& sent, const Posted& received) {
    const Stream& from = sent.gpu->stream;
    const Stream& to = received.gpu->stream;
    to.wait_event(sent.gpu->ready);
    to.wait_event(received.gpu->ready);
    try {
      copy_between({to.device(), received.data}, {from.device(), sent.data}, sent.message.bytes(),
                   to);
      from.wait_event(to.record_event());
    } catch (...) {
      (void)await_end(to);
      throw;
    }
  }

  const RankGone spare_{""};
  std::mutex mutex_;
  std::vector<Posted> posted_;         // in order of arrival
  std::vector<Departure> departures_;  // of each rank
};

}  // namespace lockstep::distributed::detail
