// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/socket/network_error.hpp>
#include <lockstep/distributed/store/store.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace lockstep::distributed {

namespace detail {
class TCPStoreClient;
}  // namespace detail

struct TCPStoreOptions {
  // The server's port, torchrun's MASTER_PORT. On the server, 0 lets the system choose one.
  std::uint16_t port = 29500;
  // True in the one process that keeps the values; it is on the host that all name.
  bool is_server = false;
  // The time limit for connecting, and for each call.
  std::chrono::milliseconds timeout = Store::kDefaultTimeout;
};

// A store for processes on any machines. One of them keeps the values, in its own thread; the
// others ask it over TCP.
//
// A client may start before the server. The server's process must outlive the others' use of the
// store: their calls fail after it. Anyone who can reach the port can read and write, so use it
// only in a network that you trust.
//
// **Torch counterpart.** torch.distributed.TCPStore.
// **Threads and exceptions.** As Store; each call that waits has its own connection. A server that
// cannot be reached is a NetworkError. It gets at least five seconds to answer, even if the call's
// time limit, which is for the keys, is shorter. A ValueError also if the keys of one call are
// together longer than a key and a value may be.
// **Example.**
//
//     TCPStore store(master_addr, {.port = 29500, .is_server = rank == 0});
//     if (rank == 0) store.set("seed", "42");
//     const std::string seed = store.get("seed");
class TCPStore final : public Store {
 public:
  explicit TCPStore(std::string host, const TCPStoreOptions& options = {});
  LOCKSTEP_INLINE ~TCPStore() override;

  const std::string& host() const;
  std::uint16_t port() const;

  LOCKSTEP_INLINE std::string name() const override;

 private:
  LOCKSTEP_INLINE std::optional<detail::StoreAnswer> answer(
      const detail::StoreCall& call, const detail::Deadline& deadline) override;

  const std::unique_ptr<detail::TCPStoreClient> client_;
};

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/store/impl/tcp_store.ipp>
#endif
