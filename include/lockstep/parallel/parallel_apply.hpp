// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/autograd/engine/thread_state.hpp>
#include <lockstep/backend/threads/pace.hpp>
#include <lockstep/backend/threads/shared_shares.hpp>
#include <lockstep/backend/threads/worker_pool.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/module/module_traits.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/parallel/nested/leaves.hpp>
#include <lockstep/parallel/nested/move_to.hpp>
#include <lockstep/parallel/replica_error.hpp>
#include <lockstep/parallel/replica_group.hpp>
#include <lockstep/parallel/replicas/replica_streams.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/scoped_value.hpp>
#include <lockstep/tensor/current_replica.hpp>
#include <lockstep/tensor/recycled.hpp>

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

namespace detail {

// Calls a module with its part of each list of inputs, as apply_all's `parts_of` gives them. A
// first part that is a tuple is the argument list, any other is the only argument; keyword
// arguments, if there are any, come last.
template <class M, class Input, class... Keywords>
decltype(auto) forward_parts(M& module, const std::tuple<const Input&, const Keywords&...>& parts) {
  const auto call = [&](const auto&... args) -> decltype(auto) {
    if constexpr (sizeof...(Keywords) == 0) {
      return detail::forward(module, args...);
    } else {
      return detail::forward(module, args..., std::get<1>(parts));
    }
  };
  if constexpr (is_tuple<Input>) {
    return std::apply(call, std::get<0>(parts));
  } else {
    return call(std::get<0>(parts));
  }
}

// Where replica i is: devices[i] or, where no devices are given, where the module's first parameter
// or buffer is.
template <class M>
std::optional<Device> device_of_replica(const M& module, const std::vector<Device>& devices,
                                        std::size_t i) {
  if (!devices.empty()) return devices[i];
  if constexpr (ForeignModule<M>) {
    return module_traits<M>::device(module);
  } else {
    const std::vector<Tensor> list = tensors_of(module);
    return list.empty() ? std::nullopt : std::optional(list[0].device());
  }
}

// The timeline's row for what replica i does: its device's or, where none is known, its thread's.
template <class M>
profile::Row replica_row(const M& module, const std::vector<Device>& devices, std::size_t i) {
  if (!profile::enabled()) return {};
  const std::optional<Device> device = device_of_replica(module, devices, i);
  return device ? profile::Row(*device) : profile::Row();
}

// What one replica returns or throws, and its mark that it has ended: all that its thread writes
// and others read. The padding keeps two replicas' slots out of one cache line (cores fetch lines
// of 64 bytes in pairs).
template <class Output>
struct OutputSlot : NonCopyable {
  std::optional<Output> output;
  std::atomic<bool> ended{false};
  std::exception_ptr error;  // set by the calling thread once all have ended
  std::byte padding[128];

  OutputSlot() {}  // leaves the padding as it is
};

// What all threads of one apply read lies in the first 128 bytes: cores exchange these lines and
// each thread's own slot, and no others.
template <class M, class PartsOf, class Output>
struct alignas(128) ApplyJob {
  M* modules;
  OutputSlot<Output>* slots;
  ThreadState state;
  PartsOf parts_of;
  const std::vector<Device>* devices;
  const ReplicaStreams* streams;  // null where all replicas run on the current ones
  ReplicaGroup group;

  void operator()(std::size_t i) {
    // Before the state is set: if that throws, the end of this scope wakes the replicas that wait
    // for this one.
    const ReplicaScope replica(group, i, slots[i].ended);
    const ThreadState::Scope thread_state(state);
    if constexpr (!ForeignModule<M>) {
      if (streams && streams->own(i)) [[unlikely]] {
        slots[i].output.emplace(
            streams->run(i, modules[i], parts_of(i), [&]() -> Output { return forward(i); }));
        return;
      }
    }
    slots[i].output.emplace(forward(i));
  }

 private:
  Output forward(std::size_t i) {
    const profile::RecordFunction range("apply", replica_row(modules[i], *devices, i));
    return forward_parts(modules[i], parts_of(i));
  }
};

// The modules of an apply. (A std::span of a user's type takes a compiler longer than all else that
// it makes for an apply.)
template <class M>
struct Modules {
  M* first;
  std::size_t count;

