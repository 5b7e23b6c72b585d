// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/data/collate.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::data {

struct DataLoaderOptions {
  std::int64_t batch_size = 1;
  bool shuffle = false;
  std::uint64_t seed = 0;  // of the shuffling
  bool drop_last = false;  // leave out the last batch if it is not full
};

namespace detail {

// The samples of these indices as one batch.
template <Dataset D>
auto load_batch(const D& dataset, std::span<const std::int64_t> indices) {
  if constexpr (BatchDataset<D>) {
    return dataset.get_batch(indices);
  } else {
    std::vector<std::remove_cvref_t<decltype(dataset.get(std::int64_t{}))>> samples;
    samples.reserve(indices.size());
    for (const std::int64_t index : indices) samples.push_back(dataset.get(index));
    return collate(std::move(samples));
  }
}

}  // namespace detail

// A dataset in batches: a range that can be gone over again and again.
//
// Each begin() starts a pass, an epoch, of its own. With `shuffle` the order of a pass depends on
// the seed and the number of the epoch alone: the same on every machine, another one in each epoch.
// Batches are collated samples, or what the dataset's get_batch returns. The dataset is taken over;
// those of this library are handles.
//
// **Torch counterpart.** torch.utils.data.DataLoader without workers.
// **Devices and streams.** Batches are where the dataset has them: read from files, on `cpu`.
// **Threads and exceptions.** Batches are loaded by the thread that advances the iterator, which
// gets the dataset's exceptions. ValueError for a batch size below 1.
// **Example.**
//   ls::data::DataLoader loader{dataset, {.batch_size = 64, .shuffle = true}};
//   for (auto [images, labels] : loader) train(images, labels);
template <Dataset D>
class DataLoader {
 public:
  using Batch = decltype(detail::load_batch(std::declval<const D&>(), {}));

  // One pass. Its loader must outlive it and stay where it is.
  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;

    const Batch& operator*() const { return *batch_; }
    const Batch* operator->() const { return &*batch_; }
    Iterator& operator++() {
      load();
      return *this;
    }
    void operator++(int) { load(); }
    friend bool operator==(const Iterator& iterator, std::default_sentinel_t) {
      return !iterator.batch_;
    }

   private:
    friend DataLoader;

    Iterator(const DataLoader& loader, std::vector<std::int64_t> order)
        : loader_(&loader), order_(std::move(order)) {
      load();
    }

    // Loads the next batch if there is one; the one before is given up first, for its memory.
    void load() {
      batch_.reset();
      const auto wanted = static_cast<std::size_t>(loader_->options_.batch_size);
      const std::size_t count = std::min(wanted, order_.size() - next_);
      if (count == 0 || (count < wanted && loader_->options_.drop_last)) return;
      const auto indices = std::span<const std::int64_t>(order_).subspan(next_, count);
      next_ += count;
      batch_.emplace(detail::load_batch(loader_->dataset_, indices));
    }

    const DataLoader* loader_;
    std::vector<std::int64_t> order_;
    std::size_t next_ = 0;  // the first of `order_` that no batch has had yet
    std::optional<Batch> batch_;
  };

  explicit DataLoader(D dataset, DataLoaderOptions options = {})
      : dataset_(std::move(dataset)), options_(options) {
    check<ValueError>(options.batch_size > 0,
                      "DataLoader: expected a batch size of at least 1, got ", options.batch_size);
  }

  // Starts the next epoch.
  Iterator begin() {
    const auto samples = static_cast<std::int64_t>(dataset_.size());
    const std::uint64_t epoch = epoch_++;
    return Iterator(*this, options_.shuffle ? RandomSampler(options_.seed).indices(samples, epoch)
                                            : SequentialSampler().indices(samples, epoch));
  }
  std::default_sentinel_t end() const { return {}; }

  // The number of batches in a pass.
  std::int64_t size() const {
    const auto samples = static_cast<std::int64_t>(dataset_.size());
    const bool part = samples % options_.batch_size != 0 && !options_.drop_last;
    return samples / options_.batch_size + (part ? 1 : 0);
  }

  // The epoch that the next begin() starts, from 0; to set it is to go on where training stopped.
  std::uint64_t epoch() const { return epoch_; }
  void set_epoch(std::uint64_t epoch) { epoch_ = epoch; }

  const D& dataset() const { return dataset_; }
  const DataLoaderOptions& options() const { return options_; }

 private:
  D dataset_;
  DataLoaderOptions options_;
  std::uint64_t epoch_ = 0;
};

}  // namespace lockstep::data
