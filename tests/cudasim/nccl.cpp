// SPDX-License-Identifier: Apache-2.0

// The functions of NCCL that lockstep calls, over the simulated runtime. A collective runs as one
// step once every rank's call is at the head of its stream; a rank is ordered after those whose
// data it gets, and no others. Misuse that hangs the real library, or corrupts data, is reported.
//
// What is called with a non-blocking communicator is done within ncclCommGetAsyncError, which so
// stands for the real library's threads, and not in the first such call: until then nothing of it
// is in its stream, and any other call is a misuse. Ranks connect at their first call, for which
// the real library needs the ranks on both sides: a communicator that blocks waits for them there,
// or at the end of the group.
#include "cudasim/api.hpp"
#include "cudasim/library.hpp"

#include <nccl.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace cudasim::nccl {
namespace {

// What all ranks of a collective must agree on.
struct Signature {
  const char* function;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;

  friend bool operator==(const Signature&, const Signature&) = default;
};

std::string describe(const Signature& signature) {
  return text(signature.function, ", ", signature.count, " elements of type ", signature.type,
              ", operation ", signature.op, ", root ", signature.root);
}

// A collective that not every rank has called yet.
struct Open {
  Signature signature;
  std::shared_ptr<Collective> collective;
  std::vector<std::vector<std::byte>> sent;  // by rank, once it has run
  bool agreed = true;
};

// The messages from one rank to another: the number that each side has come to.
struct Messages {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};

// What a rank says where all ranks of a clique come together on the host.
struct Arrival {
  int color;
  int key;
};

// The communicators that were made together.
struct Clique {
  int number = 0;
  std::vector<int> devices;                             // by rank
  std::vector<std::uint64_t> calls;                     // that each rank has made
  std::map<std::uint64_t, std::shared_ptr<Open>> open;  // by the number of the call
  std::map<std::pair<int, int>, Messages> messages;     // by sender and receiver
  std::map<std::tuple<int, int, std::uint64_t>, std::shared_ptr<Open>> sent;
  // What each rank has called and may not have run, and which part of it is the rank's.
  std::map<int, std::vector<std::pair<std::shared_ptr<Collective>, int>>> called;
  // Ranks that have come to their first collective, and to the first message (sender, receiver,
  // true for the sender).
  std::set<int> connects;
  std::set<std::tuple<int, int, bool>> connects_messages;
  std::map<int, Arrival> arrived;                // at the split that is going on
  std::map<int, std::shared_ptr<Clique>> parts;  // of the last split, by colour
  std::uint64_t splits = 0;
  std::mutex mutex;
};

// The cliques that are being made by ncclCommInitRankConfig.
struct Gathering {
  std::size_t ranks = 0;
  std::map<int, int> devices;  // by rank
  std::shared_ptr<Clique> clique;
  ncclResult_t result = ncclSuccess;
  std::string error;
};
std::mutex gathering_mutex;
std::condition_variable gathering_changed;  // some rank has come to a call
std::map<std::string, std::shared_ptr<Gathering>> gatherings;

// What a non-blocking communicator has been called for. Used by one thread at a time.
struct InProgress {
  std::function<ncclResult_t()> step;  // empty when all is done; ncclInProgress: to be called again
  bool finalized = false;
  std::function<void()> withdraw;  // for an abort meanwhile

  // Both hold the communicator, which holds this.
  void forget() {
    step = nullptr;
    withdraw = nullptr;
  }
};

}  // namespace
}  // namespace cudasim::nccl

struct ncclComm {
  std::shared_ptr<cudasim::nccl::Clique> clique;  // null until it is ready
  int rank;
  std::shared_ptr<cudasim::nccl::InProgress> progress;  // null for a blocking one
};

namespace cudasim::nccl {
namespace {

struct Request {
  ncclComm comm;
  Signature signature;
  const void* in;
  void* out;
  cudaStream_t stream;
};

// A thread's group, which nests.
struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;  // of the first call in it that failed
  std::vector<Request> requests;
  // What aborts have ended. Before they are done the GPU has come past it.
  std::vector<std::shared_ptr<Operation>> aborted;
};
thread_local Group group;
thread_local std::string last_error;
// The rank that the thread has spoken for outside of groups, by clique.
thread_local std::map<int, int> spoken_for;
std::atomic<int> cliques{0};

template <class... Parts>
ncclResult_t failed(ncclResult_t status, const Parts&... parts) {
  last_error = text(parts...);
  if (group.depth > 0 && group.error == ncclSuccess) group.error = status;
  return status;
}

ncclResult_t failed(cudaError_t error, const char* call) {
  return failed(ncclUnhandledCudaError, call, ": Cuda failure ", static_cast<int>(error), " '",
                cudaGetErrorString(error), "'");
}

std::size_t width_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 4;
  }
}

