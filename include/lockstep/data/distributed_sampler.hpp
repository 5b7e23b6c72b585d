// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/data/sampler.hpp>

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
// all ranks, with `shuffle` another one in each epoch, and independent of their number; rank r gets
// each num_replicas-th sample of it, from the r-th on. The epoch is the loader's, so there is none
// to set here; loaders in all ranks have to be at the same one.
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
                     const DistributedSamplerOptions& options = {});

  // The same for each rank.
  std::int64_t count(std::int64_t size) const;

  std::vector<std::int64_t> indices(std::int64_t size, std::uint64_t epoch) const;

 private:
  std::int64_t num_replicas_;
  std::int64_t rank_;
  DistributedSamplerOptions options_;
};

}  // namespace lockstep::data

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/data/impl/distributed_sampler.ipp>
#endif
