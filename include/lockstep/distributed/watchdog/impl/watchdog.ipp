// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/group/fault.hpp>
#include <lockstep/distributed/group/group_checks.hpp>
#include <lockstep/distributed/socket/socket.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/distributed/watchdog/watchdog.hpp>
#include <lockstep/distributed/watchdog/watchdog_client.hpp>
#include <lockstep/distributed/watchdog/watchdog_options.hpp>
#include <lockstep/distributed/watchdog/watchdog_progress.hpp>
#include <lockstep/distributed/watchdog/watchdog_server.hpp>
#include <lockstep/error.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <locale>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::distributed {

LOCKSTEP_INLINE Watchdog::Watchdog(int rank, int size, Store& store, const WatchdogOptions& options,
                                   std::function<void()> on_fault)
    : rank_(rank), size_(size), options_(options), exceptions_(std::uncaught_exceptions()) {
  lockstep::check<ValueError>(size > 0 && rank >= 0 && rank < size, "Watchdog: rank ", rank, " of ",
                              size);
  options_.check();
  if (size == 1) return;
  const detail::Deadline deadline(store.timeout());
  detail::WatchdogAddress address;
  if (rank == 0) {
    std::random_device random;
    address.token = (std::uint64_t{random()} << 32) | random();
    server_ =
        std::make_unique<detail::WatchdogServer>(size, address.token, store.timeout(), options_);
    address.port = server_->port();
    store.set("watchdog", lockstep::detail::str(address.port, ' ', address.token, ' ',
                                                host_name(options_), ' ', options_.interval.count(),
                                                ' ', options_.heartbeat_timeout.count(), ' ',
                                                options_.collective_timeout.count()));
    // Rank 0 itself uses this, whatever the others call the host. Not the name localhost, which
    // some containers do not know.
    address.host = "127.0.0.1";
  } else {
    std::istringstream text(store.get("watchdog"));
    text.imbue(std::locale::classic());  // others may read blanks as part of a number
    std::array<std::int64_t, 3> times{};
    text >> address.port >> address.token >> address.host >> times[0] >> times[1] >> times[2];
    lockstep::check<StoreError>(!text.fail(), store.name(),
                                ": the value of key 'watchdog' is not a watchdog's address");
    using std::chrono::milliseconds;
    options_ = {milliseconds(times[0]), milliseconds(times[1]), milliseconds(times[2])};
    try {
      options_.check();
    } catch (const ValueError& error) {
      lockstep::detail::fail<StoreError>(store.name(),
                                         ": the value of key 'watchdog': ", error.what());
    }
  }
  client_ = std::make_unique<detail::WatchdogClient>(rank, size, address, deadline, options_,
                                                     std::move(on_fault), faulted_);
  client_->start();
}

LOCKSTEP_INLINE Watchdog::~Watchdog() {
  if (std::uncaught_exceptions() > exceptions_) abort(std::move(unwinding_reason_));
}

LOCKSTEP_INLINE std::shared_ptr<Progress> Watchdog::watch(const std::vector<int>& ranks) {
  detail::check_members("Watchdog.watch", ranks, size_);
  lockstep::check<ValueError>(std::count(ranks.begin(), ranks.end(), rank_) == 1,
                              "Watchdog.watch: rank ", rank_, " is not in the group");
  return client_ ? client_->watch(ranks) : nullptr;
}

LOCKSTEP_INLINE std::size_t Watchdog::groups() const { return client_ ? client_->groups() : 0; }

LOCKSTEP_INLINE std::vector<Fault> Watchdog::faults() const {
  return client_ ? client_->faults() : std::vector<Fault>();
}

LOCKSTEP_INLINE std::exception_ptr Watchdog::exception() const {
  if (!faulted()) return nullptr;
  std::vector<Fault> faults = client_->faults();
  std::string text = faults.front().text;
  if (const std::string where = client_->where(); !where.empty()) {
    text += lockstep::detail::str("; this rank, ", rank_, ", is in ", where);
  }
  for (std::size_t i = 1; i < faults.size(); ++i) text += "\nAlso: " + faults[i].text;
  return std::make_exception_ptr(WatchdogError(text, std::move(faults)));
}

LOCKSTEP_INLINE void Watchdog::finish() {
  if (client_) client_->finish();
}

LOCKSTEP_INLINE void Watchdog::leave() {
  if (client_) client_->leave();
  server_.reset();
}

LOCKSTEP_INLINE void Watchdog::abort(std::string reason) noexcept {
  if (!client_) return;
  // If there is no memory for it, the others find that the process has ended.
  (void)lockstep::detail::thrown_by([&] { client_->abort(std::move(reason)); });
}

LOCKSTEP_INLINE std::string Watchdog::host_name(const WatchdogOptions& options) {
  if (!options.host.empty()) return options.host;
  if (const char* const master = std::getenv("MASTER_ADDR"); master && *master) {
    detail::check_host("MASTER_ADDR", master);
    return master;
  }
  std::array<char, 256> own{};
  std::string ignored;
  const bool known = ::gethostname(own.data(), own.size() - 1) == 0 && own[0] != '\0' &&
                     detail::resolve(own.data(), 0, ignored) != nullptr;
  return known ? own.data() : "127.0.0.1";
}

}  // namespace lockstep::distributed
