// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/data/dataset.hpp>
#include <lockstep/data/loading/any_sampler.hpp>
#include <lockstep/data/loading/batch_workers.hpp>
#include <lockstep/data/loading/load_batch.hpp>
#include <lockstep/data/loading/pass_iterator.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/error.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/pin_memory.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::data {

struct DataLoaderOptions {
  std::int64_t batch_size = 1;
  bool shuffle = false;
  std::uint64_t seed = 0;            // for shuffling and for random samples
  bool drop_last = false;            // skip the last batch if it is not full
  std::int64_t num_workers = 0;      // threads that load; 0: the caller loads
  std::int64_t prefetch_factor = 2;  // batches to load ahead, for each worker
  bool pin_memory = false;           // batches on `cpu` are in page-locked memory
};

// Loads a dataset in batches: a range over which a program can loop any number of times.
//
// Each begin() starts a new pass, an epoch. Its samples and their order depend only on the sampler
// and the epoch's number, and with `shuffle`, which gives each epoch another order, on the seed:
// they are the same on every machine and with any number of workers. The same holds for what is
// random about samples (RandomSampleDataset); a sample that occurs twice in a pass is drawn anew
// each time.
//
// A batch is the collated samples, or the result of the dataset's get_batch, or of a `collate_fn`
// that takes a std::vector of the samples. The loader owns its dataset; lockstep's datasets are
// handles.
//
// Workers are threads that live as long as the pass and load batches ahead of the loop: at most
// num_workers × prefetch_factor beyond the current one, for which memory is reserved with the first
// batch.
//
// **Torch counterpart.** torch.utils.data.DataLoader; workers are threads, and the next free one
// takes the next batch.
// **Devices and streams.** Batches are on the dataset's device; those read from files on `cpu`.
// Workers use the streams that are current where the pass begins.
// **Backward.** Not recorded, whatever the thread's grad mode.
// **Threads and exceptions.** A pass belongs to one thread. Its workers, or else that thread, call
// the dataset, its transforms and collate_fn; workers do so concurrently. Their exceptions are
// thrown by the begin() or ++ that would have given the batch, and end the pass. An exception of a
// type in lockstep/error.hpp or <stdexcept> also names the sample, or the batch's samples.
// Destroying an iterator waits for the batches that workers are loading. An Error if a worker
// cannot be started, a ValueError for options outside their range and for a sampler together with
// shuffle, an IndexError for a sample from the sampler that the dataset does not have.
// **Example.**
//   ls::data::DataLoader loader{dataset, {.batch_size = 64, .shuffle = true, .num_workers = 4}};
//   for (auto [images, labels] : loader) train(images, labels);
template <class D, class CollateFn = DefaultCollate>
class DataLoader {
  struct Pass;

 public:
  using Batch = detail::LoadedBatch<D, CollateFn>;

  // One pass. Its loader must outlive it and must not be moved.
  using Iterator = detail::PassIterator<Batch, Pass>;

  explicit DataLoader(D dataset, DataLoaderOptions options = {}, CollateFn collate_fn = {})
      : DataLoader(std::move(dataset),
                   options.shuffle ? detail::AnySampler(RandomSampler(options.seed))
                                   : detail::AnySampler(SequentialSampler()),
                   options, std::move(collate_fn), nullptr) {}

  template <Sampler S>
  DataLoader(D dataset, S sampler, DataLoaderOptions options = {}, CollateFn collate_fn = {})
      : DataLoader(std::move(dataset), detail::AnySampler(std::move(sampler)), options,
                   std::move(collate_fn), nullptr) {
    check<ValueError>(!options.shuffle,
                      "DataLoader: sampler option is mutually exclusive with shuffle");
  }

  // Starts the next epoch; the same one again if the last call threw.
  Iterator begin() {
    Iterator first(std::make_unique<Pass>(*this, epoch_));
    ++epoch_;
    return first;
  }
  std::default_sentinel_t end() const { return {}; }

