// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/rank_failure.hpp>
#include <lockstep/error.hpp>
#include <lockstep/mpi/api.hpp>
#include <lockstep/mpi/check.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::mpi::detail {

// What a rank tells the others of a communicator when it comes to no collective any more: because
// it has found that theirs do not match, or has failed itself. They may wait for it, or not have
// found anything.
//
// Threads: the communication thread alone, or whoever runs in its place.
class FailureNotice {
 public:
  // Of its messages. All others in the communicator have tags from 1 on.
  static constexpr int kTag = 0;
  // What one begins with.
  static constexpr char kDiffer = 'd';
  static constexpr char kGone = 'g';

  explicit FailureNotice(MPI_Comm comm) : comm_(comm) {
    check_mpi(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
  }

  int rank() const { return rank_; }

  // Tells that the calls do not match. This and `tell_gone` return at once: MPI keeps, or takes
  // later, what is so short. Only the first of all calls does anything.
  void tell(std::string_view text) noexcept { send(kDiffer, text); }
  // Tells that this rank has failed. Lockstep needs no memory for it; without any the text is
  // short.
  void tell_gone(const std::exception_ptr& error) noexcept {
    try {
      send(kGone, lockstep::detail::str("rank ", rank_, " has thrown ",
                                        distributed::detail::describe(error)));
    } catch (const std::exception&) {
      std::array<char, 64> text{};
      std::snprintf(text.data(), text.size(), "rank %d has failed for want of memory", rank_);
      send(kGone, text.data());
    }
  }

  // Sets `told` to a ValueError or a RankGone if another rank has told something. Returns MPI's
  // code: an error is the caller's to handle, who has messages under way. Asks MPI once in a while
  // only, since it is called in every round of a wait.
  int look(std::exception_ptr& told) {
    constexpr int kBetween = 64;
    if (++looks_ % kBetween != 0) return MPI_SUCCESS;
    int found = 0;
    int length = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status{};
    int code = MPI_Improbe(MPI_ANY_SOURCE, kTag, comm_, &found, &message, &status);
    if (code != MPI_SUCCESS || !found) return code;
    code = MPI_Get_count(&status, MPI_CHAR, &length);
    if (code != MPI_SUCCESS) return code;
    std::string text(static_cast<std::size_t>(length), '\0');
    code = MPI_Mrecv(text.data(), length, MPI_CHAR, &message, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) return code;
    const std::string what = text.substr(std::min<std::size_t>(1, text.size()));
    told = text[0] == kGone ? std::make_exception_ptr(distributed::RankGone(what))
                            : std::make_exception_ptr(ValueError(what));
    return code;
  }

 private:
  using Text = std::array<char, 1024>;

  void send(char kind, std::string_view text) noexcept {
    // Never freed from here on: MPI may read it still.
    Text* const kept = text_.release();
    if (!kept) return;
    const std::size_t length = std::min(text.size(), kept->size() - 1);
    kept->front() = kind;
    std::copy_n(text.begin(), length, kept->begin() + 1);
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      MPI_Request request = MPI_REQUEST_NULL;
      const int code = MPI_Isend(kept->data(), static_cast<int>(length + 1), MPI_CHAR, peer, kTag,
                                 comm_, &request);
      if (code == MPI_SUCCESS) MPI_Request_free(&request);
    }
  }

  const MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 0;
  unsigned looks_ = 0;
  std::unique_ptr<Text> text_ = std::make_unique<Text>();  // null once it has been told
};

}  // namespace lockstep::mpi::detail
