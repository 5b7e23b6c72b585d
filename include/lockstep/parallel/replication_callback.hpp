// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/module/walk.hpp>

#include <any>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

// What one sub-module of a module and its counterparts in all replicas have in common: where the
// replicas are, and a place for whatever the sub-module wants to share with its counterparts.
//
// Threads: filled while replicate runs, on one thread. What `shared` holds is used by all replicas
// at once during forward, and must be made for that.
struct CallbackContext {
  std::vector<Device> devices;
  std::any shared = {};
};

// M wants to know when it has become part of a replica: it has a member function
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

// Tells the sub-modules of all replicas that they are such.
//
// **Torch counterpart.** execute_replication_callbacks of PyTorch-Encoding.
template <class M>
void execute_replication_callbacks(std::vector<M>& replicas, const std::vector<Device>& devices) {
  std::vector<std::shared_ptr<CallbackContext>> contexts;
  for (std::size_t copy_id = 0; copy_id < replicas.size(); ++copy_id) {
    std::size_t next = 0;
    detail::walk_module<detail::Paths::none>(replicas[copy_id], [&]<class Node>(Node& node) {
      if constexpr (HasReplicationCallback<Node>) {
        if (next == contexts.size()) {
          contexts.push_back(std::make_shared<CallbackContext>(CallbackContext{devices}));
        }
        node.data_parallel_replicate(std::as_const(contexts[next++]), copy_id);
      }
    });
  }
}

}  // namespace lockstep
