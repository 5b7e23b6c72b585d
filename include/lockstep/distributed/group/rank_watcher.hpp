// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/watchdog/watchdog_progress.hpp>
#include <lockstep/non_copyable.hpp>

#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::distributed::detail {

// What a group uses of the Watchdog, which finds ranks that have failed. Groups include this, and
// not the watchdog with its sockets.
class RankWatcher : lockstep::detail::NonCopyable {
 public:
  virtual ~RankWatcher() = default;

  virtual std::shared_ptr<Progress> watch(const std::vector<int>& ranks) = 0;

  // True once a fault has been found. As cheap as reading a variable.
  bool faulted() const noexcept {
    return faulted_ != nullptr && faulted_->load(std::memory_order_acquire);
  }

  // The error that says what has been found, or null.
  virtual std::exception_ptr exception() const = 0;
  // Throws that error, if there is one.
  void check() const {
    if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
  }

  virtual void abort(std::string reason) noexcept = 0;

 protected:
  // Names the flag that the first fault raises; it lives as long as this. Without one `faulted` is
  // false.
  void set_fault_flag(const std::atomic<bool>& faulted) { faulted_ = &faulted; }

 private:
  const std::atomic<bool>* faulted_ = nullptr;
};

}  // namespace lockstep::distributed::detail