template <class T, class W>
void combine(std::byte* total, const std::byte* next, std::size_t count, ncclRedOp_t op) {
  auto* const to = reinterpret_cast<T*>(total);
  const auto* const from = reinterpret_cast<const T*>(next);
  for (std::size_t i = 0; i < count; ++i) {
    const W a = static_cast<W>(to[i]);
    const W b = static_cast<W>(from[i]);
    switch (op) {
      case ncclProd:
        to[i] = T(static_cast<W>(a * b));
        break;
      case ncclMin:
        to[i] = T(b < a ? b : a);
        break;
      case ncclMax:
        to[i] = T(a < b ? b : a);
        break;
      default:
        to[i] = T(static_cast<W>(a + b));
    }
  }
}

template <class T, class W>
void divide(std::byte* total, std::size_t count, std::size_t ranks) {
  auto* const to = reinterpret_cast<T*>(total);
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = T(static_cast<W>(static_cast<W>(to[i]) / static_cast<W>(ranks)));
  }
}

// Calls function.operator()<T, W>(): T is what `type` names, W what it is computed in.
template <class Function>
void with_type(ncclDataType_t type, const Function& function) {
  switch (type) {
    case ncclUint8:
      return function.template operator()<std::uint8_t, std::uint8_t>();
    case ncclInt32:
      return function.template operator()<std::int32_t, std::int32_t>();
    case ncclInt64:
      return function.template operator()<std::int64_t, std::int64_t>();
    case ncclFloat16:
      return function.template operator()<__half, float>();
    case ncclBfloat16:
      return function.template operator()<__nv_bfloat16, float>();
    case ncclFloat32:
      return function.template operator()<float, float>();
    case ncclFloat64:
      return function.template operator()<double, double>();
    default:
      report(text("NCCL: a reduction of type ", type, ", which is not simulated"));
  }
}

bool is(const Signature& signature, std::string_view function) {
  return signature.function == function;
}
bool is_broadcast(const Signature& signature) { return is(signature, "ncclBroadcast"); }
bool to_all(const Signature& signature) {
  return !is_broadcast(signature) && !is(signature, "ncclReduce");
}

// Parts of `count` elements that a rank brings and gets.
std::size_t parts_in(const Signature& signature, std::size_t ranks) {
  return is(signature, "ncclReduceScatter") ? ranks : 1;
}
std::size_t parts_out(const Signature& signature, std::size_t ranks) {
  return is(signature, "ncclAllGather") ? ranks : 1;
}

// What a rank gets.
std::vector<std::byte> result_of(const Open& open, std::size_t own) {
  const Signature& signature = open.signature;
  const std::size_t ranks = open.sent.size();
  if (is_broadcast(signature)) return open.sent[static_cast<std::size_t>(signature.root)];
  if (is(signature, "ncclAllGather")) {
    std::vector<std::byte> all;
    for (const auto& part : open.sent) all.insert(all.end(), part.begin(), part.end());
    return all;
  }
  const std::size_t bytes = signature.count * width_of(signature.type);
  const std::size_t offset = parts_in(signature, ranks) > 1 ? own * bytes : 0;
  // From the last to the first: nobody promises an order.
  const std::byte* const last = open.sent.back().data() + offset;
  std::vector<std::byte> total(last, last + bytes);
  with_type(signature.type, [&]<class T, class W>() {
    for (std::size_t rank = ranks - 1; rank-- > 0;) {
      combine<T, W>(total.data(), open.sent[rank].data() + offset, signature.count, signature.op);
    }
    if (signature.op == ncclAvg) divide<T, W>(total.data(), signature.count, ranks);
  });
  return total;
}

// For ncclCommAbort: what the rank has called and nobody may ever complete.
void remember(Clique& clique, int rank, const std::shared_ptr<Collective>& collective, int part) {
  auto& called = clique.called[rank];
  std::erase_if(called, [](const auto& one) { return has_run(one.first); });
  called.emplace_back(collective, part);
}

