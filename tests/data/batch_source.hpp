// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

namespace lockstep::testing {

// A loader of `count` batches, each made by a function when the one before is given up.
//
// Threads: one pass at a time; any thread may ask how many have been begun and are loaded.
template <class Batch>
class BatchSource {
 public:
  using Make = std::function<Batch(std::int64_t)>;

  BatchSource(std::int64_t count, Make make)
      : count_(count), make_(std::move(make)), loads_(std::make_shared<Loads>()) {}

  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;

    explicit Iterator(const BatchSource& source) : source_(&source) { load(); }

    const Batch& operator*() const { return *batch_; }
    Iterator& operator++() {
      load();
      return *this;
    }
    void operator++(int) { load(); }
    friend bool operator==(const Iterator& iterator, std::default_sentinel_t) {
      return !iterator.batch_;
    }

   private:
    void load() {
      batch_.reset();
      if (next_ == source_->count_) return;
      source_->loads_->begun.fetch_add(1);
      batch_.emplace(source_->make_(next_++));
      source_->loads_->ended.fetch_add(1);
      source_->loads_->ended.notify_all();
    }

    const BatchSource* source_;
    std::int64_t next_ = 0;
    std::optional<Batch> batch_;
  };

  Iterator begin() const { return Iterator(*this); }
  std::default_sentinel_t end() const { return {}; }

  // In all passes.
  std::int64_t begun() const { return loads_->begun.load(); }
  std::int64_t loaded() const { return loads_->ended.load(); }

  // Returns once so many are loaded.
  void wait_for_loaded(std::int64_t number) const {
    for (std::int64_t now = loaded(); now < number; now = loaded()) loads_->ended.wait(now);
  }

 private:
  struct Loads {
    std::atomic<std::int64_t> begun{0};
    std::atomic<std::int64_t> ended{0};
  };

  std::int64_t count_;
  Make make_;
  std::shared_ptr<Loads> loads_;
};

}  // namespace lockstep::testing