  Modules(M* modules, std::size_t size) : first(modules), count(size) {}
  M& operator[](std::size_t i) const { return first[i]; }
};

// Which threads run the modules of an apply.
enum class ApplyThreads {
  one_each,
  // As many as save time; where each module takes a few microseconds, mostly the caller's alone.
  shared
};

inline void check_count(std::size_t modules, const char* what, std::size_t count) {
  check<ValueError>(modules == count, "The number of modules ", modules,
                    " is not equal to the number of ", what, " ", count);
}

// Calls all modules at once and returns their results in that order. `parts_of(i)` gives module i's
// arguments as a tuple of references: its part of the inputs, and its keyword arguments if any.
// `synchronized`: what replicas::synchronized() returns.
template <class M, class PartsOf>
auto apply_all(Modules<M> modules, const std::vector<Device>& devices, PartsOf parts_of,
               bool synchronized = false, ApplyThreads threads = ApplyThreads::shared) {
  using Output = std::remove_cvref_t<decltype(forward_parts(modules[0], parts_of(0)))>;
  if (!devices.empty()) check_count(modules.count, "devices", devices.size());
  std::vector<Output> outputs;
  outputs.reserve(modules.count);
  if (modules.count == 0) return outputs;
  if (modules.count == 1) {
    // `replicas` sees a single replica, also where this runs within one of an outer group.
    const ScopedValue<CurrentReplica> alone(current_replica, {});
    const profile::RecordFunction range("apply", replica_row(modules[0], devices, 0));
    outputs.push_back(forward_parts(modules[0], parts_of(0)));
    return outputs;
  }

  // Which streams a foreign module works on is its library's affair.
  const std::vector<Device> none;
  const ReplicaStreams streams(ForeignModule<M> ? none : devices);
  std::optional<TeamLease> team;
  if (threads == ApplyThreads::one_each) team.emplace(modules.count);
  // Each replica's thread makes its output; the end of the team orders that before the reads below.
  using Slot = OutputSlot<Output>;
  std::vector<Slot, RecyclingAllocator<Slot>> slots(modules.count);
  const auto any_ended = [&slots] {
    return lockstep::detail::any_of(slots, [](const Slot& slot) { return slot.ended.load(); });
  };
  using Job = ApplyJob<M, PartsOf, Output>;
  static_assert(sizeof(Job) <= TeamLease::kRoom && alignof(Job) <= TeamLease::kRoomAlignment);
  alignas(Job) std::byte here[sizeof(Job)];
  Job& job =
      *::new (team ? team->room() : here) Job{modules.first,
                                              slots.data(),
                                              ThreadState::capture(),
                                              std::move(parts_of),
                                              &devices,
                                              streams.any_own() ? &streams : nullptr,
                                              ReplicaGroup(modules.count, synchronized, any_ended)};
  const struct End {
    Job& job;
    ~End() { std::destroy_at(&job); }
  } end{job};
  bool failed = false;
  const auto on_error = [&](std::size_t i, std::exception_ptr error) {
    slots[i].error = std::move(error);
    failed = true;
  };
  if (team) {
    team->run(job, on_error);
  } else {
    // This thread's calls with modules of this type usually take equally long.
    static constinit thread_local Pace pace;
    run_shared(modules.count, pace, job, on_error);
  }
  if (failed) {
    throw_first_failure(
        modules.count, [&](std::size_t i) { return slots[i].error; },
        [&](std::size_t i) {
          return device_of_replica(modules[i], devices, i).value_or(Device());
        });
  }
  for (std::size_t i = 0; i < modules.count; ++i) outputs.push_back(std::move(*slots[i].output));
  return outputs;
}

// Calls each module with its part of each list, in a thread of its own, and moves the results to
// `devices` if there are any.
template <class M, class... Part>
auto apply_and_move(std::vector<M>& modules, const std::vector<Device>& devices,
                    const std::vector<Part>&... parts) {
  auto outputs = apply_all(
      Modules(modules.data(), modules.size()), devices,
      [&](std::size_t i) { return std::tie(parts[i]...); }, false, ApplyThreads::one_each);
  if constexpr (!nested::PlainValue<typename decltype(outputs)::value_type>) {
    for (std::size_t i = 0; i < devices.size(); ++i) nested::move_to(outputs[i], devices[i]);
  }
  return outputs;
}

}  // namespace detail

// Calls modules[i] with inputs[i], all at once, and returns the results in that order. The lists
// may be what scatter returned.
//
// An input that is a std::tuple is a list of arguments, anything else is the one argument. All
// modules make progress together even where they outnumber the cores, so one may wait for another
// inside forward (replicas::all_reduce, replicas::barrier). Module 0 runs on the calling thread; so
// does a single module.
//
// With `devices`, the tensors of result i are moved to devices[i] if they are elsewhere, and
// derivatives flow through the move.
//
// **Torch counterpart.** torch.nn.parallel.parallel_apply, which starts a thread a module each
// time; moving the results is torch::nn::parallel::parallel_apply's.
// **Devices and streams.** Every thread sees the caller's state: grad and inference mode, autocast
// and current streams. Where `devices` lists a GPU again, that module runs on a stream of its own,
// between what the device's current stream holds before and after; the module's arguments,
// parameters, buffers and results are recorded on the streams that use them. Any other tensor that
// the module uses, and one within a type that holds no tensors as far as scatter knows, has to be
// recorded by its owner (record_stream).
// **Threads and exceptions.** Persistent worker threads, leased for the call. Once all modules have
// ended, the lowest one's exception is thrown as a ReplicaFailure of its own type, naming replica
// and device (without `devices`, where the module's first parameter is), with the others listed and
// the original nested. A single module's is thrown as it is. ValueError for lists that differ in
// length; an Error if threads cannot be started, and nothing has run then.
template <class M, class Input>
auto parallel_apply(std::vector<M>& modules, const std::vector<Input>& inputs,
                    const std::vector<Device>& devices = {}) {
  detail::check_count(modules.size(), "inputs", inputs.size());
  return detail::apply_and_move(modules, devices, inputs);
}

// With keyword arguments: module i gets kwargs_tup[i] behind its inputs.
template <class M, class Input, class K>
auto parallel_apply(std::vector<M>& modules, const std::vector<Input>& inputs,
                    const std::vector<K>& kwargs_tup,
                    const std::vector<Device>& devices = {}) requires(!std::is_same_v<K, Device>) {
  detail::check_count(modules.size(), "inputs", inputs.size());
  detail::check_count(modules.size(), "kwargs_tup", kwargs_tup.size());
  return detail::apply_and_move(modules, devices, inputs, kwargs_tup);
}

}  // namespace lockstep
