// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include <sys/mman.h>

namespace compare {

// Memory straight from the system, to which it goes back: in huge pages, from 2 MiB on. (lockstep's
// smaller blocks share huge pages.)
class FreshBlock {
 public:
  explicit FreshBlock(std::size_t bytes) : mapped_(bytes + (bytes >= kHuge ? kHuge : 0)) {
    start_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start_ == MAP_FAILED) throw std::bad_alloc();
    data_ = start_;
    if (bytes < kHuge) return;
    const auto address = reinterpret_cast<std::uintptr_t>(start_);
    data_ = static_cast<std::byte*>(start_) + (kHuge - address % kHuge) % kHuge;
    (void)madvise(data_, bytes, MADV_HUGEPAGE);
  }
  FreshBlock(const FreshBlock&) = delete;
  FreshBlock& operator=(const FreshBlock&) = delete;
  ~FreshBlock() { munmap(start_, mapped_); }

  void* data() const { return data_; }

 private:
  static constexpr std::size_t kHuge = std::size_t{2} << 20;

  std::size_t mapped_;
  void* start_;
  void* data_;
};

}  // namespace compare
