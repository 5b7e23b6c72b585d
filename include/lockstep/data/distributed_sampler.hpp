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
  bool drop_last = false;  // skip samples rather than repeat some
};

// The samples of one of `num_replicas` ranks that share a dataset: in each epoch every sample goes
// to exactly one rank, and all ranks get equally many.
//
// If the samples do not divide evenly, the first ones of the epoch's order are repeated or, with
// drop_last, the last ones are skipped. Rank r gets every num_replicas-th sample of the order, from
// the r-th on. The order is the same in all ranks and does not depend on their number; with
// `shuffle` each epoch has another. The epoch is the loader's, and must be the same in all ranks.
//
// **Torch counterpart.** torch.utils.data.DistributedSampler, with other orders; the loader does
// what set_epoch does.
// **Threads and exceptions.** A ValueError for fewer than one replica and for a rank out of range.
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