// The collective that a rank's next call belongs to.
std::shared_ptr<Open> open_of(const Request& request) {
  Clique& clique = *request.comm.clique;
  const std::lock_guard lock(clique.mutex);
  const auto rank = static_cast<std::size_t>(request.comm.rank);
  const std::uint64_t number = clique.calls[rank]++;
  std::shared_ptr<Open>& open = clique.open[number];
  if (!open) {
    const auto ranks = clique.devices.size();
    open = std::make_shared<Open>();
    open->signature = request.signature;
    open->sent.resize(ranks);
    open->collective = make_collective(
        static_cast<int>(ranks),
        text(request.signature.function, " number ", number, " of clique ", clique.number));
  }
  if (!(open->signature == request.signature)) {
    open->agreed = false;
    report(text("NCCL MISMATCH: in collective ", number, " of clique ", clique.number, " rank ",
                rank, " calls [", describe(request.signature), "], another rank [",
                describe(open->signature), "]"));
  }
  const auto calls = std::minmax_element(clique.calls.begin(), clique.calls.end());
  const std::shared_ptr<Open> mine = open;
  remember(clique, request.comm.rank, mine->collective, request.comm.rank);
  if (*calls.first > number) clique.open.erase(number);
  return mine;
}

void issue_message(const Request& request);

void issue(const Request& request) {
  const Signature& signature = request.signature;
  if (is(signature, "ncclSend") || is(signature, "ncclRecv")) return issue_message(request);
  const std::shared_ptr<Open> open = open_of(request);
  const auto rank = static_cast<std::size_t>(request.comm.rank);
  const auto root = static_cast<std::size_t>(signature.root);
  const std::size_t ranks = open->sent.size();
  const std::size_t bytes = signature.count * width_of(signature.type);
  const std::size_t bytes_in = bytes * parts_in(signature, ranks);
  const std::size_t bytes_out = bytes * parts_out(signature, ranks);
  const bool is_root = rank == root;
  const bool reads = !is_broadcast(signature) || is_root;
  // A root that broadcasts in place leaves its data alone.
  const bool writes = is_broadcast(signature) ? request.in != request.out || !is_root
                                              : to_all(signature) || is_root;

  CollectivePart part;
  part.stream = request.stream;
  part.name = text(signature.function, " rank ", rank);
  if (reads) part.uses.push_back({request.in, bytes_in, false});
  if (writes) part.uses.push_back({request.out, bytes_out, true});
  part.waits_for.assign(ranks, to_all(signature) || (!is_broadcast(signature) && is_root));
  if (is_broadcast(signature)) part.waits_for[root] = true;
  if (reads) {
    part.load = [open, rank, bytes_in, in = static_cast<const std::byte*>(request.in)] {
      open->sent[rank].assign(in, in + bytes_in);
    };
  }
  if (writes) {
    part.store = [open, rank, out = static_cast<std::byte*>(request.out)] {
      if (!open->agreed) return;
      const std::vector<std::byte> result = result_of(*open, rank);
      std::copy(result.begin(), result.end(), out);
    };
  }
  join_collective(open->collective, request.comm.rank, std::move(part));
}

// A message is a collective of two, which both calls are blocked in until the other is there. The
// signature's root is the other rank.
void issue_message(const Request& request) {
  const Signature& signature = request.signature;
  const bool sends = is(signature, "ncclSend");
  const int from = sends ? request.comm.rank : signature.root;
  const int to = sends ? signature.root : request.comm.rank;
  const std::size_t bytes = signature.count * width_of(signature.type);
  Clique& clique = *request.comm.clique;
  std::shared_ptr<Open> open;
  {
    const std::lock_guard lock(clique.mutex);
    Messages& messages = clique.messages[{from, to}];
    const std::uint64_t number = sends ? messages.sent++ : messages.received++;
    std::shared_ptr<Open>& shared = clique.sent[{from, to, number}];
    if (!shared) {
      shared = std::make_shared<Open>();
      shared->signature = signature;
      shared->sent.resize(1);
      shared->collective = make_collective(2, text("message number ", number, " from rank ", from,
                                                   " to rank ", to, " of clique ", clique.number));
    }
    if (shared->signature.count != signature.count || shared->signature.type != signature.type) {
      shared->agreed = false;
      report(text("NCCL MISMATCH: message ", number, " from rank ", from, " to rank ", to, ": [",
                  describe(signature), "] and [", describe(shared->signature), "]"));
    }
    open = shared;
    if (std::min(messages.sent, messages.received) > number) clique.sent.erase({from, to, number});
    remember(clique, request.comm.rank, open->collective, sends ? 0 : 1);
  }
  CollectivePart part;
  part.stream = request.stream;
  part.name = text(signature.function, " rank ", request.comm.rank);
  part.waits_for = {!sends, false};
  if (sends) {
    part.uses.push_back({request.in, bytes, false});
    part.load = [open, bytes, in = static_cast<const std::byte*>(request.in)] {
      open->sent[0].assign(in, in + bytes);
    };
  } else {
    part.uses.push_back({request.out, bytes, true});
    part.store = [open, out = static_cast<std::byte*>(request.out)] {
      if (open->agreed) std::copy(open->sent[0].begin(), open->sent[0].end(), out);
    };
  }
  join_collective(open->collective, sends ? 0 : 1, std::move(part));
}

