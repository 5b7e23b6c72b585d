// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/non_copyable.hpp>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::data::detail {

// Holds a sampler of any type, and checks what it draws. Copies share the sampler, which is never
// changed.
class AnySampler {
 public:
  template <Sampler S>
  explicit AnySampler(S sampler) : sampler_(std::make_shared<const Model<S>>(std::move(sampler))) {}

  std::vector<std::int64_t> indices(std::int64_t size, std::uint64_t epoch) const;

  // How many indices `indices` returns.
  std::int64_t count(std::int64_t size, std::uint64_t epoch) const {
    return sampler_->count(size, epoch);
  }

 private:
  struct Interface : lockstep::detail::NonCopyable {
    virtual ~Interface() = default;
    virtual std::vector<std::int64_t> indices(std::int64_t size, std::uint64_t epoch) const = 0;
    virtual std::int64_t count(std::int64_t size, std::uint64_t epoch) const = 0;
  };

  template <Sampler S>
  struct Model final : Interface {
    explicit Model(S taken) : sampler(std::move(taken)) {}

    std::vector<std::int64_t> indices(std::int64_t size, std::uint64_t epoch) const override {
      return sampler.indices(size, epoch);
    }
    std::int64_t count(std::int64_t size, std::uint64_t epoch) const override {
      if constexpr (CountingSampler<S>) {
        return sampler.count(size);
      } else {
        return static_cast<std::int64_t>(sampler.indices(size, epoch).size());
      }
    }

    S sampler;
  };

  std::shared_ptr<const Interface> sampler_;
};

}  // namespace lockstep::data::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/data/loading/impl/any_sampler.ipp>
#endif
