// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/data/loading/batch_workers.hpp>
#include <lockstep/data/loading/load_batch.hpp>
#include <lockstep/data/loading/pass_iterator.hpp>
#include <lockstep/data/prefetching/prefetch_pass.hpp>
#include <lockstep/data/prefetching/prefetch_placement.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/split.hpp>
#include <lockstep/parallel/tensor_traits.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::data {

struct PrefetchOptions {
  std::int64_t depth = 2;      // the most batches ahead of the one in use
  std::int64_t dim = 0;        // the dimension along which batches are divided
  Split split = Split::chunk;  // how they are divided: as the model's options say
};

// What `prefetch` returns: the batches of a loader, each copied to the devices while those before
// it are in use.
template <class Loader, class Placement>
class Prefetch {
  class Arrival;

 public:
  using Pass = detail::ReadAhead<std::remove_reference_t<Loader>, Placement>;
  using Batch = typename Pass::Batch;
  using Placed = typename Pass::Placed;

  Prefetch(Loader loader, Placement placement, const PrefetchOptions& options)
      : loader_(std::forward<Loader>(loader)),
        placement_(std::move(placement)),
        devices_(detail::devices_with_copy_streams(placement_.devices())),
        depth_(static_cast<std::size_t>(options.depth)) {
    check<ValueError>(options.depth > 0, "prefetch: expected a depth of at least 1, got ",
                      options.depth);
  }

  // One pass. The range must outlive it and must not be moved.
  using Iterator = detail::PassIterator<Placed, Arrival>;

  // Starts a pass of the loader.
  Iterator begin() { return Iterator(std::make_unique<Arrival>(*this)); }
  std::default_sentinel_t end() const { return {}; }

  // The number of batches in the next pass, if the loader knows.
  auto size() const requires requires(const std::remove_reference_t<Loader>& loader) {
    loader.size();
  }
  { return std::as_const(loader_).size(); }

 private:
  // The consumer's side of a pass: starts the thread that loads, and makes the consumer's streams
  // wait for each batch.
  class Arrival {
   public:
    explicit Arrival(Prefetch& range) : devices_(range.devices_) {
      lockstep::detail::check_not_forked();
      // The loader may use what this thread has issued.
      for (const Device device : devices_) {
        copy_stream(device).wait_stream(current_stream(device));
      }
      const std::size_t batches = detail::batches_of(range.loader_);
      const auto pass = std::make_shared<Pass>(range.loader_, range.placement_, range.devices_,
                                               batches, range.depth_);
      worker_.emplace([pass](std::size_t /*batch*/) { return (*pass)(); }, SIZE_MAX, 1,
                      std::clamp<std::size_t>(batches, 1, range.depth_));
    }

    std::optional<Placed> take() {
      auto next = worker_->take();
      if (!next) return std::nullopt;
      for (std::size_t i = 0; i < devices_.size(); ++i) {
        current_stream(devices_[i]).wait_event(next->copied[i]);
      }
      const auto record = [](const auto& leaf, const auto&) {
        using Traits = tensor_traits<std::remove_cvref_t<decltype(leaf)>>;
        if constexpr (requires(Stream stream) { Traits::record_stream(leaf, stream); }) {
          const Device device = Traits::device(leaf);
          if (!device.is_host_memory()) Traits::record_stream(leaf, current_stream(device));
        }
      };
      detail::for_each_placed(next->batch, record);
      return std::move(next->batch);
    }

   private:
    const std::vector<Device>& devices_;
    std::optional<detail::BatchWorkers<detail::BatchInFlight<Placed>>> worker_;
  };

  Loader loader_;
  Placement placement_;
  std::vector<Device> devices_;
  std::size_t depth_;
};

// Loops over a loader with batches prefetched: while a step computes on one batch, a thread loads
// those after it, and the devices' copy streams bring each device its part.
//
// `loader` is a range of batches, such as a DataLoader; it is referred to, or owned if it is a
// temporary. Each begin() starts a pass of it. At most `depth` batches are ahead of the one in use,
// including the one being loaded, and memory is reserved for them. A batch frees its memory when
// the next one is requested, unless a handle on it remains.
//
// In a batch that is a pair, tuple or array each element becomes a Scattered, all divided by one
// plan; any other batch becomes one Scattered. DataParallel, DataParallelModel and the criterion
// take these directly. There are fewer parts than devices if there are not enough rows.
// `whole<i>(device)` asks for element i undivided on one device.
//
// **Torch counterpart.** None; DataLoader(pin_memory=True) with .to(device, non_blocking=True).
// **Devices and streams.** The devices' copy streams copy; the consumer's current streams wait for
// events after the copies, and the parts are recorded on them. The consumer is blocked only while
// no batch is loaded. The loader's own work on these devices goes to their copy streams, after the
// work that the consumer's streams had when the pass began. If a device is a GPU, tensors that the
// loader makes on `cpu`, in the thread that runs it, are page-locked.
// **Backward.** Not recorded.
// **Threads and exceptions.** Each pass has a thread that runs the loader, with the state of the
// thread that began the pass. No other thread may use the loader until the first batch is there.
// The thread ends with the pass. Destroying the iterator ends both, after the batch being loaded.
// An exception of the loader or of a copy is thrown by the iterator's step that would have given
// that batch, and ends the pass. A ValueError at once for a depth below 1 and for no devices, a
// DeviceError for a device that does not exist.
// **Example.**
//   for (auto [images, labels] : ls::data::prefetch(loader, model.devices())) {
//     criterion(model(images), labels).backward();
//   }
template <class Loader, std::size_t... element>
auto prefetch(Loader&& loader, std::vector<Device> devices, const PrefetchOptions& options = {},
              const Whole<element>&... elements) {
  using Placement = detail::OverDevices<element...>;
  return Prefetch<Loader, Placement>(
      std::forward<Loader>(loader),
      Placement(std::move(devices), options.dim, options.split, elements...), options);
}

template <class Loader, std::size_t first, std::size_t... rest>
auto prefetch(Loader&& loader, std::vector<Device> devices, const Whole<first>& element,
              const Whole<rest>&... elements) {
  return prefetch(std::forward<Loader>(loader), std::move(devices), PrefetchOptions(), element,
                  elements...);
}

// For one device: the batches undivided, with their tensors on it. (A device in braces is a list of
// one, whose batches are Scattered.)
template <class Loader, std::convertible_to<Device> To>
auto prefetch(Loader&& loader, const To& device, const PrefetchOptions& options = {}) {
  return Prefetch<Loader, detail::OnOneDevice>(std::forward<Loader>(loader),
                                               detail::OnOneDevice(device), options);
}

}  // namespace lockstep::data