ncclResult_t begin(const ncclComm& comm, std::function<ncclResult_t()> step,
                   std::function<void()> withdraw = {}) {
  *comm.progress = {std::move(step), false, std::move(withdraw)};
  return ncclInProgress;
}

bool is_message(const Signature& signature) {
  return is(signature, "ncclSend") || is(signature, "ncclRecv");
}

// Whether the ranks that a call is for can be connected.
bool connected(const Request& request) {
  Clique& clique = *request.comm.clique;
  const std::lock_guard lock(clique.mutex);
  const int rank = request.comm.rank;
  if (!is_message(request.signature)) {
    clique.connects.insert(rank);
    return clique.connects.size() == clique.devices.size();
  }
  const int peer = request.signature.root;
  const bool sends = is(request.signature, "ncclSend");
  auto& ends = clique.connects_messages;
  ends.emplace(sends ? rank : peer, sends ? peer : rank, sends);
  return ends.count({sends ? rank : peer, sends ? peer : rank, !sends}) == 1;
}

// The real library's thread may issue a call until the abort.
void expect_live_memory(const Request& request) {
  for (const void* const data : {request.in, static_cast<const void*>(request.out)}) {
    const bool freed = [&] {
      const SimulatorLock lock(simulator_mutex);
      const Block* const block = data == nullptr ? nullptr : machine().memory.find(data);
      return block != nullptr && (!block->live || block->freed_by);
    }();
    if (!freed) continue;
    return report(text("NCCL FREED MEMORY: ncclCommAbort for rank ", request.comm.rank, ", whose ",
                       request.signature.function,
                       " is in progress, with memory that has been freed"));
  }
}

ncclResult_t begin(const std::vector<Request>& requests) {
  return begin(
      requests.front().comm,
      [requests, looked = false]() mutable {
        bool all = std::exchange(looked, true);
        for (const Request& request : requests) all = connected(request) && all;
        if (!all) return ncclInProgress;
        for (const Request& request : requests) issue(request);
        return ncclSuccess;
      },
      [requests] {
        for (const Request& request : requests) expect_live_memory(request);
      });
}

// For communicators that block: waits for the ranks that the calls are for, as long as there are
// some to connect, and no longer than a host thread waits elsewhere. False if they do not come.
bool connect(const std::vector<Request>& requests, const char* function) {
  const Request* waits = nullptr;
  std::unique_lock lock(gathering_mutex);
  for (const Request& request : requests) (void)connected(request);  // before any of them waits
  gathering_changed.notify_all();
  const std::chrono::milliseconds patience(config().patience_ms);
  const bool all = gathering_changed.wait_for(lock, patience, [&] {
    waits = nullptr;
    for (const Request& request : requests) {
      if (!connected(request)) waits = &request;
    }
    return waits == nullptr;
  });
  if (all) return true;
  report(text("NCCL DEADLOCK: ", function, " waits for the other ranks of the first ",
              waits->signature.function, " for rank ", waits->comm.rank, " of clique ",
              waits->comm.clique->number));
  (void)failed(ncclSystemError, function, ": the other ranks did not come");
  return false;
}

