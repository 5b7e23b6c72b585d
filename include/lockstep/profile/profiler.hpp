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
  // The number of ranges to keep per thread, at 56 bytes each; further ones are only counted.
  std::size_t max_events = std::size_t{1} << 18;
};

// Records what the program does until stop() or the end of the scope: ranges marked by the library,
// and by the program with RecordFunction.
//
// The library marks scatter, gather, broadcast, replicate and backward in the row of the calling
// thread; loader, prefetch and each collective, by its name, in that of the thread that runs it;
// apply, backward and reduce in the row of each device's compute stream; optimizer in that of the
// first parameter's device; copy in that of the copying stream. Ranges still open when recording
// stops are left out. One Profiler records at a time; a stopped one keeps its events.
//
// **Torch counterpart.** torch.profiler.profile.
// **Devices and streams.** A GPU's ranges are timed on the GPU. stop() waits for these; recording
// waits for nothing.
// **Threads and exceptions.** Records all threads, including those that end meanwhile. One thread
// at a time uses the Profiler itself. An Error if another one records.
// **Example.**
//   ls::profile::Profiler profiler;
//   for (auto [images, labels] : loader) train(images, labels);
//   profiler.export_chrome_trace("timeline.json");  // opens in https://ui.perfetto.dev
class Profiler : lockstep::detail::NonCopyable {
 public:
  explicit Profiler(const ProfilerOptions& options = {});
  ~Profiler();

  // Ends the recording if it has not ended.
  void stop();

  // All ranges, row by row, each row in the order in which ranges began. Stops first.
  //
  // **Torch counterpart.** profile.events().
  const std::vector<FunctionEvent>& events();

  // The number of ranges for which there was no room. Stops first.
  std::uint64_t dropped_events();

  // Writes the timeline to a file for Perfetto (https://ui.perfetto.dev) or chrome://tracing. Stops
  // first. Replaces an existing file once the new one is complete.
  //
  // **Torch counterpart.** profile.export_chrome_trace.
  // **Threads and exceptions.** A DataError that names the file if it cannot be written.
  void export_chrome_trace(const std::filesystem::path& path);

 private:
  const std::int64_t start_;
  std::uint64_t session_;  // 0: stopped
  std::vector<FunctionEvent> events_;
  std::uint64_t dropped_ = 0;
};

}  // namespace lockstep::profile

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/profile/impl/profiler.ipp>
#endif
