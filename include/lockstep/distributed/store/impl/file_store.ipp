// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/store/file_store.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/distributed/store/store_file.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace lockstep::distributed {

LOCKSTEP_INLINE FileStore::FileStore(std::filesystem::path path, int num_workers,
                                     std::chrono::milliseconds timeout)
    : Store(timeout),
      file_(std::make_unique<detail::StoreFile>(std::move(path), num_workers,
                                                detail::Deadline(timeout))) {}

LOCKSTEP_INLINE FileStore::~FileStore() {
  constexpr std::chrono::milliseconds kLongestParting{1000};
  try {
    file_->leave(detail::Deadline(std::min(timeout(), kLongestParting)));
  } catch (const std::exception&) {
    // The file stays.
  }
}

LOCKSTEP_INLINE std::string FileStore::name() const { return file_->name(); }

LOCKSTEP_INLINE std::optional<detail::StoreAnswer> FileStore::answer(
    const detail::StoreCall& call, const detail::Deadline& deadline) {
  return file_->answer(call, deadline);
}

}  // namespace lockstep::distributed
