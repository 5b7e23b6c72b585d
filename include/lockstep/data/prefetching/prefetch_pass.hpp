// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/data/prefetching/prefetch_placement.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/pin_memory.hpp>
#include <lockstep/tensor/storage.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <deque>
#include <iterator>
#include <memory>
#include <new>
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

// Makes room for `count` more batches like this one and leaves it to the allocators, so that memory
// is there whatever the order in which threads take it and give it back. Views of larger memory get
// none. Where there is not so much memory, it does with less.
template <class Batch>
void reserve(const Batch& batch, std::size_t count) {
  using lockstep::detail::Storage;
  std::vector<std::shared_ptr<Storage>> room;
  const auto add = [&](const auto& leaf, const nested::Path&) {
    if constexpr (std::same_as<std::remove_cvref_t<decltype(leaf)>, Tensor>) {
      const Storage& like = *leaf.impl()->storage;
      const auto elements = static_cast<std::size_t>(leaf.numel());
      if (like.bytes() != elements * element_size(leaf.dtype())) return;
      const PinMemoryGuard pinned(like.is_pinned());
      for (std::size_t i = 0; i < count; ++i) {
        room.push_back(std::make_shared<Storage>(like.bytes(), like.owner()));
      }
    }
  };
  try {
    for_each_placed(batch, add);
  } catch (const Error&) {
    return;
  } catch (const std::bad_alloc&) {
    return;
  }
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

// What the thread of a pass does: goes over the loader once.
//
// The memory of a batch can be used for another one when the devices have copied it. A loader that
// loads in this thread does not wait for that: it loads its next batch meanwhile, into other
// memory. Memory that is given up waits for all that the copy streams hold at that time, other
// threads' work included, but not for longer than the next batch's copies: so room is made for one
// batch more.
template <class Loader, class Placement, class Queue>
void read_ahead(Loader& loader, const Placement& placement, const std::vector<Device>& devices,
                std::size_t depth, Queue& queue) {
  const NoGradGuard no_grad;
  const PinMemoryGuard pinned(
      std::any_of(devices.begin(), devices.end(), [](Device d) { return d.is_cuda(); }));
  // All that this thread issues goes to the copy streams: nothing of it may lie in the way of the
  // step that is computed meanwhile.
  std::deque<StreamGuard> guards;
  for (const Device device : devices) guards.emplace_back(copy_stream(device));

  using std::begin;
  using std::end;
  using Batch = std::remove_cvref_t<decltype(*begin(loader))>;
  using Placed = decltype(placement.place(std::declval<const Batch&>()));
  if (!queue.wait_for_room()) return;
  auto next = begin(loader);
  const auto last = end(loader);
  const std::size_t in_threads = loaded_in_threads(loader);
  std::optional<Placed> first;
  for (std::size_t number = 0; next != last; ++number) {
    BatchInFlight<Placed> item = [&] {
      const profile::RecordFunction range("prefetch");
      BatchInFlight<Placed> sent{placement.place(*next), {}};
      for (const Device device : devices) sent.copied.push_back(copy_stream(device).record_event());
      return sent;
    }();
    if (number == 0) {
      first.emplace(item.batch);
    } else if (first) {
      reserve(item.batch, at_most_all(loader, depth - 1));
      reserve(*next, in_threads > 0 ? in_threads + 1 : 2);
      first.reset();
    }
    const std::vector<Event> copied = item.copied;
    queue.put(std::move(item));
    if (!queue.wait_for_room()) return;

    const auto wait = [&copied] {
      for (const Event& event : copied) event.synchronize();
    };
    std::optional<Batch> copying;
    if (in_threads > 0) {
      wait();
    } else {
      copying.emplace(*next);
    }
    ++next;
    wait();
  }
}

}  // namespace lockstep::data::detail