  // The number of batches in the pass that the next begin() starts.
  std::int64_t size() const { return batches_of(sampler_.count(dataset_size(), epoch_)); }

  // The epoch that the next begin() starts, from 0. Set it to resume training.
  std::uint64_t epoch() const { return epoch_; }
  void set_epoch(std::uint64_t epoch) { epoch_ = epoch; }

  const D& dataset() const { return dataset_; }
  const DataLoaderOptions& options() const { return options_; }

 private:
  // What an iterator and its workers share. It neither moves nor changes while they run, except for
  // `next`, which is the iterator's.
  struct Pass {
    Pass(const DataLoader& loader_, std::uint64_t epoch)
        : loader(loader_),
          order(loader.sampler_.indices(loader.dataset_size(), epoch)),
          batches(static_cast<std::size_t>(
              loader.batches_of(static_cast<std::int64_t>(order.size())))) {
      if constexpr (RandomSampleDataset<D>) {
        seeds = detail::sample_seeds(loader.options_.seed, epoch, order, loader.dataset_size());
      }
      const auto at_most_all = [this](std::int64_t number) {
        return std::min(static_cast<std::size_t>(number), batches);
      };
      const std::size_t count = at_most_all(loader.options_.num_workers);
      if (count == 0) return;
      ahead = std::min(at_most_all(loader.options_.prefetch_factor) * count, batches);
      workers.emplace([this](std::size_t batch) { return load(batch); }, batches, count, ahead);
    }

    std::optional<Batch> take() {
      if (next == batches) return std::nullopt;
      const std::size_t batch = next++;
      if (workers) return workers->take();
      return load(batch);
    }

    Batch load(std::size_t batch) const {
      const profile::RecordFunction range("loader");
      const auto size = static_cast<std::size_t>(loader.options_.batch_size);
      const std::size_t first = batch * size;
      const std::size_t count = std::min(size, order.size() - first);
      const detail::LoadScope scope(pin_memory);
      Batch result = detail::load_batch(loader.dataset_, std::span(order).subspan(first, count),
                                        std::span(seeds).subspan(std::min(first, seeds.size())),
                                        loader.collate_fn_);
      if (batch == 0) detail::reserve_memory(ahead, result);
      return result;
    }

    const DataLoader& loader;
    const std::vector<std::int64_t> order;
    std::vector<std::uint64_t> seeds;  // one for each sample of `order`, if samples are random
    const std::size_t batches;
    const bool pin_memory = loader.options_.pin_memory || lockstep::detail::pin_memory_wanted();
    std::size_t ahead = 0;
    std::size_t next = 0;
    std::optional<detail::BatchWorkers<Batch>> workers;  // last: destroyed before what it uses
  };

  DataLoader(D dataset, detail::AnySampler sampler, const DataLoaderOptions& options,
             CollateFn collate_fn, std::nullptr_t /*tag*/)
      : dataset_(std::move(dataset)),
        sampler_(std::move(sampler)),
        options_(options),
        collate_fn_(std::move(collate_fn)) {
    check<ValueError>(options.batch_size > 0,
                      "DataLoader: expected a batch size of at least 1, got ", options.batch_size);
    check<ValueError>(options.num_workers >= 0,
                      "DataLoader: num_workers option should be non-negative, got ",
                      options.num_workers, "; use num_workers=0 to load in the calling thread");
    check<ValueError>(options.prefetch_factor > 0,
                      "DataLoader: expected a prefetch_factor of at least 1, got ",
                      options.prefetch_factor);
  }

  std::int64_t dataset_size() const { return static_cast<std::int64_t>(dataset_.size()); }

  std::int64_t batches_of(std::int64_t samples) const {
    const bool part = samples % options_.batch_size != 0 && !options_.drop_last;
    return samples / options_.batch_size + (part ? 1 : 0);
  }

  D dataset_;
  detail::AnySampler sampler_;
  DataLoaderOptions options_;
  CollateFn collate_fn_;
  std::uint64_t epoch_ = 0;
};

}  // namespace lockstep::data
