// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/data/sampler.hpp>
#include <lockstep/error.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::data {

struct DistributedSamplerOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;  // the same in all ranks
  bool drop_last = false;  // leave out samples rather than repeat some
};

// The samples of one rank of `num_replicas` that share a dataset: in each epoch every sample goes
// to exactly one of them, and all get equally many.
//
// Where the samples cannot be divided evenly, the first ones of the epoch's order are given out
// once more until they can or, with drop_last, the last ones are left out. The order is the same in
// all ranks, another one in each epoch, and independent of their number; rank r gets each
// num_replicas-th sample of it, from the r-th on. The epoch is the loader's, so there is none to
// set here; loaders in all ranks have to be at the same one.
//
// **Torch counterpart.** torch.utils.data.DistributedSampler, with set_epoch done by the loader;
// the orders differ.
// **Threads and exceptions.** ValueError for a number of replicas below 1 and for a rank that is
// not one of them.
// **Example.**
//   ls::data::DistributedSampler share(group.size(), group.rank());
//   ls::data::DataLoader loader{dataset, share, {.batch_size = 64}};
class DistributedSampler {
 public:
  DistributedSampler(std::int64_t num_replicas, std::int64_t rank,
                     const DistributedSamplerOptions& options = {})
      : num_replicas_(num_replicas), rank_(rank), options_(options) {
    check<ValueError>(num_replicas >= 1,
                      "DistributedSampler: expected num_replicas of at least 1, got ",
                      num_replicas);
    check<ValueError>(rank >= 0 && rank < num_replicas, "DistributedSampler: Invalid rank ", rank,
                      ", rank should be in the interval [0, ", num_replicas - 1, "]");
  }

  // The same for each rank.
  std::int64_t count(std::int64_t size) const {
    const bool more = size % num_replicas_ != 0 && !options_.drop_last;
    return size / num_replicas_ + (more ? 1 : 0);
  }

  std::vector<std::int64_t> indices(std::int64_t size, std::uint64_t epoch) const {
    const std::vector<std::int64_t> all = options_.shuffle
                                              ? RandomSampler(options_.seed).indices(size, epoch)
                                              : SequentialSampler().indices(size, epoch);
    std::vector<std::int64_t> mine(static_cast<std::size_t>(count(size)));
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const std::size_t place =
          i * static_cast<std::size_t>(num_replicas_) + static_cast<std::size_t>(rank_);
      mine[i] = all[place % all.size()];
    }
    return mine;
  }

 private:
  std::int64_t num_replicas_;
  std::int64_t rank_;
  DistributedSamplerOptions options_;
};

}  // namespace lockstep::data
