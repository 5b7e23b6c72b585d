// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/carrier.hpp>
#include <lockstep/distributed/rank_failure.hpp>
#include <lockstep/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

// The messages between the ranks of a world of threads that only one side has come for yet. The
// side that comes second copies from the sender's memory to the receiver's and tells both.
//
// Threads: `mutex_` guards everything. Copies are made and `done` is called outside of it, by the
// thread that comes second or that leaves.
class Mailbox {
 public:
  explicit Mailbox(int size) : gone_(static_cast<std::size_t>(size)) {}

  void send(int rank, const Message& message, const void* data, Done done) {
    post({rank, message.peer, true, message, const_cast<void*>(data), std::move(done)});
  }
  void receive(int rank, const Message& message, void* data, Done done) {
    post({message.peer, rank, false, message, data, std::move(done)});
  }

  // `rank` posts no more. What others wait for from it, or have for it, fails with `reason`; what
  // it has posted itself may still be taken.
  void leave(int rank, const std::string& reason) {
    std::vector<Posted> failed;
    {
      const std::lock_guard lock(mutex_);
      gone_[static_cast<std::size_t>(rank)] = reason;
      const auto waits = [&](const Posted& posted) {
        return (posted.sends ? posted.to : posted.from) == rank;
      };
      for (Posted& posted : posted_) {
        if (waits(posted)) failed.push_back(std::move(posted));
      }
      std::erase_if(posted_, [](const Posted& posted) { return !posted.done; });
    }
    for (const Posted& posted : failed) posted.done(gone(reason));
  }

 private:
  struct Posted {
    int from;
    int to;
    bool sends;
    Message message;
    void* data;
    Done done;
  };

  static std::exception_ptr gone(const std::string& reason) {
    return std::make_exception_ptr(RankGone("send or recv: " + reason));
  }

  void post(Posted mine) {
    const int peer = mine.sends ? mine.to : mine.from;
    std::string reason;
    Posted other{};
    {
      const std::lock_guard lock(mutex_);
      const auto fits = std::find_if(posted_.begin(), posted_.end(), [&](const Posted& posted) {
        return posted.from == mine.from && posted.to == mine.to && posted.sends != mine.sends &&
               posted.message.tag == mine.message.tag;
      });
      if (fits != posted_.end()) {
        other = std::move(*fits);
        posted_.erase(fits);
      } else if (gone_[static_cast<std::size_t>(peer)].empty()) {
        posted_.push_back(std::move(mine));
        return;
      } else {
        reason = gone_[static_cast<std::size_t>(peer)];
      }
    }
    if (!other.done) return mine.done(gone(reason));
    deliver(mine.sends ? mine : other, mine.sends ? other : mine);
  }

  static void deliver(const Posted& sent, const Posted& received) {
    const Message& out = sent.message;
    const Message& in = received.message;
    if (out.dtype == in.dtype && out.count == in.count) {
      if (out.bytes() > 0) std::memcpy(received.data, sent.data, out.bytes());
      sent.done(nullptr);
      received.done(nullptr);
      return;
    }
    const std::string text = lockstep::detail::str(
        "messages do not match: rank ", sent.from, " sent ", out.count, " x ", out.dtype,
        ", but rank ", received.to, " receives ", in.count, " x ", in.dtype);
    sent.done(std::make_exception_ptr(ValueError(text)));
    received.done(std::make_exception_ptr(ValueError(text)));
  }

  std::mutex mutex_;
  std::vector<Posted> posted_;     // in the order in which they came
  std::vector<std::string> gone_;  // why a rank is; empty while it is there
};

}  // namespace lockstep::distributed::detail
