// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/relayed_error.hpp>
#include <lockstep/distributed/group/rank_failure.hpp>
#include <lockstep/error.hpp>
#include <lockstep/mpi/api.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::mpi::detail {

// Tells the other ranks of a communicator when this one comes to no collective any more: because it
// has found that their calls do not match, or has failed itself. They may wait for it, or not have
// found anything. It also keeps what the others have told.
//
// Threads: the communication thread, or one that runs an operation in its place.
class FailureNotice {
 public:
  // The tag of its messages. All others in the communicator have tags from 1 on.
  static constexpr int kTag = 0;
  // The first byte of a message: the calls do not match, or the sender has failed.
  static constexpr char kDiffer = 'd';
  static constexpr char kGone = 'g';
  // How long operations may still take once it is known that a rank comes to nothing any more. Set
  // while none runs.
  static inline std::chrono::milliseconds last_chance{100};

  // `rank` is this one's among `size`. The communicator may follow with `connect`: it is
  // MPI_COMM_NULL till then.
  FailureNotice(MPI_Comm comm, int rank, int size)
      : comm_(comm), rank_(rank), gone_(static_cast<std::size_t>(size)) {}
  void connect(MPI_Comm comm) noexcept { comm_ = comm; }

  MPI_Comm comm() const { return comm_; }

  int rank() const { return rank_; }

  // Tells the others that the calls do not match. This and `tell_gone` return at once: MPI keeps,
  // or takes later, what is so short. Only the first call of each does anything.
  void tell(std::string_view text) noexcept { send(differ_text_, kDiffer, text); }
  // Tells the others that this rank has failed. Lockstep needs no memory for it; without any the
  // text is short.
  void tell_gone(const std::exception_ptr& error) noexcept {
    try {
      send(gone_text_, kGone,
           lockstep::detail::str("rank ", rank_, " has thrown ",
                                 lockstep::detail::described(error).text()));
    } catch (const std::exception&) {
      std::array<char, 64> text{};
      std::snprintf(text.data(), text.size(), "rank %d has failed for want of memory", rank_);
      send(gone_text_, kGone, text.data());
    }
  }

  // Whether this rank has told something, which some may not have taken yet.
  bool has_told() const noexcept { return !differ_text_ || !gone_text_; }

  // Takes what another rank has told, if there is something. Returns MPI's code: the caller, who
  // has messages under way, handles an error. It is called in every round of a wait, so it asks MPI
  // only once in a while.
  int look() noexcept {
    constexpr int kBetween = 64;
    return ++looks_ % kBetween == 0 ? take() : MPI_SUCCESS;
  }

  // The error that the first of the others has told: a ValueError or a RankGone; null as long as
  // nobody has.
  const std::exception_ptr& told() const { return told_; }
  // The RankGone of `rank`; null as long as that has not told that it has failed.
  const std::exception_ptr& gone(int rank) const { return gone_[static_cast<std::size_t>(rank)]; }
  // The ValueError of the first that has told that calls do not match, if it has come by now.
  std::exception_ptr mismatch() noexcept {
    // MPI may bring in a later look what has come before the first one.
    constexpr int kLooks = 1000;
    for (int i = 0; !mismatch_ && i < kLooks && !finalized() && take() == MPI_SUCCESS; ++i) {
    }
    return mismatch_;
  }

 private:
  using Text = std::array<char, 1024>;

  int take() noexcept {
    int found = 0;
    int length = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status{};
    int code = MPI_Improbe(MPI_ANY_SOURCE, kTag, comm_, &found, &message, &status);
    if (code != MPI_SUCCESS || !found) return code;
    code = MPI_Get_count(&status, MPI_CHAR, &length);
    if (code != MPI_SUCCESS) return code;
    Text text{};
    code = MPI_Mrecv(text.data(), std::min<int>(length, text.size() - 1), MPI_CHAR, &message,
                     MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS) keep(status.MPI_SOURCE, text);
    return code;
  }

  void send(std::unique_ptr<Text>& text, char kind, std::string_view what) noexcept {
    if (finalized()) return;
    // Never freed from here on: MPI may read it still.
    Text* const kept = text.release();
    if (!kept) return;
    const std::size_t length = std::min(what.size(), kept->size() - 2);
    kept->front() = kind;
    std::copy_n(what.begin(), length, kept->begin() + 1);
    for (int peer = 0; peer < static_cast<int>(gone_.size()); ++peer) {
      if (peer == rank_) continue;
      MPI_Request request = MPI_REQUEST_NULL;
      const int code = MPI_Isend(kept->data(), static_cast<int>(length + 1), MPI_CHAR, peer, kTag,
                                 comm_, &request);
      if (code == MPI_SUCCESS) MPI_Request_free(&request);
    }
  }

  void keep(int from, const Text& text) noexcept {
    // Of a group that has ended, whose communicator's number MPI has given to this one.
    if (static_cast<std::size_t>(from) >= gone_.size()) return;
    const char* const what = text.data() + 1;
    std::exception_ptr error;
    try {
      error = text.front() == kGone ? std::make_exception_ptr(distributed::RankGone(what))
                                    : std::make_exception_ptr(ValueError(what));
    } catch (const std::exception&) {
      error = std::make_exception_ptr(distributed::detail::RankGoneWithoutMemory(from, spare_));
    }
    if (text.front() == kGone) {
      gone_[static_cast<std::size_t>(from)] = error;
    } else if (!mismatch_) {
      mismatch_ = error;
    }
    if (!told_) told_ = std::move(error);
  }

  MPI_Comm comm_;
  const int rank_;
  unsigned looks_ = 0;
  // This rank's texts; each is null once it has been told.
  std::unique_ptr<Text> differ_text_ = std::make_unique<Text>();
  std::unique_ptr<Text> gone_text_ = std::make_unique<Text>();
  // What the others have told.
  const distributed::RankGone spare_{""};
  std::exception_ptr told_;
  std::exception_ptr mismatch_;
  std::vector<std::exception_ptr> gone_;  // of each rank
};

}  // namespace lockstep::mpi::detail
