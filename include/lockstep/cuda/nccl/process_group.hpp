// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/cuda_device.hpp>
#include <lockstep/cuda/device_guard.hpp>
#include <lockstep/cuda/nccl/error.hpp>
#include <lockstep/cuda/nccl/nccl_carrier.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/distributed/communication_thread.hpp>
#include <lockstep/distributed/default_group.hpp>
#include <lockstep/distributed/environment.hpp>
#include <lockstep/distributed/group_state.hpp>
#include <lockstep/distributed/init.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/store.hpp>
#include <lockstep/distributed/tcp_store.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <nccl.h>

namespace lockstep::nccl {

namespace detail {

inline ncclUniqueId new_id(Device device) {
  ncclUniqueId id{};
  cuda::check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId", {&device, 1}, nullptr);
  return id;
}

inline void check_place(int rank, int size, Device device) {
  check<ValueError>(size >= 1 && rank >= 0 && rank < size, "nccl::process_group: rank ", rank,
                    " of ", size, " ranks");
  check<DeviceError>(device.is_cuda(), "nccl::process_group: NCCL connects GPUs, but rank ", rank,
                     " is on ", device);
  check_device(device);
}

// Blocks until all ranks have come with this id.
inline distributed::ProcessGroup connect(int rank, int size, Device device,
                                         const ncclUniqueId& id) {
  (void)cuda::CudaDevice::at(device);
  ncclComm_t comm = nullptr;
  {
    const cuda::DeviceGuard guard(device);
    cuda::check_nccl(ncclCommInitRank(&comm, size, id, rank),
                     "ncclCommInitRank, which takes one rank a GPU,", {&device, 1}, nullptr);
  }
  return distributed::ProcessGroup(std::make_shared<distributed::detail::GroupState>(
      std::make_unique<cuda::NcclCarrier>(rank, size, device, comm),
      std::make_shared<distributed::detail::CommunicationThread>(), device));
}

}  // namespace detail

// The group of `size` processes, each on a GPU of its own, connected by NCCL. All of them call it,
// and it returns when all have; how they find each other is the store's to say: a FileStore on one
// machine, a TCPStore on several.
//
// Its operations take tensors on `device`. A `Work` of them is issued by the communication thread
// as work of a stream of its own; `wait` makes the current stream wait and does not block the host
// for longer. Sums are NCCL's: of half precision too, in an order of its own, and what a NaN does
// to a minimum is its matter. Tensors on other devices are a DeviceError. Messages have NCCL's
// order: each waits for what the rank has issued before it, so that two ranks that send to each
// other must agree on who is first; their tags are not looked at.
//
// **Torch counterpart.** torch.distributed.init_process_group(backend="nccl", store, device_id).
// **Devices and streams.** As ProcessGroup. NCCL refuses two ranks on one GPU.
// **Threads and exceptions.** As ProcessGroup. An NcclError names the rank, the device and the
// operation. When NCCL tells of an error on the way the communicator is aborted: what was in flight
// has failed then, which its Work says from there on, and so does what is issued later.
inline distributed::ProcessGroup process_group(int rank, int size, Device device,
                                               distributed::Store& store) {
  detail::check_place(rank, size, device);
  // The ranks make their groups in one order, so each may count for itself.
  const std::int64_t number = store.add(lockstep::detail::str("nccl/groups/", rank), 1);
  const std::string key = lockstep::detail::str("nccl/id/", number);
  ncclUniqueId id{};
  if (rank == 0) {
    id = detail::new_id(device);
    store.set(key, std::string(id.internal, sizeof(id.internal)));
  } else {
    const std::string bytes = store.get(key);
    check<ValueError>(bytes.size() == sizeof(id.internal), store.name(), ": '", key, "' has ",
                      bytes.size(), " bytes, expected the ", sizeof(id.internal),
                      " of an id of NCCL");
    std::memcpy(id.internal, bytes.data(), bytes.size());
  }
  return detail::connect(rank, size, device, id);
}

// The same ranks as in `group`, such as one of MPI, which carries the id.
inline distributed::ProcessGroup process_group(const distributed::ProcessGroup& group,
                                               Device device) {
  detail::check_place(group.rank(), group.size(), device);
  ncclUniqueId id{};
  constexpr std::int64_t kBytes = sizeof(id.internal);
  const Tensor bytes = zeros({kBytes}, {.dtype = Dtype::u8});
  if (group.rank() == 0) {
    id = detail::new_id(device);
    std::memcpy(bytes.mutable_data_ptr<std::uint8_t>(), id.internal, sizeof(id.internal));
  }
  group.blocking().broadcast(bytes, 0);
  std::memcpy(id.internal, bytes.const_data_ptr<std::uint8_t>(), sizeof(id.internal));
  return detail::connect(group.rank(), group.size(), device, id);
}

// Makes the group of all processes that were launched together, connected by NCCL, the default one
// and returns it. Each process is on the GPU of its number on its machine unless it says otherwise.
//
// The id travels by the TCP port that MASTER_ADDR and MASTER_PORT name, as torchrun sets them;
// without these by MPI, where lockstep/mpi.hpp is in the program.
//
// **Torch counterpart.** torch.distributed.init_process_group(backend="nccl").
// **Threads and exceptions.** As distributed::init_process_group and process_group.
inline distributed::ProcessGroup init_process_group(std::optional<Device> device = {}) {
  check<Error>(!distributed::is_initialized(),
               "nccl::init_process_group: the default process group has been initialized already");
  const distributed::LaunchEnvironment environment = distributed::launch_environment();
  const Device mine = device.value_or(Device(DeviceType::cuda, environment.local_rank));
  distributed::ProcessGroup group;
  detail::check_place(environment.rank, environment.world_size, mine);
  if (environment.world_size == 1) {
    group = detail::connect(0, 1, mine, detail::new_id(mine));
  } else if (!environment.master_addr.empty()) {
    distributed::TCPStoreOptions options;
    if (environment.master_port != 0) {
      options.port = static_cast<std::uint16_t>(environment.master_port);
    }
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
  auto& process = distributed::detail::GroupOfProcess::instance();
  const std::lock_guard lock(process.mutex);
  process.group = group;
  return group;
}

}  // namespace lockstep::nccl
