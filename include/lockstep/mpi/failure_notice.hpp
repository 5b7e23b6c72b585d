// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/kept_memory.hpp>
#include <lockstep/error.hpp>
#include <lockstep/mpi/api.hpp>
#include <lockstep/mpi/check.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <string>

namespace lockstep::mpi::detail {

// What a rank tells the others of a communicator when it has found that their collectives do not
// match: it comes to none any more, and they may wait for it, or not have found anything.
//
// Threads: the communication thread alone, or whoever runs in its place.
class FailureNotice {
 public:
  // Of its messages. All others in the communicator have tags from 1 on.
  static constexpr int kTag = 0;

  explicit FailureNotice(MPI_Comm comm) : comm_(comm) {
    check_mpi(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
  }

  int rank() const { return rank_; }

  // Returns at once: MPI keeps, or takes later, what is so short.
  void tell(const std::string& text) noexcept {
    try {
      const auto kept = std::make_shared<std::string>(text);
      distributed::detail::keep_for_ever(kept);
      for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        MPI_Request request = MPI_REQUEST_NULL;
        const int code = MPI_Isend(kept->data(), static_cast<int>(kept->size()), MPI_CHAR, peer,
                                   kTag, comm_, &request);
        if (code == MPI_SUCCESS) MPI_Request_free(&request);
      }
    } catch (const std::exception&) {
      // Out of memory, or of MPI: the others find that nothing comes.
    }
  }

  // Sets `told` to a ValueError if another rank has told something. Returns MPI's code: an error is
  // the caller's to handle, who has messages under way. Asks MPI once in a while only, since it is
  // called in every round of a wait.
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
    if (code == MPI_SUCCESS) told = std::make_exception_ptr(ValueError(text));
    return code;
  }

 private:
  const MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 0;
  unsigned looks_ = 0;
};

}  // namespace lockstep::mpi::detail
