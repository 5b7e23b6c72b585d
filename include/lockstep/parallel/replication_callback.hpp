// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/walk/path.hpp>
#include <lockstep/module/walk/walk.hpp>

#include <any>
#include <cstddef>
#include <memory>
#include <vector>

namespace lockstep {

// What a sub-module and its counterparts in all replicas are given: the replicas' devices, and room
// for whatever they want to share.
//
// Threads: one thread fills it while replicate runs. All replicas use `shared` at once during
// forward, so it must allow that.
struct CallbackContext {
  std::vector<Device> devices;
  std::any shared = {};
};

// M has a member function that is called when M has become part of a replica:
//
//   void data_parallel_replicate(const std::shared_ptr<ls::CallbackContext>& context,
//                                std::size_t copy_id);
//
// replicate calls it once the replicas' parameters are in place: for replica 0 on each of its
// sub-modules, outer before inner, then for replica 1, and so on.
//
// **Torch counterpart.** `__data_parallel_replicate__` of PyTorch-Encoding.
template <class M>
concept HasReplicationCallback = requires(M& replica,
                                          const std::shared_ptr<CallbackContext>& context) {
  replica.data_parallel_replicate(context, std::size_t{0});
};

namespace detail {

// One sub-module's data_parallel_replicate, in one replica.
struct ReplicationCallback {
  template <class M>
  ReplicationCallback(M& replica, std::size_t id)
      : module(std::addressof(replica)),
        call([](void* m, const std::shared_ptr<CallbackContext>& context, std::size_t copy) {
          static_cast<M*>(m)->data_parallel_replicate(context, copy);
        }),
        copy_id(id) {}

  void* module;
  void (*call)(void* module, const std::shared_ptr<CallbackContext>& context, std::size_t copy_id);
  std::size_t copy_id;
};

// Makes the calls, which are listed replica by replica. The n-th calls of all replicas share a
// context.
void execute(const std::vector<ReplicationCallback>& callbacks, const std::vector<Device>& devices);

}  // namespace detail

// Calls the data_parallel_replicate of every sub-module that has one, in all replicas. replicate
// does this itself; call it for replicas made elsewhere.
//
// **Torch counterpart.** execute_replication_callbacks of PyTorch-Encoding.
// **Threads and exceptions.** A ValueError for fewer devices than replicas.
template <class M>
void execute_replication_callbacks(std::vector<M>& replicas, const std::vector<Device>& devices) {
  check<ValueError>(replicas.size() <= devices.size(),
                    "execute_replication_callbacks: ", devices.size(), " devices were given for ",
                    replicas.size(), " replicas");
  std::vector<detail::ReplicationCallback> callbacks;
  for (std::size_t copy_id = 0; copy_id < replicas.size(); ++copy_id) {
    const auto collect = [&]<class Node>(const detail::nested::Path& /*path*/, Node& node) {
      if constexpr (HasReplicationCallback<Node>) callbacks.emplace_back(node, copy_id);
    };
    detail::walk_module(replicas[copy_id], collect);
  }
  detail::execute(callbacks, devices);
}

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/impl/replication_callback.ipp>
#endif
