// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

namespace lockstep::data::detail {

// The iterator of one pass: the Pass's `take` returns the next batch, and nothing after the last.
template <class Batch, class Pass>
class PassIterator {
 public:
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;
  using iterator_concept = std::input_iterator_tag;

  explicit PassIterator(std::unique_ptr<Pass> pass) : pass_(std::move(pass)) { advance(); }

  const Batch& operator*() const { return *batch_; }
  const Batch* operator->() const { return &*batch_; }

  PassIterator& operator++() {
    advance();
    return *this;
  }
  void operator++(int) { advance(); }

  friend bool operator==(const PassIterator& iterator, std::default_sentinel_t) {
    return !iterator.pass_ || !iterator.batch_;  // without a pass it was moved from
  }

 private:
  // Gets the next batch if there is one, after freeing the one before. Not inlined: g++ 12 would
  // warn that the room for a batch is uninitialised.
  [[gnu::noinline]] void advance() {
    batch_.reset();
    if (!pass_) return;
    try {
      if (std::optional<Batch> batch = pass_->take()) batch_.emplace(std::move(*batch));
    } catch (...) {
      pass_.reset();
      throw;
    }
    if (!batch_) pass_.reset();
  }

  std::unique_ptr<Pass> pass_;  // null once it is over
  std::optional<Batch> batch_;
};

}  // namespace lockstep::data::detail
