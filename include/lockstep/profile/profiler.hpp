// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/profile/function_event.hpp>
#include <lockstep/profile/recording/name_thread.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep::profile {

struct ProfilerOptions {
  // How many ranges of each thread are kept, at 56 bytes each; further ones are only counted.
  std::size_t max_events = std::size_t{1} << 18;
};

// Records what the program does, from here to stop() or the end of the scope: the ranges that the
// library marks, and those that the program marks with RecordFunction.
//
// The library's ranges are scatter, gather, broadcast, replicate and backward in the row of the
// thread that calls it; loader, prefetch and each collective, by its name, in that of the thread
// that runs it; apply, backward and reduce in the row of each device's compute stream, optimizer in
// that of the first parameter's device; copy in that of the stream that copies. A range that is
// still open when recording stops is left out. One Profiler records at a time; one that has stopped
// can still be asked.
//
// **Torch counterpart.** torch.profiler.profile.
// **Devices and streams.** A GPU's ranges are timed on the GPU. stop() waits for these; recording
// waits for nothing.
// **Threads and exceptions.** The ranges of all threads are recorded, those that end in between
// included; the Profiler itself is used by one thread at a time. An Error if another one records.
// **Example.**
//   ls::profile::Profiler profiler;
//   for (auto [images, labels] : loader) train(images, labels);
//   profiler.export_chrome_trace("timeline.json");  // opens in https://ui.perfetto.dev
class Profiler : lockstep::detail::NonCopyable {
 public:
  explicit Profiler(const ProfilerOptions& options = {});
  ~Profiler();

  // Ends the recording; does nothing if it has ended.
  void stop();

  // All ranges, row by row, each row in the order in which its ranges began. Stops first.
  //
  // **Torch counterpart.** profile.events().
  const std::vector<FunctionEvent>& events();

  // How many ranges there was no room for. Stops first.
  std::uint64_t dropped_events();

  // Writes the timeline to a file that Perfetto (https://ui.perfetto.dev) and chrome://tracing
  // open. Stops first. A file that is there is replaced once the new one is whole.
  //
  // **Torch counterpart.** profile.export_chrome_trace.
  // **Threads and exceptions.** DataError that names the file if it cannot be written.
  void export_chrome_trace(const std::filesystem::path& path);

 private:
  const std::int64_t start_;
  std::uint64_t session_;  // 0: it has stopped
  std::vector<FunctionEvent> events_;
  std::uint64_t dropped_ = 0;
};

}  // namespace lockstep::profile

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/profile/impl/profiler.ipp>
#endif
