// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/data/dataset.hpp>
#include <lockstep/data/loading/any_sampler.hpp>
#include <lockstep/data/loading/batch_workers.hpp>
#include <lockstep/data/loading/load_batch.hpp>
#include <lockstep/data/loading/pass_iterator.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/nested/leaves.hpp>
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
  std::uint64_t seed = 0;            // of the shuffling and of random samples
  bool drop_last = false;            // leave out the last batch if it is not full
  std::int64_t num_workers = 0;      // threads that load; with 0 the caller loads itself
  std::int64_t prefetch_factor = 2;  // batches that are loaded ahead, for each worker
  bool pin_memory = false;           // batches on `cpu` lie in page-locked memory
};

// A dataset in batches: a range that can be gone over again and again.
//
// Each begin() starts a pass, an epoch, of its own. The samples of a pass and their order depend on
// the sampler and the number of the epoch alone, with `shuffle` on the seed, too: the same on every
// machine and with any number of workers, and with `shuffle` another one in each epoch. What is
// random about the samples (RandomSampleDataset) depends on the same; a sample that a pass visits
// twice is drawn anew.
//
// Batches are collated samples, or what the dataset's get_batch returns; with a `collate_fn`, what
// that makes of a std::vector of the samples. The dataset is taken over; those of this library are
// handles.
//
// With workers, batches are loaded ahead of the loop by threads that live as long as the pass: at
// most num_workers × prefetch_factor of them behind the one that the loop has. Memory for so many
// batches like the first is taken together with it, and used again from then on.
//
// **Torch counterpart.** torch.utils.data.DataLoader; a worker is a thread and takes whichever
// batch is next.
// **Devices and streams.** Batches are where the dataset has them: read from files, on `cpu`.
// Workers use the streams that are current where the pass begins.
// **Backward.** Not recorded, whatever the thread's mode.
// **Threads and exceptions.** One pass belongs to one thread; its workers, or that thread itself,
// call the dataset, its transforms and collate_fn, workers at the same time. An exception of theirs
// leaves the begin() or ++ that would have given the batch; the pass is over then. It is as it was
// thrown, but that a text of a type of lockstep/error.hpp or <stdexcept> goes on with the sample
// that it comes from, or with the batch's samples if it comes of all. An iterator's end waits for
// the batches that workers are loading at the time. Error if a worker cannot be started. ValueError
// for options outside their range, and for a sampler together with shuffle; IndexError for a sample
// of the sampler's that the dataset does not have.
// **Example.**
//   ls::data::DataLoader loader{dataset, {.batch_size = 64, .shuffle = true, .num_workers = 4}};
//   for (auto [images, labels] : loader) train(images, labels);
template <class D, class CollateFn = DefaultCollate>
class DataLoader {
  struct Pass;

 public:
  using Batch = detail::LoadedBatch<D, CollateFn>;

  // One pass. Its loader must outlive it and stay where it is.
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

  // Starts the next epoch; the same one again if the last call has thrown.
  Iterator begin() {
    Iterator first(std::make_unique<Pass>(*this, epoch_));
    ++epoch_;
    return first;
  }
  std::default_sentinel_t end() const { return {}; }

  // The number of batches in a pass.
  std::int64_t size() const { return batches_of(sampler_.count(dataset_size(), epoch_)); }

  // The epoch that the next begin() starts, from 0. Setting it resumes training that was stopped.
  std::uint64_t epoch() const { return epoch_; }
  void set_epoch(std::uint64_t epoch) { epoch_ = epoch; }

  const D& dataset() const { return dataset_; }
  const DataLoaderOptions& options() const { return options_; }

 private:
  // What an iterator and its workers share: stays in its place, and is not changed while they run,
  // but for `next`, which is the iterator's.
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
      if (batch == 0) {
        detail::reserve_memory(ahead, [&result](auto& add) {
          lockstep::detail::nested::for_each_leaf(std::as_const(result),
                                                  lockstep::detail::nested::Path("batch"), add);
        });
      }
      return result;
    }

    const DataLoader& loader;
    const std::vector<std::int64_t> order;
    std::vector<std::uint64_t> seeds;  // one for each sample of `order`, if they are random
    const std::size_t batches;
    const bool pin_memory = loader.options_.pin_memory || lockstep::detail::pin_memory_wanted();
    std::size_t ahead = 0;
    std::size_t next = 0;
    std::optional<detail::BatchWorkers<Batch>> workers;  // last: ends before what it uses
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