// The communicator, if it is one that may be called.
ncclComm* ready(ncclComm_t comm, const char* function) {
  ncclComm* const known = alive<ncclComm>().find(comm);
  if (known == nullptr) {
    report(text("NCCL: ", function, " with a communicator that is none"));
    (void)failed(ncclInvalidArgument, function, ": invalid communicator");
    return nullptr;
  }
  if (known->progress && (known->progress->step || known->progress->finalized)) {
    report(text(
        "NCCL NOT READY: ", function, " for rank ", known->rank,
        known->progress->step ? ", whose last call is in progress" : ", which has been finalized"));
    (void)failed(
        ncclInvalidArgument, function,
        ": Attempt to use communicator before the previous operation returned ncclSuccess");
    return nullptr;
  }
  return known;
}

ncclResult_t call(ncclComm_t comm, const Signature& signature, const void* in, void* out,
                  cudaStream_t stream) {
  const Unseen unseen;
  const ncclComm* const known = ready(comm, signature.function);
  if (known == nullptr) return ncclInvalidArgument;
  const Clique& clique = *known->clique;
  const auto ranks = static_cast<int>(clique.devices.size());
  if (signature.root < 0 || signature.root >= ranks) {
    return failed(ncclInvalidArgument, signature.function, ": invalid root ", signature.root,
                  " (root should be in the 0..", ranks, " range)");
  }
  const std::size_t bytes = signature.count * width_of(signature.type);
  const cudaError_t refused =
      ApiCall(signature.function).on(stream).touching(out, in, bytes).run([](Machine&) {
        return cudaSuccess;
      });
  if (refused != cudaSuccess) return failed(refused, signature.function);
  const int device = clique.devices[static_cast<std::size_t>(known->rank)];
  if (stream->device != device) {
    report(text("NCCL WRONG DEVICE: rank ", known->rank, ", which is device ", device,
                ", is given ", cudasim::describe(*stream)));
    return failed(cudaErrorInvalidResourceHandle, signature.function);
  }
  if (is_message(signature) && signature.root == known->rank) {
    report(text("NCCL NOT SIMULATED: ", signature.function, " to the rank itself"));
    return failed(ncclInvalidUsage, signature.function, ": not simulated");
  }
  if (signature.count == 0) return ncclSuccess;
  const Request request{*known, signature, in, out, stream};
  if (group.depth > 0) {
    group.requests.push_back(request);
    return ncclSuccess;
  }
  if (known->progress) return begin({request});
  const int before = spoken_for.try_emplace(clique.number, known->rank).first->second;
  if (before != known->rank) {
    report(text("NCCL NO GROUP: one thread calls ", signature.function, " for rank ", known->rank,
                " and before it for rank ", before,
                " outside of a group, and would wait in the first call for the second"));
  }
  if (!connect({request}, signature.function)) return ncclSystemError;
  issue(request);
  return ncclSuccess;
}

void await_aborted(const std::vector<std::shared_ptr<Operation>>& aborted) {
  for (const auto& each : aborted) await_end(each, "ncclCommAbort");
}

cudaError_t enter(const char* function) {
  return ApiCall(function).without_context().run([](Machine&) { return cudaSuccess; });
}

// A call that makes the ranks' GPUs current, and then the caller's own again, which so gets a
// context.
cudaError_t enter_and_return(const char* function) {
  return ApiCall(function).run([](Machine&) { return cudaSuccess; });
}

// With all ranks there.
void make_clique(Gathering& all) {
  auto clique = std::make_shared<Clique>();
  clique->number = cliques.fetch_add(1);
  for (const auto& [rank, device] : all.devices) {
    const auto same = std::find(clique->devices.begin(), clique->devices.end(), device);
    if (same != clique->devices.end()) {
      all.result = ncclInvalidUsage;
      all.error = text("Duplicate GPU detected : rank ", rank, " and rank ",
                       same - clique->devices.begin(), " both on CUDA device ", device);
      return;
    }
    clique->devices.push_back(device);
  }
  clique->calls.resize(clique->devices.size());
  all.clique = std::move(clique);
}

// With all ranks at the split.
void make_parts(Clique& clique) {
  clique.parts.clear();
  for (const auto& [member, arrival] : clique.arrived) {
    if (arrival.color == NCCL_SPLIT_NOCOLOR) continue;
    auto& made = clique.parts[arrival.color];
    if (made) continue;
    made = std::make_shared<Clique>();
    made->number = cliques.fetch_add(1);
    std::vector<std::tuple<int, int>> order;  // key, rank
    for (const auto& [other, theirs] : clique.arrived) {
      if (theirs.color == arrival.color) order.emplace_back(theirs.key, other);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [its_key, other] : order) {
      made->devices.push_back(clique.devices[static_cast<std::size_t>(other)]);
    }
    made->calls.resize(made->devices.size());
  }
  clique.arrived.clear();
  ++clique.splits;
}

}  // namespace
}  // namespace cudasim::nccl

