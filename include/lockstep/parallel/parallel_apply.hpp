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

// Calls a module with its part of each list of inputs. A first part that is a tuple is the argument
// list, any other is the only argument; keyword arguments, if any, come last.
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

// The device of replica i: devices[i] or, without devices, that of the module's first parameter or
// buffer.
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

// The timeline's row for replica i: its device's or, if that is unknown, its thread's.
template <class M>
profile::Row replica_row(const M& module, const std::vector<Device>& devices, std::size_t i) {
  if (!profile::enabled()) return {};
  const std::optional<Device> device = device_of_replica(module, devices, i);
  return device ? profile::Row(*device) : profile::Row();
}

// What one replica returns or throws, and its mark that it has ended: all that its thread writes
// and others read. The padding keeps two slots out of one cache line (cores fetch lines of 64 bytes
// in pairs).
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
    // Comes first: if setting the state throws, the end of this scope wakes the waiting replicas.
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

// The modules of an apply. (std::span over a user's type costs more compile time than the rest of
// an apply.)
template <class M>
struct Modules {
  M* first;
  std::size_t count;

  Modules(M* modules, std::size_t size) : first(modules), count(size) {}
  M& operator[](std::size_t i) const { return first[i]; }
};

enum class ApplyThreads {
  one_each,
  // As many as save time; where each module takes a few microseconds, usually the caller's alone.
  shared
};

inline void check_count(std::size_t modules, const char* what, std::size_t count) {
  check<ValueError>(modules == count, "The number of modules ", modules,
                    " is not equal to the number of ", what, " ", count);
}

// Calls all modules at once and returns their results in order. `parts_of(i)` gives module i's
// arguments as a tuple of references: its part of the inputs, then any keyword arguments.
// `synchronized` is what replicas::synchronized() returns.
template <class M, class PartsOf>
auto apply_all(Modules<M> modules, const std::vector<Device>& devices, PartsOf parts_of,
               bool synchronized = false, ApplyThreads threads = ApplyThreads::shared) {
  using Output = std::remove_cvref_t<decltype(forward_parts(modules[0], parts_of(0)))>;
  if (!devices.empty()) check_count(modules.count, "devices", devices.size());
  std::vector<Output> outputs;
  outputs.reserve(modules.count);
  if (modules.count == 0) return outputs;
  const auto device_of = [&](std::size_t i) {
    return device_of_replica(modules[i], devices, i).value_or(Device());
  };
  if (modules.count == 1) {
    // `replicas` sees a single replica, even if this runs within a replica of another group.
    const ScopedValue<CurrentReplica> alone(current_replica, {});
    const profile::RecordFunction range("apply", replica_row(modules[0], devices, 0));
    if (const std::exception_ptr error =
            thrown_by([&] { outputs.push_back(forward_parts(modules[0], parts_of(0))); })) {
      throw_first_failure(
          1, [&](std::size_t) { return error; }, device_of);
    }
    return outputs;
  }

  // A foreign module's library chooses its streams.
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
        modules.count, [&](std::size_t i) { return slots[i].error; }, device_of);
  }
  for (std::size_t i = 0; i < modules.count; ++i) outputs.push_back(std::move(*slots[i].output));
  return outputs;
}

// Calls each module with its part of each list, in a thread of its own, and moves result i to
// devices[i] if devices are given.
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

// Calls modules[i] with inputs[i], all at once, and returns the results in order.
//
// An input that is a std::tuple is a list of arguments; anything else is the one argument. The
// lists may be what scatter returned. With `devices`, the tensors of result i are moved to
// devices[i], differentiably. Module 0 runs on the calling thread. All modules make progress
// together, even if they outnumber the cores, so one may wait for another inside forward
// (replicas::all_reduce, replicas::barrier).
//
// **Torch counterpart.** torch.nn.parallel.parallel_apply, which starts new threads at each call;
// torch::nn::parallel::parallel_apply also moves the results.
// **Devices and streams.** Every thread has the caller's state: grad and inference mode, autocast
// and current streams. A module on a GPU that `devices` has listed before runs on a stream of its
// own, after the work already on the device's current stream and before what follows there; its
// arguments, parameters, buffers and results are recorded on the streams that use them. You must
// record any other tensor that the module uses (record_stream).
// **Threads and exceptions.** Uses persistent worker threads, leased for the call. Once all modules
// have ended, throws the lowest failed one's exception as a ReplicaFailure of the same type that
// names replica and device, lists the others and nests the original. ValueError for lists that
// differ in length; an Error if threads cannot be started, before anything has run.
template <class M, class Input>
auto parallel_apply(std::vector<M>& modules, const std::vector<Input>& inputs,
                    const std::vector<Device>& devices = {}) {
  detail::check_count(modules.size(), "inputs", inputs.size());
  return detail::apply_and_move(modules, devices, inputs);
}

// With keyword arguments: module i gets kwargs_tup[i] after its inputs.
template <class M, class Input, class K>
auto parallel_apply(std::vector<M>& modules, const std::vector<Input>& inputs,
                    const std::vector<K>& kwargs_tup,
                    const std::vector<Device>& devices = {}) requires(!std::is_same_v<K, Device>) {
  detail::check_count(modules.size(), "inputs", inputs.size());
  detail::check_count(modules.size(), "kwargs_tup", kwargs_tup.size());
  return detail::apply_and_move(modules, devices, inputs, kwargs_tup);
}

}  // namespace lockstep
