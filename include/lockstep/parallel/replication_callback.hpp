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

// Given to a sub-module and its counterparts in all replicas alike: where the replicas are, and
// room for whatever these sub-modules want to share.
//
// Threads: filled while replicate runs, on one thread. What `shared` holds is used by all replicas
// at once during forward, and must be made for that.
struct CallbackContext {
  std::vector<Device> devices;
  std::any shared = {};
};

// M is told when it has become part of a replica: it has a member function
//
//   void data_parallel_replicate(const std::shared_ptr<ls::CallbackContext>& context,
//                                std::size_t copy_id);
//
// which replicate calls once the replica's parameters are in place: for replica 0 on each of its
// sub-modules, the outer before the inner, then for replica 1, and so on.
//
// **Torch counterpart.** `__data_parallel_replicate__` of PyTorch-Encoding.
template <class M>
concept HasReplicationCallback = requires(M& replica,
                                          const std::shared_ptr<CallbackContext>& context) {
  replica.data_parallel_replicate(context, std::size_t{0});
};

namespace detail {

// The call of one sub-module's data_parallel_replicate, in one replica.
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

// Makes the calls, which are listed by replica. The n-th calls of all replicas share a context.
void execute(const std::vector<ReplicationCallback>& callbacks, const std::vector<Device>& devices);

}  // namespace detail

// Calls the data_parallel_replicate of every sub-module that has one, in all replicas. replicate
// does this itself; it is for replicas that come from elsewhere.
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