using namespace cudasim::nccl;

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclInProgress:
      return "NCCL operation in progress";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "internal error - please report this issue to the NCCL developers";
  }
}

const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
  const cudasim::Unseen unseen;
  const cudaError_t refused = enter_and_return("ncclCommInitAll");
  if (refused != cudaSuccess) return failed(refused, "ncclCommInitAll");
  if (comms == nullptr || count < 1) {
    return failed(ncclInvalidArgument, "ncclCommInitAll: invalid device count ", count);
  }
  auto clique = std::make_shared<Clique>();
  clique->number = cliques.fetch_add(1);
  for (int rank = 0; rank < count; ++rank) {
    const int device = devices == nullptr ? rank : devices[rank];
    if (device < 0 || device >= cudasim::config().devices) {
      return failed(ncclInvalidArgument, "ncclCommInitAll: invalid device ", device);
    }
    const auto& known = clique->devices;
    const auto same = std::find(known.begin(), known.end(), device);
    if (same != known.end()) {
      return failed(ncclInvalidUsage, "Duplicate GPU detected : rank ", rank, " and rank ",
                    same - known.begin(), " both on CUDA device ", device);
    }
    clique->devices.push_back(device);
  }
  clique->calls.resize(clique->devices.size());
  for (int rank = 0; rank < count; ++rank) {
    comms[rank] = cudasim::alive<ncclComm>().make({clique, rank, nullptr});
  }
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const cudaError_t refused = enter("ncclGetUniqueId");
  if (refused != cudaSuccess) return failed(refused, "ncclGetUniqueId");
  static std::atomic<std::uint64_t> ids{0};
  const std::uint64_t number = ids.fetch_add(1) + 1;
  std::memset(id->internal, 0x5a, sizeof(id->internal));
  std::memcpy(id->internal, &number, sizeof(number));
  return ncclSuccess;
}

// For the current device.
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const cudasim::Unseen unseen;
  int device = 0;
  const cudaError_t refused =
      cudasim::ApiCall("ncclCommInitRankConfig").run([&](cudasim::Machine&) {
        device = cudasim::current_device();
        return cudaSuccess;
      });
  if (refused != cudaSuccess) return failed(refused, "ncclCommInitRankConfig");
  if (group.depth > 0 || config == nullptr || config->blocking != 0) {
    cudasim::report("NCCL NOT SIMULATED: ncclCommInitRankConfig that blocks, or in a group");
    return failed(ncclInvalidUsage, "ncclCommInitRankConfig: not simulated");
  }
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    return failed(ncclInvalidArgument, "ncclCommInitRankConfig: invalid rank ", rank, " of ",
                  ranks);
  }
  const std::string name(id.internal, sizeof(id.internal));
  const std::lock_guard lock(gathering_mutex);
  std::shared_ptr<Gathering>& shared = gatherings[name];
  if (!shared) shared = std::make_shared<Gathering>();
  const std::shared_ptr<Gathering> all = shared;
  all->ranks = static_cast<std::size_t>(ranks);
  if (!all->devices.emplace(rank, device).second) {
    cudasim::report(cudasim::text("NCCL: ncclCommInitRankConfig twice for rank ", rank));
    return failed(ncclInvalidUsage, "ncclCommInitRankConfig: rank ", rank, " is there already");
  }
  const auto complete = [all] { return all->clique || all->result != ncclSuccess; };
  if (all->devices.size() == all->ranks) {
    make_clique(*all);
    gatherings.erase(name);  // an id serves once
  }
  *comm = cudasim::alive<ncclComm>().make(
      {nullptr, rank, std::make_shared<cudasim::nccl::InProgress>()});
  return begin(
      **comm,
      [all, complete, made = *comm, looked = false]() mutable {
        const std::lock_guard looks(gathering_mutex);
        if (!complete()) return ncclInProgress;
        if (!all->clique) return failed(all->result, all->error);
        if (!std::exchange(looked, true)) return ncclInProgress;
        made->clique = all->clique;
        return ncclSuccess;
      },
      [all, name, complete, rank] {
        const std::lock_guard looks(gathering_mutex);
        if (complete()) return;
        all->devices.erase(rank);
        if (all->devices.empty()) gatherings.erase(name);
      });
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  const cudasim::Unseen unseen;
  const ncclComm* const known = ready(comm, "ncclCommCount");
  if (known == nullptr) return ncclInvalidArgument;
  *count = static_cast<int>(known->clique->devices.size());
  return ncclSuccess;
}

