// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/data/files/rows.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/random.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace lockstep::data {

// Samples with something random about them, which `get(i, generator)` draws from that generator
// alone. A DataLoader seeds it from its own seed, the epoch and the sample's number, so a sample
// does not depend on who loads it.
template <class D>
concept RandomSampleDataset = requires(const D& dataset, std::int64_t index, Generator& generator) {
  { dataset.size() } -> std::convertible_to<std::int64_t>;
  dataset.get(index, generator);
};

// Samples that can be read one by one, in any order: `get(i)` returns sample i of size().
template <class D>
concept SampleDataset = RandomSampleDataset<D> || requires(const D& dataset, std::int64_t index) {
  { dataset.size() } -> std::convertible_to<std::int64_t>;
  dataset.get(index);
};

// Samples that can be read as a whole batch, which is faster: `get_batch(indices)` returns what
// collating the samples of these indices would.
template <class D>
concept BatchDataset = requires(const D& dataset, std::span<const std::int64_t> indices) {
  { dataset.size() } -> std::convertible_to<std::int64_t>;
  dataset.get_batch(indices);
};

// What a DataLoader reads. Its worker threads call these functions concurrently.
//
// **Torch counterpart.** torch.utils.data.Dataset with __len__, __getitem__ and __getitems__.
template <class D>
concept Dataset = SampleDataset<D> || BatchDataset<D>;

namespace detail {

// Sample `index`; what is random about it comes from the generator.
template <SampleDataset D>
auto get_sample(const D& dataset, std::int64_t index, Generator& generator) {
  if constexpr (RandomSampleDataset<D>) {
    return dataset.get(index, generator);
  } else {
    return dataset.get(index);
  }
}

template <SampleDataset D>
using SampleOf = decltype(get_sample(std::declval<const D&>(), 0, std::declval<Generator&>()));

}  // namespace detail

// Tensors with equally many rows; sample i is row i of each. It holds handles: copies share the
// data.
//
// **Torch counterpart.** torch.utils.data.TensorDataset.
// **Devices and streams.** Samples and batches are on the tensors' devices.
// **Backward.** Not recorded.
// **Threads and exceptions.** A ShapeError for a tensor without dimensions, and, with both shapes,
// for different numbers of rows; an IndexError for a sample that does not exist.
// **Example.**
//   ls::data::TensorDataset points{inputs, targets};
//   auto [input, target] = points.get(7);
template <std::size_t count>
class TensorDataset {
 public:
  static_assert(count > 0, "lockstep: a TensorDataset holds at least one tensor");

  template <class... Tensors>
  requires(sizeof...(Tensors) == count && (std::convertible_to<const Tensors&, Tensor> &&
                                           ...)) explicit TensorDataset(const Tensors&... tensors)
      : tensors_{tensors...} {
    for (std::size_t i = 0; i < count; ++i) {
      check<ShapeError>(tensors_[i].dim() > 0, "TensorDataset: tensor ", i,
                        " has no dimensions, so no rows");
      check<ShapeError>(tensors_[i].size(0) == size(), "TensorDataset: tensor 0 of shape ",
                        tensors_[0].sizes(), " has not as many rows as tensor ", i, " of shape ",
                        tensors_[i].sizes());
    }
  }

  std::int64_t size() const { return tensors_[0].size(0); }

  // Views: changing a sample changes the dataset.
  std::array<Tensor, count> get(std::int64_t index) const {
    return map([index](const Tensor& tensor) { return detail::row_of(tensor, index); });
  }

  std::array<Tensor, count> get_batch(std::span<const std::int64_t> indices) const {
    return map([indices](const Tensor& tensor) { return detail::select_rows(tensor, indices); });
  }

  const std::array<Tensor, count>& tensors() const { return tensors_; }

 private:
  template <class Function>
  std::array<Tensor, count> map(Function function) const {
    std::array<Tensor, count> result;
    for (std::size_t i = 0; i < count; ++i) result[i] = function(tensors_[i]);
    return result;
  }

  std::array<Tensor, count> tensors_;
};

template <class... Tensors>
requires(std::convertible_to<const Tensors&, Tensor>&&...) TensorDataset(const Tensors&...)
->TensorDataset<sizeof...(Tensors)>;

}  // namespace lockstep::data
