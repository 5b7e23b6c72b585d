// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/lost_results.hpp>
#include <lockstep/cuda/nccl/error.hpp>
#include <lockstep/cuda/nccl/nccl_carrier.hpp>
#include <lockstep/cuda/nccl/non_blocking.hpp>
#include <lockstep/cuda/nccl/rank_arrivals.hpp>
#include <lockstep/cuda/runtime/cuda_device.hpp>
#include <lockstep/cuda/runtime/device_guard.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/distributed/default_group.hpp>
#include <lockstep/distributed/environment.hpp>
#include <lockstep/distributed/group/communication_thread.hpp>
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/group/group_state.hpp>
#include <lockstep/distributed/group/group_watch.hpp>
#include <lockstep/distributed/init.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/store/hash_store.hpp>
#include <lockstep/distributed/store/prefix_store.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/distributed/store/tcp_store.hpp>
#include <lockstep/distributed/watchdog/watchdog.hpp>
#include <lockstep/distributed/watchdog/watchdog_options.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nccl.h>

namespace lockstep::nccl {

namespace detail {

inline ncclUniqueId new_id(Device device) {
  ncclUniqueId id{};
  cuda::check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId", {&device, 1}, nullptr);
  return id;
}

inline void check_rank_and_device(int rank, int size, Device device) {
  check<ValueError>(size >= 1 && rank >= 0 && rank < size, "nccl::process_group: rank ", rank,
                    " of ", size, " ranks");
  check<DeviceError>(device.is_cuda(), "nccl::process_group: NCCL connects GPUs, but rank ", rank,
                     " is on ", device);
  check_device(device);
}

// How long an operation may take. With a watchdog it is longer, so that the watchdog, which can
// name the rank at fault, reports first.
inline std::chrono::milliseconds time_limit(const distributed::detail::GroupWatch& watch) {
  const auto options = distributed::WatchdogOptions::from_environment();
  if (watch.progress() == nullptr) return options.collective_timeout;
  return options.collective_timeout + options.heartbeat_timeout;
}

// Connects the ranks that call this with the same id. Throws an NcclError once `deadline` has
// passed; its text ends with what `missing()` says of the others then. A rank that fails tells the
// others through the watchdog, if there is one.
template <class Missing>
distributed::ProcessGroup connect(int rank, int size, Device device, const ncclUniqueId& id,
                                  const distributed::detail::GroupWatch& watch,
                                  const distributed::detail::Deadline& deadline,
                                  const Missing& missing) {
  using distributed::detail::CommunicationThread;
  try {
    const std::chrono::milliseconds limit = time_limit(watch);
    (void)cuda::CudaDevice::at(device);
    cuda::OwnedCommunicator comm = cuda::connect_rank(rank, size, id, device, [&] {
      watch.check();
      if (!deadline.passed()) return;
      throw NcclError(
          lockstep::detail::str("nccl::process_group: rank ", rank, " of ", size, ", on ", device,
                                ", has waited for the others to connect for ",
                                distributed::detail::Seconds{deadline.timeout()}, missing()),
          ncclRemoteError);
    });
    return distributed::ProcessGroup(std::make_shared<distributed::detail::GroupState>(
        std::make_unique<cuda::NcclCarrier>(rank, size, device, std::move(comm), watch, limit),
        std::make_shared<CommunicationThread>("communication", CommunicationThread::Waits::polling),
        device));
  } catch (const std::exception& error) {
    watch.abort(error.what());
    throw;
  }
}

// Starts a watchdog between the processes that share a store, with the options of rank 0's
// environment. All of them call it, with a store for this alone. With one rank, or if
// LOCKSTEP_WATCHDOG is 0 on rank 0, there is none.
inline distributed::detail::GroupWatch watch_over(int rank, int size, distributed::Store& store) {
  if (size == 1) return {};
  const bool wanted =
      rank == 0 ? distributed::detail::watchdog_enabled() : store.get("wanted") == "1";
  distributed::WatchdogOptions options;
  if (rank == 0) {
    if (wanted) options = distributed::WatchdogOptions::from_environment();
    store.set("wanted", wanted ? "1" : "0");
  }
  if (!wanted) return {};
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return distributed::detail::GroupWatch(
      std::make_shared<distributed::Watchdog>(rank, size, store, options), std::move(ranks));
}

// The id of the ranks that share a store: rank 0 makes it and sets it in the store, from which the
// others take it.
inline ncclUniqueId share_id(int rank, Device device, distributed::Store& store) {
  ncclUniqueId id{};
  if (rank == 0) {
    id = new_id(device);
    store.set("id", std::string(id.internal, sizeof(id.internal)));
    return id;
  }
  const std::string bytes = store.get("id");
  check<ValueError>(bytes.size() == sizeof(id.internal), store.name(), ": 'id' has ", bytes.size(),
                    " bytes, expected the ", sizeof(id.internal), " of an id of NCCL");
  std::memcpy(id.internal, bytes.data(), bytes.size());
  return id;
}

// What the ranks that share a store have in common before NCCL connects them.
struct Meeting {
  distributed::detail::GroupWatch watch;
  ncclUniqueId id;
};

// Returns when all ranks have their watchdogs and the id. A rank that fails from here on tells the
// others by its watchdog, which those that came later would not find any more.
inline Meeting meet(distributed::Store& store, int rank, int size, Device device) {
  const distributed::detail::Deadline arriving(store.timeout());
  RankArrivals here(rank, size, store, "here");
  Meeting meeting{};
  try {
    here.arrive();
    meeting.watch = watch_over(rank, size, store);
    meeting.id = share_id(rank, device, store);
    RankArrivals ready(rank, size, store, "ready");
    ready.arrive();
    ready.wait_for_all(arriving, meeting.watch);
  } catch (const distributed::StoreError& error) {
    meeting.watch.check();  // a rank that has failed may have taken the store with it
    const std::string missing = here.missing();
    if (missing.empty()) throw;
    throw distributed::StoreError(lockstep::detail::str(error.what(), "; not there: ", missing));
  }
  return meeting;
}

// Connects the ranks that share a store.
inline distributed::ProcessGroup connect_by(distributed::Store& store, int rank, int size,
                                            Device device) {
  const Meeting meeting = meet(store, rank, size, device);
  // Counted from when the last rank has come, so that all ranks' time is up at about the same
  // moment.
  const distributed::detail::Deadline connecting(store.timeout());
  return connect(rank, size, device, meeting.id, meeting.watch, connecting, [&] {
    const std::string silent = RankArrivals(rank, size, store, "late").missing_after_grace();
    return silent.empty() ? std::string(": they are there, and cannot reach each other")
                          : "; not there any more: " + silent;
  });
}

// The port of the processes' own store: MASTER_PORT, but the port beside it where torchrun says
// that it has a store of its own there, which lives as long as the processes do.
inline std::uint16_t store_port(const distributed::LaunchEnvironment& environment) {
  if (environment.master_port == 0) return distributed::TCPStoreOptions().port;
  const auto port = static_cast<std::uint16_t>(environment.master_port);
  const char* const taken = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  if (!taken || std::string_view(taken) != "True") return port;
  const bool last = port == std::numeric_limits<std::uint16_t>::max();
  return static_cast<std::uint16_t>(last ? port - 1 : port + 1);
}

}  // namespace detail

// Makes the group of `size` processes, each on a GPU of its own, connected by NCCL. All of them
// call it, and it returns when all have. They find each other through the store: a FileStore on one
// machine, a TCPStore on several.
//
// Its operations take tensors on `device`; tensors on other devices are a DeviceError. The
// communication thread issues each operation to a stream of the group's own; `Work::wait` makes the
// current stream wait, and blocks the host only until the operation has been issued. The first
// operation between two ranks is issued when both have come to it. Sums are NCCL's, also those of
// half precision: it adds in an order of its own, and decides what a NaN does to a minimum.
// Messages have NCCL's order: each waits for what the rank has issued before it, so that two ranks
// that send to each other must agree on who is first; their tags are not looked at.
//
// **Torch counterpart.** torch.distributed.init_process_group(backend="nccl", store, device_id).
// **Devices and streams.** As ProcessGroup. NCCL refuses two ranks on one GPU.
// **Threads and exceptions.** As ProcessGroup. Ranks that do not come within the store's time limit
// are a StoreError that names them; those that have come have that time again to connect, else they
// are an NcclError, which says who has ended meanwhile.
// The host never waits within NCCL itself. A Watchdog between the processes, unless
// LOCKSTEP_WATCHDOG is 0 on rank 0, finds a rank that dies, leaves or does not come to a
// collective: a WatchdogError, which names it. An operation that takes longer than
// LOCKSTEP_COLLECTIVE_TIMEOUT (300 seconds; with a watchdog, LOCKSTEP_HEARTBEAT_TIMEOUT more) is an
// NcclError; the time counts from its issue or the end of the group's operation before it, so that
// what it waits for on its GPU counts, too. An NcclError names the rank, the device and the
// operation. After any of these, or when the rank leaves the group, the communicator is aborted:
// what was in flight has failed then, which a collective's Work says from there on (a message's has
// ended when it is issued), and so does what is issued later. Streams that had waited for one of
// these results go on without it; then the host's next wait for that GPU throws (see
// `forget_lost_results`). A watchdog knows ranks and not groups, so all groups that share one end
// together; without one, so do a rank's groups that came of one by new_group and have something in
// flight. The last handle's end waits for what is in flight, for no longer than these limits.
inline distributed::ProcessGroup process_group(int rank, int size, Device device,
                                               distributed::Store& store) {
  detail::check_rank_and_device(rank, size, device);
  // All ranks make their groups in the same order, so each can number them by itself.
  const std::int64_t number = store.add(lockstep::detail::str("nccl/groups/", rank), 1);
  const std::shared_ptr<distributed::Store> not_owned(std::shared_ptr<void>(), &store);
  distributed::PrefixStore own(lockstep::detail::str("nccl/", number), not_owned);
  return detail::connect_by(own, rank, size, device);
}

// The same for the ranks of `group`, such as one of MPI, which carries NCCL's id: all of them call
// it. The watchdog is that of `group`. Without one only the time limit,
// LOCKSTEP_COLLECTIVE_TIMEOUT, ends what waits for a rank that is gone, connecting included.
inline distributed::ProcessGroup process_group(const distributed::ProcessGroup& group,
                                               Device device) {
  detail::check_rank_and_device(group.rank(), group.size(), device);
  ncclUniqueId id{};
  constexpr std::int64_t kBytes = sizeof(id.internal);
  const Tensor bytes = zeros({kBytes}, {.dtype = Dtype::u8});
  if (group.rank() == 0) {
    id = detail::new_id(device);
    std::memcpy(bytes.mutable_data_ptr<std::uint8_t>(), id.internal, sizeof(id.internal));
  }
  (void)group.blocking().broadcast(bytes, 0);
  std::memcpy(id.internal, bytes.const_data_ptr<std::uint8_t>(), sizeof(id.internal));
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto watch = group.impl()->watch().part(ranks);
  (void)group.blocking().barrier();
  const distributed::detail::Deadline deadline(detail::time_limit(watch));
  return detail::connect(group.rank(), group.size(), device, id, watch, deadline,
                         [] { return " (LOCKSTEP_COLLECTIVE_TIMEOUT)"; });
}

// Ends the error of lost results: from here on waiting for `device` on the host does not throw
// because of results that a failed group has not given. To be called when nothing that the GPU has
// computed since is used any more, that is, when what is needed is going to be loaded or computed
// again.
//
// Streams may have waited for a collective that is aborted later. Then they go on with what is in
// its tensor's memory, and nobody knows which numbers come of that. So whatever waits for the GPU
// on the host, such as reading a tensor, throws an NcclError that says why the collective failed,
// until this is called, also for work of other groups, and after the failed group's end.
//
// **Threads and exceptions.** Any thread. A DeviceError for a device that is no GPU of this
// machine.
inline void forget_lost_results(Device device) {
  lockstep::check<DeviceError>(device.is_cuda(), "nccl::forget_lost_results: expected a GPU, got ",
                               device);
  check_device(device);
  cuda::LostResults::forget(device);
}

// Makes the group of all processes that were launched together, connected by NCCL, the default one
// and returns it. Each process is on `device`; by default that is the GPU whose index is its local
// rank.
//
// Rank 0 gives the others NCCL's id through a TCPStore at MASTER_ADDR and MASTER_PORT; without
// MASTER_ADDR through MPI, if lockstep/mpi.hpp is in the program. Where torchrun has started the
// processes, its own store is at MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE is True), and the port
// is the one after it, or before it if there is none: two jobs on one machine want MASTER_PORTs
// that are two apart.
//
// **Torch counterpart.** torch.distributed.init_process_group(backend="nccl").
// **Threads and exceptions.** As distributed::init_process_group and process_group.
inline distributed::ProcessGroup init_process_group(std::optional<Device> device = {}) {
  check<Error>(!distributed::is_initialized(),
               "nccl::init_process_group: the default process group has been initialized already");
  const distributed::LaunchEnvironment environment = distributed::launch_environment();
  const Device mine = device.value_or(Device(DeviceType::cuda, environment.local_rank));
  distributed::ProcessGroup group;
  detail::check_rank_and_device(environment.rank, environment.world_size, mine);
  if (environment.world_size == 1) {
    distributed::HashStore store;
    group = process_group(0, 1, mine, store);
  } else if (!environment.master_addr.empty()) {
    distributed::TCPStoreOptions options;
    options.port = detail::store_port(environment);
    options.is_server = environment.rank == 0;
    distributed::TCPStore store(environment.master_addr, options);
    group = process_group(environment.rank, environment.world_size, mine, store);
  } else {
    const auto mpi = distributed::detail::make_mpi_world.load(std::memory_order_acquire);
    check<Error>(mpi != nullptr, "nccl::init_process_group: this is rank ", environment.rank,
                 " of ", environment.world_size, ", says the environment (", environment.launcher,
                 "), but nothing carries NCCL's id: set MASTER_ADDR and MASTER_PORT, or include "
                 "lockstep/mpi.hpp in one file and link lockstep::mpi");
    group = process_group(mpi(environment), mine);
  }
  (void)distributed::detail::exchange_group_of_process(group);
  return group;
}

}  // namespace lockstep::nccl