// The configuration is the parent's.
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t*) {
  const cudasim::Unseen unseen;
  const cudaError_t refused = enter_and_return("ncclCommSplit");
  if (refused != cudaSuccess) return failed(refused, "ncclCommSplit");
  const ncclComm* const known = ready(comm, "ncclCommSplit");
  if (known == nullptr) return ncclInvalidArgument;
  if (!known->progress) {
    cudasim::report("NCCL NOT SIMULATED: ncclCommSplit of a communicator that blocks");
    return failed(ncclInvalidUsage, "ncclCommSplit: not simulated");
  }
  const std::shared_ptr<Clique> clique = known->clique;
  const int rank = known->rank;
  *part = nullptr;
  const std::lock_guard lock(gathering_mutex);
  const std::uint64_t before = clique->splits;
  clique->arrived[rank] = {color, key};
  if (clique->arrived.size() == clique->devices.size()) make_parts(*clique);
  const auto complete = [clique, before] { return clique->splits != before; };
  const auto take = [clique, rank, color, part] {
    if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
    const std::shared_ptr<Clique>& mine = clique->parts.at(color);
    const int device = clique->devices[static_cast<std::size_t>(rank)];
    const auto at = std::find(mine->devices.begin(), mine->devices.end(), device);
    *part = cudasim::alive<ncclComm>().make({mine, static_cast<int>(at - mine->devices.begin()),
                                             std::make_shared<cudasim::nccl::InProgress>()});
    (void)begin(**part, [] { return ncclSuccess; });
    return ncclSuccess;
  };
  return begin(
      *known,
      [complete, take] {
        const std::lock_guard looks(gathering_mutex);
        return complete() ? take() : ncclInProgress;
      },
      [clique, complete, rank] {
        const std::lock_guard looks(gathering_mutex);
        if (!complete()) clique->arrived.erase(rank);
      });
}

// What a test has the next such call fail with is the answer: cudaErrorUnknown that another rank is
// gone, and whatever else that this one's GPU has failed.
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const cudasim::Unseen unseen;
  const cudaError_t injected = enter("ncclCommGetAsyncError");
  const ncclComm* const known = cudasim::alive<ncclComm>().find(comm);
  if (known == nullptr) {
    cudasim::report("NCCL: ncclCommGetAsyncError of a communicator that is none");
    return failed(ncclInvalidArgument, "ncclCommGetAsyncError: invalid communicator");
  }
  *error = injected == cudaSuccess        ? ncclSuccess
           : injected == cudaErrorUnknown ? ncclRemoteError
                                          : ncclUnhandledCudaError;
  if (injected != cudaSuccess || !known->progress || !known->progress->step) return ncclSuccess;
  const std::shared_ptr<cudasim::nccl::InProgress> progress = known->progress;
  *error = progress->step();
  if (*error == ncclSuccess) progress->forget();
  return ncclSuccess;
}

// All that was called has run on the GPU when it is done.
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const cudasim::Unseen unseen;
  const cudaError_t refused = enter("ncclCommFinalize");
  if (refused != cudaSuccess) return failed(refused, "ncclCommFinalize");
  const ncclComm* const known = ready(comm, "ncclCommFinalize");
  if (known == nullptr) return ncclInvalidArgument;
  if (!known->progress) {
    cudasim::report("NCCL NOT SIMULATED: ncclCommFinalize of a communicator that blocks");
    return failed(ncclInvalidUsage, "ncclCommFinalize: not simulated");
  }
  (void)begin(*known, [clique = known->clique, rank = known->rank] {
    const std::lock_guard lock(clique->mutex);
    for (const auto& called : clique->called[rank]) {
      if (!has_run(called.first)) return ncclInProgress;
    }
    return ncclSuccess;
  });
  known->progress->finalized = true;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const cudasim::Unseen unseen;
  (void)enter_and_return("ncclCommDestroy");
  const ncclComm* const known = cudasim::alive<ncclComm>().find(comm);
  if (known != nullptr && known->progress && known->progress->step) {
    cudasim::report(cudasim::text("NCCL NOT READY: ncclCommDestroy for rank ", known->rank,
                                  ", whose last call is in progress"));
    return failed(ncclInvalidArgument, "ncclCommDestroy: the communicator is not ready");
  }
  if (known != nullptr) {
    const std::lock_guard lock(known->clique->mutex);
    for (const auto& called : known->clique->called[known->rank]) {
      if (!has_run(called.first)) {
        cudasim::report(cudasim::text("NCCL: ncclCommDestroy for rank ", known->rank,
                                      " while its collectives run; the real one blocks"));
        break;
      }
    }
  }
  if (cudasim::alive<ncclComm>().end(comm)) return ncclSuccess;
  cudasim::report("NCCL: ncclCommDestroy of a communicator that is none");
  return failed(ncclInvalidArgument, "ncclCommDestroy: invalid communicator");
}

