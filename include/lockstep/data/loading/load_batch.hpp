// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/data/collate.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/walk/structure.hpp>
#include <lockstep/parallel/nested/leaves.hpp>
#include <lockstep/parallel/scattered.hpp>
#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/pin_memory.hpp>
#include <lockstep/tensor/random.hpp>
#include <lockstep/tensor/storage.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// How a DataLoader makes one batch, in any thread.
namespace lockstep::data {

// Means collate, or the dataset's own get_batch.
struct DefaultCollate {};

namespace detail {

// The seeds for what is random about the samples of a pass, which are visited in `order`. A seed
// depends on the loader's seed, the epoch, the sample, and how often it was visited before.
inline std::vector<std::uint64_t> sample_seeds(std::uint64_t seed, std::uint64_t epoch,
                                               std::span<const std::int64_t> order,
                                               std::int64_t samples) {
  const std::uint64_t pass = spread_seed(seed, epoch);
  std::vector<std::uint64_t> visits(static_cast<std::size_t>(samples));
  std::vector<std::uint64_t> seeds;
  seeds.reserve(order.size());
  for (const std::int64_t index : order) {
    const auto sample = static_cast<std::size_t>(index);
    seeds.push_back(spread_seed(spread_seed(pass, sample), visits[sample]++));
  }
  return seeds;
}

// Rethrows the exception being handled. If its type is exactly one of lockstep/error.hpp's or
// <stdexcept>'s, `what` and the first of these indices are appended to its text.
[[noreturn]] void rethrow_naming(const char* what, std::span<const std::int64_t> indices);
inline constexpr const char* kOfBatch = "the batch is of the dataset's samples";

// The samples of these indices as one batch; seeds[i] is for the i-th one.
template <class D, class CollateFn>
auto load_batch(const D& dataset, std::span<const std::int64_t> indices,
                std::span<const std::uint64_t> seeds, const CollateFn& collate_fn) {
  constexpr bool default_collate = std::same_as<CollateFn, DefaultCollate>;
  if constexpr (!Dataset<D>) {
    static_assert(Dataset<D>,
                  "lockstep: this type is no dataset: it needs `size() const`, and `get(i) const` "
                  "or `get_batch(indices) const`, which worker threads call at the same time");
    return Tensor();
  } else if constexpr (BatchDataset<D> && default_collate) {
    try {
      return dataset.get_batch(indices);
    } catch (...) {
      rethrow_naming(kOfBatch, indices);
    }
  } else {
    static_assert(SampleDataset<D>,
                  "lockstep: a DataLoader with a collate_fn needs a dataset that gives samples one "
                  "by one: get(index)");
    std::vector<std::remove_cvref_t<SampleOf<D>>> samples;
    samples.reserve(indices.size());
    std::size_t i = 0;
    try {
      if constexpr (RandomSampleDataset<D>) {
        Generator generator;
        for (; i < indices.size(); ++i) {
          generator.manual_seed(seeds[i]);
          samples.push_back(dataset.get(indices[i], generator));
        }
      } else {
        for (; i < indices.size(); ++i) samples.push_back(dataset.get(indices[i]));
      }
    } catch (...) {
      rethrow_naming("it comes from the dataset's sample", indices.subspan(i, 1));
    }
    try {
      if constexpr (default_collate) {
        return data::collate(std::move(samples));
      } else {
        return collate_fn(std::move(samples));
      }
    } catch (...) {
      rethrow_naming(kOfBatch, indices);
    }
  }
}

template <class D, class CollateFn>
using LoadedBatch =
    decltype(load_batch(std::declval<const D&>(), {}, {}, std::declval<const CollateFn&>()));

// The state of a thread while it loads a batch, in a worker or not. Nothing is recorded for
// backward.
struct LoadScope {
  explicit LoadScope(bool pin_memory) : pinned(pin_memory) {}

  const lockstep::detail::AutogradStateScope autograd{
      {.grad = false, .inference = false, .saving = false}};
  const PinMemoryGuard pinned;
};

// Calls `visit(leaf, path)` for all tensors of a batch, which prefetch may have placed.
template <class T, class Visit>
void for_each_placed(const T& value, Visit& visit) {
  if constexpr (is_scattered<T>) {
    for (const auto& part : value) for_each_placed(part, visit);
  } else if constexpr (nested::Structure<T>::form == nested::Form::tuple) {
    std::apply([&](const auto&... elements) { (for_each_placed(elements, visit), ...); }, value);
  } else {
    nested::for_each_leaf(value, nested::Path("batch"), visit);
  }
}

// Makes the allocators keep memory for `count` more batches like this one, whatever the order in
// which threads take it and give it back, by allocating their tensors and freeing them. Views of
// larger memory are skipped. If memory runs out, it reserves less.
template <class Batch>
void reserve_memory(std::size_t count, const Batch& batch) {
  using lockstep::detail::Storage;
  std::vector<std::shared_ptr<Storage>> memory;
  const auto add = [&]<class Leaf>(const Leaf& leaf, const auto& /*path*/) {
    if constexpr (std::same_as<Leaf, Tensor>) {
      const Storage& like = *leaf.impl()->storage;
      const auto elements = static_cast<std::size_t>(leaf.numel());
      if (like.bytes() != elements * element_size(leaf.dtype())) return;
      const PinMemoryGuard pinned(like.is_pinned());
      for (std::size_t i = 0; i < count; ++i) {
        memory.push_back(std::make_shared<Storage>(like.bytes(), like.owner()));
      }
    }
  };
  try {
    for_each_placed(batch, add);
  } catch (const Error&) {
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace detail

}  // namespace lockstep::data

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/data/loading/impl/load_batch.ipp>
#endif
