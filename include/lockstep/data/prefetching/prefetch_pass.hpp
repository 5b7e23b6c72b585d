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
#include <deque>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

// One pass over a loader, as the thread of prefetch makes it.
namespace lockstep::data::detail {

// A batch whose copies have been issued; they have ended once the events have happened.
template <class Placed>
struct BatchInFlight {
  Placed batch;
  std::vector<Event> copied;  // one for each device
};

// The devices that have streams to copy on, each once.
inline std::vector<Device> copied_to(const std::vector<Device>& devices) {
  std::vector<Device> targets;
  for (const Device device : devices) {
    check_device(device);
    const bool known = std::find(targets.begin(), targets.end(), device) != targets.end();
    if (!known && !device.is_host_memory()) targets.push_back(device);
  }
  return targets;
}

// `count`, but no more than the loader has batches, if it tells.
template <class Loader>
std::size_t at_most_all(const Loader& loader, std::size_t count) {
  if constexpr (requires { loader.size(); }) {
    return std::min(count, static_cast<std::size_t>(loader.size()));
  } else {
    return count;
  }
}

// How many batches a loader loads ahead in threads of its own; 0 for one that has none.
template <class Loader>
std::size_t loaded_in_threads(const Loader& loader) {
  if constexpr (requires { loader.options().num_workers + loader.options().prefetch_factor; }) {
    const auto workers = loader.options().num_workers;
    const auto each = loader.options().prefetch_factor;
    const auto batches = loader.size();
    if (workers == 0) return 0;
    return static_cast<std::size_t>(each > batches / workers ? batches : each * workers);
  } else {
    return 0;
  }
}

// What the thread of a pass does: goes over the loader once, a batch at each call.
//
// The memory of a batch can be used for another one when the devices have copied it. A loader that
// loads in this thread does not wait for that: it loads its next batch meanwhile, into other
// memory. Memory that is given up waits for all that the copy streams hold at that time, other
// threads' work included, but not for longer than the next batch's copies: so room is made for one
// batch more.
template <class Loader, class Placement>
class ReadAhead {
 public:
  using Batch = std::remove_cvref_t<decltype(*std::begin(std::declval<Loader&>()))>;
  using Placed = decltype(std::declval<const Placement&>().place(std::declval<const Batch&>()));

  ReadAhead(Loader& loader, const Placement& placement, const std::vector<Device>& devices,
            std::size_t depth)
      : loader_(loader), placement_(placement), devices_(devices), depth_(depth) {}

  // The next batch, sent to the devices; nothing after the last one, when the pass keeps neither
  // the loader's iterator nor a batch any more.
  std::optional<BatchInFlight<Placed>> operator()() {
    const LoadScope scope(
        std::any_of(devices_.begin(), devices_.end(), [](Device d) { return d.is_cuda(); }));
    // All that this thread issues goes to the copy streams: nothing of it may lie in the way of the
    // step that is computed meanwhile.
    std::deque<StreamGuard> guards;
    for (const Device device : devices_) guards.emplace_back(copy_stream(device));

    const std::size_t number = sent_++;
    if (number == 0) {
      profile::name_thread("ls-prefetch");
      next_.emplace(std::begin(loader_));
      in_threads_ = loaded_in_threads(loader_);
      reserved_ = at_most_all(loader_, depth_ - 1);  // others may use the loader soon
    } else {
      advance();
    }
    if (!(*next_ != std::end(loader_))) {  // as a range-based for asks
      next_.reset();
      first_.reset();
      return std::nullopt;
    }
    auto&& batch = **next_;  // once: an iterator may make the batch each time that it is asked
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
      reserve(item.batch, reserved_);
      reserve(batch, in_threads_ > 0 ? in_threads_ + 1 : 2);
      first_.reset();
    }
    copied_ = item.copied;
    if (in_threads_ == 0) copying_.emplace(std::forward<decltype(batch)>(batch));
    return item;
  }

 private:
  // Makes the loader load its next batch.
  void advance() {
    const auto wait = [this] {
      for (const Event& event : copied_) event.synchronize();
    };
    if (in_threads_ > 0) wait();
    ++*next_;
    wait();
    copying_.reset();
  }

  template <class T>
  static void reserve(const T& batch, std::size_t count) {
    reserve_memory(count, [&batch](auto& add) { for_each_placed(batch, add); });
  }

  Loader& loader_;
  const Placement& placement_;
  const std::vector<Device>& devices_;
  const std::size_t depth_;
  std::optional<decltype(std::begin(std::declval<Loader&>()))> next_;  // from the first call on
  std::size_t in_threads_ = 0;
  std::size_t reserved_ = 0;  // for so many batches there is memory, once the second is loaded
  std::size_t sent_ = 0;
  std::optional<Placed> first_;   // until there is memory for the others
  std::optional<Batch> copying_;  // the last one, of a loader that loads in this thread
  std::vector<Event> copied_;     // of the last one
};

}  // namespace lockstep::data::detail