// What the rank has called and has not run ends without having done anything, once all before it in
// its stream has ended. (Where one process has all ranks of a communicator that blocks, the last
// abort is the one that waits; here none does.)
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const cudasim::Unseen unseen;
  (void)enter_and_return("ncclCommAbort");
  if (const ncclComm* const known = cudasim::alive<ncclComm>().find(comm)) {
    const std::shared_ptr<cudasim::nccl::InProgress> progress = known->progress;
    if (progress && progress->step && progress->withdraw) progress->withdraw();
    if (progress) progress->forget();
    if (known->clique) {
      const std::lock_guard lock(known->clique->mutex);
      for (const auto& [collective, part] : known->clique->called[known->rank]) {
        const auto aborted = abort_collective(collective, part);
        if (aborted && progress) group.aborted.push_back(aborted);
      }
    }
  }
  if (group.depth == 0) await_aborted(std::exchange(group.aborted, {}));
  if (cudasim::alive<ncclComm>().end(comm)) return ncclSuccess;
  cudasim::report("NCCL: ncclCommAbort of a communicator that is none");
  return failed(ncclInvalidArgument, "ncclCommAbort: invalid communicator");
}

ncclResult_t ncclGroupStart() {
  const cudaError_t refused = enter("ncclGroupStart");
  if (refused != cudaSuccess) return failed(refused, "ncclGroupStart");
  ++group.depth;
  return ncclSuccess;
}

// A group with a call that failed starts nothing.
ncclResult_t ncclGroupEnd() {
  const cudasim::Unseen unseen;
  const cudaError_t refused = enter_and_return("ncclGroupEnd");
  if (group.depth == 0) {
    cudasim::report("NCCL: ncclGroupEnd without ncclGroupStart");
    return failed(ncclInvalidUsage, "ncclGroupEnd: not in a group call");
  }
  if (refused != cudaSuccess) (void)failed(refused, "ncclGroupEnd");
  if (--group.depth > 0) return ncclSuccess;
  const Group ended = std::exchange(group, {});
  await_aborted(ended.aborted);
  if (ended.error != ncclSuccess) return ended.error;
  std::map<cudasim::nccl::InProgress*, std::vector<Request>> later;
  std::vector<Request> now;
  for (const Request& request : ended.requests) {
    (request.comm.progress ? later[request.comm.progress.get()] : now).push_back(request);
  }
  if (!connect(now, "ncclGroupEnd")) return ncclSystemError;
  for (const Request& request : now) issue(request);
  if (!later.empty() && later.begin()->second.size() != ended.requests.size()) {
    cudasim::report("NCCL NOT SIMULATED: a group of several communicators, not all of which block");
  }
  for (const auto& [progress, requests] : later) (void)begin(requests);
  return later.empty() ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {"ncclBroadcast", count, type, ncclSum, root}, in, out, stream);
}

ncclResult_t ncclReduce(const void* in, void* out, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {"ncclReduce", count, type, op, root}, in, out, stream);
}

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {"ncclAllReduce", count, type, op, 0}, in, out, stream);
}

ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {"ncclAllGather", count, type, ncclSum, 0}, in, out, stream);
}

ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {"ncclReduceScatter", count, type, op, 0}, in, out, stream);
}

ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {"ncclSend", count, type, ncclSum, peer}, in, nullptr, stream);
}

ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call(comm, {"ncclRecv", count, type, ncclSum, peer}, nullptr, out, stream);
}

}  // extern "C"
