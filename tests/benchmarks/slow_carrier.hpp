// SPDX-License-Identifier: Apache-2.0
//
// A network of a known delay, in place of one that there is not.
#pragma once

#include <lockstep/distributed/group/carrier.hpp>
#include <lockstep/distributed/group/group_state.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/thread/thread_carrier.hpp>
#include <lockstep/distributed/thread/thread_world.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <thread>
#include <utility>

namespace network {

namespace dist = lockstep::distributed;

// What an all-reduce of so many bytes takes on a network where a message of b bytes takes
// alpha + b / beta seconds, by a ring: every rank sends 2 (n - 1) messages of bytes / n
// (P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations,
// Journal of Parallel and Distributed Computing 69, 2009; the alpha-beta model as in R. Thakur,
// R. Rabenseifner and W. Gropp, Optimization of collective communication operations in MPICH,
// International Journal of High Performance Computing Applications 19, 2005).
struct Ring {
  double alpha = 0;  // seconds
  double beta = 0;   // bytes a second; 0 for a network that takes no time
  int ranks = 1;

  double seconds(std::size_t bytes) const {
    if (beta == 0) return 0;
    const double steps = 2.0 * (ranks - 1);
    return steps * (alpha + static_cast<double>(bytes) / ranks / beta);
  }
};

// Carries what another carrier does and then keeps the collective waiting for as long as the
// network takes, asleep: all ranks are released that much after the last of them has come.
class SlowCarrier final : public dist::detail::Carrier {
 public:
  SlowCarrier(std::unique_ptr<Carrier> carrier, const Ring& ring)
      : Carrier(carrier->rank(), carrier->size()), carrier_(std::move(carrier)), ring_(ring) {}

  void run(const dist::detail::Call& call, std::span<const void* const> inputs,
           std::span<void* const> outputs, const lockstep::Stream* stream,
           const dist::detail::Done& failed) override {
    carrier_->run(call, inputs, outputs, stream, failed);
    const std::chrono::duration<double> delay(ring_.seconds(call.bytes()));
    if (call.collective == dist::detail::Collective::all_reduce && delay.count() > 0) {
      std::this_thread::sleep_for(delay);
    }
  }
  void leave(const std::exception_ptr& error) noexcept override { carrier_->leave(error); }
  void break_off(const std::exception_ptr& error) noexcept override { carrier_->break_off(error); }
  void start(const dist::detail::Message& message, void* data, dist::detail::Done done,
             const lockstep::Stream* stream) override {
    carrier_->start(message, data, std::move(done), stream);
  }
  bool progress() override { return carrier_->progress(); }
  std::unique_ptr<Carrier> split(std::span<const int> members) override {
    std::unique_ptr<Carrier> part = carrier_->split(members);
    return part ? std::make_unique<SlowCarrier>(std::move(part), ring_) : nullptr;
  }

 private:
  const std::unique_ptr<Carrier> carrier_;
  const Ring ring_;
};

// The group of threads that `group` is, on another network. All ranks give the same `world`, one of
// their own for each network.
inline dist::ProcessGroup on_network(const dist::ProcessGroup& group,
                                     std::shared_ptr<dist::detail::ThreadWorld> world,
                                     const Ring& ring) {
  auto threads =
      std::make_unique<dist::detail::ThreadCarrier>(group.rank(), group.size(), std::move(world));
  std::shared_ptr<dist::detail::GroupState> state;
  group.impl()->thread()->between_operations([&] {
    state = std::make_shared<dist::detail::GroupState>(
        std::make_unique<SlowCarrier>(std::move(threads), ring), group.impl()->thread(),
        group.device());
  });
  return dist::ProcessGroup(std::move(state));
}

}  // namespace network
