// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/streams.hpp>
#include <lockstep/data/loading/load_batch.hpp>
#include <lockstep/data/prefetching/prefetch_placement.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/profile/recording/name_thread.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

// One pass over a loader, run by prefetch's thread.
namespace lockstep::data::detail {

// A batch whose copies have been issued; they end when the events happen.
template <class Placed>
struct BatchInFlight {
  Placed batch;
  std::vector<Event> copied;  // one for each device
};

// The devices that have copy streams, each once.
inline std::vector<Device> devices_with_copy_streams(const std::vector<Device>& devices) {
  std::vector<Device> targets;
  for (const Device device : devices) {
    check_device(device);
    const bool known = std::find(targets.begin(), targets.end(), device) != targets.end();
    if (!known && !device.is_host_memory()) targets.push_back(device);
  }
  return targets;
}

// The number of batches in the loader's next pass, or more than any pass has if the loader has no
// size().
template <class Loader>
std::size_t batches_of(const Loader& loader) {
  if constexpr (requires { loader.size(); }) {
    return static_cast<std::size_t>(loader.size());
  } else {
    return SIZE_MAX;
  }
}

// How many of `batches` a loader loads ahead in its own threads; 0 without such threads.
template <class Loader>
std::size_t batches_loaded_ahead(const Loader& loader, std::size_t batches) {
  if constexpr (requires { loader.options().num_workers + loader.options().prefetch_factor; }) {
    const auto workers = static_cast<std::size_t>(loader.options().num_workers);
    const auto each = static_cast<std::size_t>(loader.options().prefetch_factor);
    return workers > 0 && each > batches / workers ? batches : each * workers;
  } else {
    return 0;
  }
}

// The work of a pass's thread: runs through the loader once, one batch a call.
//
// A batch's memory can be reused when the devices have copied it. A loader that loads in this
// thread does not wait for that, but loads its next batch meanwhile, into other memory. Freed
// memory waits for all that the copy streams have at that time, other threads' work included, but
// no longer than for the next batch's copies; so one more batch's memory is reserved.
template <class Loader, class Placement>
class ReadAhead {
 public:
  using Batch = std::remove_cvref_t<decltype(*std::begin(std::declval<Loader&>()))>;
  using Placed = decltype(std::declval<const Placement&>().place(std::declval<const Batch&>()));

  // Made before the pass begins: `batches` are the pass's (see batches_of), `depth` is prefetch's.
  ReadAhead(Loader& loader, const Placement& placement, const std::vector<Device>& devices,
            std::size_t batches, std::size_t depth)
      : loader_(loader),
        placement_(placement),
        devices_(devices),
        loaded_ahead_(batches_loaded_ahead(loader, batches)),
        to_reserve_(std::min(batches, depth - 1)) {}

  // Returns the next batch, sent to the devices; after the last one nothing, and then the pass
  // keeps neither the loader's iterator nor a batch.
  std::optional<BatchInFlight<Placed>> operator()() {
    const LoadScope scope(
        std::any_of(devices_.begin(), devices_.end(), [](Device d) { return d.is_cuda(); }));
    // All that this thread issues goes to the copy streams, so that it does not delay the step that
    // is being computed.
    std::deque<StreamGuard> guards;
    for (const Device device : devices_) guards.emplace_back(copy_stream(device));

    const std::size_t number = sent_++;
    if (number == 0) {
      profile::name_thread("ls-prefetch");
      next_.emplace(std::begin(loader_));
    } else {
      advance();
    }
    if (!(*next_ != std::end(loader_))) {  // != as in a range-based for
      next_.reset();
      first_.reset();
      return std::nullopt;
    }
    auto&& batch = **next_;  // once: an iterator may make the batch at each call
    BatchInFlight<Placed> item = [&] {
      const profile::RecordFunction range("prefetch");
      BatchInFlight<Placed> sent{placement_.place(batch), {}};
      for (const Device device : devices_) {
        sent.copied.push_back(copy_stream(device).record_event());
      }
      return sent;
    }();
    if (number == 0) {
      first_.emplace(item.batch);
    } else if (first_) {
      reserve_memory(to_reserve_, item.batch);
      reserve_memory(loaded_ahead_ > 0 ? loaded_ahead_ + 1 : 2, batch);
      first_.reset();
    }
    last_copies_ = item.copied;
    if (loaded_ahead_ == 0) last_batch_.emplace(std::forward<decltype(batch)>(batch));
    return item;
  }

 private:
  // Makes the loader load its next batch.
  void advance() {
    const auto wait = [this] {
      for (const Event& event : last_copies_) event.synchronize();
    };
    if (loaded_ahead_ > 0) wait();
    ++*next_;
    wait();
    last_batch_.reset();
  }

  Loader& loader_;
  const Placement& placement_;
  const std::vector<Device>& devices_;
  const std::size_t loaded_ahead_;
  const std::size_t to_reserve_;  // batches to reserve memory for, once the second is loaded
  std::optional<decltype(std::begin(std::declval<Loader&>()))> next_;  // from the first call on
  std::size_t sent_ = 0;
  std::optional<Placed> first_;      // until memory for the others is reserved
  std::optional<Batch> last_batch_;  // kept while it is copied if the loader loads in this thread
  std::vector<Event> last_copies_;   // of the last batch
};

}  // namespace lockstep::data::detail
