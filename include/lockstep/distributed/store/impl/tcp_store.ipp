// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/distributed/store/tcp_store.hpp>
#include <lockstep/distributed/store/tcp_store_client.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace lockstep::distributed {

LOCKSTEP_INLINE TCPStore::TCPStore(std::string host, const TCPStoreOptions& options)
    : Store(options.timeout),
      client_(std::make_unique<detail::TCPStoreClient>(
          std::move(host), options.port, options.is_server, detail::Deadline(options.timeout))) {}

LOCKSTEP_INLINE TCPStore::~TCPStore() = default;

LOCKSTEP_INLINE const std::string& TCPStore::host() const { return client_->host(); }

LOCKSTEP_INLINE std::uint16_t TCPStore::port() const { return client_->port(); }

LOCKSTEP_INLINE std::string TCPStore::name() const { return client_->name(); }

LOCKSTEP_INLINE std::optional<detail::StoreAnswer> TCPStore::answer(
    const detail::StoreCall& call, const detail::Deadline& deadline) {
  return client_->answer(call, deadline);
}

}  // namespace lockstep::distributed
