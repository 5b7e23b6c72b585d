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

// Tells the other ranks of a communicator that this one takes part in no further collective,
// because it has found that their calls do not match or has failed itself. The others may be
// waiting for it, or have noticed nothing. It also keeps the others' notices.
//
// Threads: the communication thread, or one that runs an operation in its place.
class FailureNotice {
 public:
  // The tag of its messages. All others in the communicator have tags above it.
  static constexpr int kTag = 0;
  // The first byte of a message: the calls do not match, or the sender has failed.
  static constexpr char kDiffer = 'd';
  static constexpr char kGone = 'g';
  // How long operations may still take once a rank is known to have left. Set while none runs.
  static inline std::chrono::milliseconds last_chance{100};

  // `rank` is this one of `size`. The communicator may be MPI_COMM_NULL until `connect`.
  FailureNotice(MPI_Comm comm, int rank, int size)
      : comm_(comm), rank_(rank), gone_(static_cast<std::size_t>(size)) {}
  void connect(MPI_Comm comm) noexcept { comm_ = comm; }

  MPI_Comm comm() const { return comm_; }

  int rank() const { return rank_; }

  // Tells the others that the calls do not match. This and `tell_gone` return at once: MPI buffers
  // such short messages, or sends them later. Only the first call of each has an effect.
  void tell_mismatch(std::string_view text) noexcept { send(differ_text_, kDiffer, text); }
  // Tells the others that this rank has failed. It works without memory, with a shorter text.
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

  // True if this rank has sent a notice, which others may not have received yet.
  bool has_told() const noexcept { return !differ_text_ || !gone_text_; }

  // Receives a notice from another rank, if there is one. Returns MPI's code; the caller, who has
  // messages under way, handles an error. Every round of a wait calls it, so it asks MPI only once
  // in a while.
  int look() noexcept {
    constexpr int kBetween = 64;
    return ++looks_ % kBetween == 0 ? take() : MPI_SUCCESS;
  }

  // The error of the first notice, a ValueError or a RankGone; null without any.
  const std::exception_ptr& told() const { return told_; }
  // The RankGone of `rank`; null unless it has told that it has failed.
  const std::exception_ptr& gone(int rank) const { return gone_[static_cast<std::size_t>(rank)]; }
  // The ValueError of the first notice that calls do not match, if one has come by now.
  std::exception_ptr mismatch() noexcept {
    // MPI may return a message only some calls after it has come.
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
    // Never freed from here on: MPI may still read it.
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
    // From a group that has ended, whose communicator's number MPI has reused.
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
  // This rank's texts; each is null once it has been sent.
  std::unique_ptr<Text> differ_text_ = std::make_unique<Text>();
  std::unique_ptr<Text> gone_text_ = std::make_unique<Text>();
  // The others' notices.
  const distributed::RankGone spare_{""};
  std::exception_ptr told_;
  std::exception_ptr mismatch_;
  std::vector<std::exception_ptr> gone_;  // of each rank
};

}  // namespace lockstep::mpi::detail
