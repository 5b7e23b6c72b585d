// SPDX-License-Identifier: Apache-2.0

// The functions of NCCL that lockstep calls, over the simulated runtime. A collective runs as one
// step once every rank's call is at the head of its stream; a rank is ordered after those whose
// data it gets, and no others. Misuse that hangs the real library, or corrupts data, is reported.
#include "cudasim/api.hpp"
#include "cudasim/library.hpp"

#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
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

// The communicators that were made together.
struct Clique {
  int number;
  std::vector<int> devices;                             // by rank
  std::vector<std::uint64_t> calls;                     // that each rank has made
  std::map<std::uint64_t, std::shared_ptr<Open>> open;  // by the number of the call
  std::mutex mutex;
};

}  // namespace
}  // namespace cudasim::nccl

struct ncclComm {
  std::shared_ptr<cudasim::nccl::Clique> clique;
  int rank;
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

template <class T>
void add(std::byte* total, const std::byte* summand, std::size_t count) {
  auto* const to = reinterpret_cast<T*>(total);
  const auto* const from = reinterpret_cast<const T*>(summand);
  for (std::size_t i = 0; i < count; ++i) to[i] += from[i];
}

void add(std::byte* total, const std::byte* summand, std::size_t count, ncclDataType_t type) {
  switch (type) {
    case ncclInt32:
      return add<std::int32_t>(total, summand, count);
    case ncclInt64:
      return add<std::int64_t>(total, summand, count);
    case ncclFloat32:
      return add<float>(total, summand, count);
    case ncclFloat64:
      return add<double>(total, summand, count);
    default:
      report(text("NCCL: a sum of type ", type, ", which is not simulated"));
  }
}

bool is_broadcast(const Signature& signature) {
  return std::string_view(signature.function) == "ncclBroadcast";
}

// What a rank gets.
std::vector<std::byte> result_of(const Open& open) {
  const Signature& signature = open.signature;
  if (is_broadcast(signature)) return open.sent[static_cast<std::size_t>(signature.root)];
  // From the last to the first: nobody promises an order.
  std::vector<std::byte> total = open.sent.back();
  for (std::size_t rank = open.sent.size() - 1; rank-- > 0;) {
    add(total.data(), open.sent[rank].data(), signature.count, signature.type);
  }
  return total;
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
  if (*calls.first > number) clique.open.erase(number);
  return mine;
}

void issue(const Request& request) {
  const Signature& signature = request.signature;
  const std::shared_ptr<Open> open = open_of(request);
  const auto rank = static_cast<std::size_t>(request.comm.rank);
  const auto root = static_cast<std::size_t>(signature.root);
  const std::size_t ranks = open->sent.size();
  const std::size_t bytes = signature.count * width_of(signature.type);
  const bool is_root = rank == root;
  const bool reads = !is_broadcast(signature) || is_root;
  // A root that broadcasts in place leaves its data alone.
  const bool writes = is_broadcast(signature) ? request.in != request.out || !is_root : is_root;

  CollectivePart part;
  part.stream = request.stream;
  part.name = text(signature.function, " rank ", rank);
  if (reads) part.uses.push_back({request.in, bytes, false});
  if (writes) part.uses.push_back({request.out, bytes, true});
  part.waits_for.assign(ranks, !is_broadcast(signature) && is_root);
  if (is_broadcast(signature)) part.waits_for[root] = true;
  if (reads) {
    part.load = [open, rank, bytes, in = static_cast<const std::byte*>(request.in)] {
      open->sent[rank].assign(in, in + bytes);
    };
  }
  if (writes) {
    part.store = [open, out = static_cast<std::byte*>(request.out)] {
      if (!open->agreed) return;
      const std::vector<std::byte> result = result_of(*open);
      std::copy(result.begin(), result.end(), out);
    };
  }
  join_collective(open->collective, request.comm.rank, std::move(part));
}

ncclResult_t call(ncclComm_t comm, const Signature& signature, const void* in, void* out,
                  cudaStream_t stream) {
  const Unseen unseen;
  const std::size_t bytes = signature.count * width_of(signature.type);
  const cudaError_t refused =
      ApiCall(signature.function).on(stream).touching(out, in, bytes).run([](Machine&) {
        return cudaSuccess;
      });
  if (refused != cudaSuccess) return failed(refused, signature.function);
  const ncclComm* const known = alive<ncclComm>().find(comm);
  if (known == nullptr) {
    report(text("NCCL: ", signature.function, " with a communicator that is none"));
    return failed(ncclInvalidArgument, signature.function, ": invalid communicator");
  }
  const Clique& clique = *known->clique;
  const auto ranks = static_cast<int>(clique.devices.size());
  if (signature.root < 0 || signature.root >= ranks) {
    return failed(ncclInvalidArgument, signature.function, ": invalid root ", signature.root,
                  " (root should be in the 0..", ranks, " range)");
  }
  const int device = clique.devices[static_cast<std::size_t>(known->rank)];
  if (stream->device != device) {
    report(text("NCCL WRONG DEVICE: rank ", known->rank, ", which is device ", device,
                ", is given ", cudasim::describe(*stream)));
    return failed(cudaErrorInvalidResourceHandle, signature.function);
  }
  if (signature.count == 0) return ncclSuccess;
  const Request request{*known, signature, in, out, stream};
  if (group.depth > 0) {
    group.requests.push_back(request);
    return ncclSuccess;
  }
  const int before = spoken_for.try_emplace(clique.number, known->rank).first->second;
  if (before != known->rank) {
    report(text("NCCL NO GROUP: one thread calls ", signature.function, " for rank ", known->rank,
                " and before it for rank ", before,
                " outside of a group, and would wait in the first call for the second"));
  }
  issue(request);
  return ncclSuccess;
}

cudaError_t enter(const char* function) {
  return ApiCall(function).run([](Machine&) { return cudaSuccess; });
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
    default:
      return "internal error - please report this issue to the NCCL developers";
  }
}

const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
  const cudasim::Unseen unseen;
  const cudaError_t refused = enter("ncclCommInitAll");
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
    comms[rank] = cudasim::alive<ncclComm>().make({clique, rank});
  }
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const cudasim::Unseen unseen;
  (void)enter("ncclCommAbort");
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
  const cudaError_t refused = enter("ncclGroupEnd");
  if (group.depth == 0) {
    cudasim::report("NCCL: ncclGroupEnd without ncclGroupStart");
    return failed(ncclInvalidUsage, "ncclGroupEnd: not in a group call");
  }
  if (refused != cudaSuccess) (void)failed(refused, "ncclGroupEnd");
  if (--group.depth > 0) return ncclSuccess;
  const Group ended = std::exchange(group, {});
  if (ended.error != ncclSuccess) return ended.error;
  for (const Request& request : ended.requests) issue(request);
  return ncclSuccess;
}

ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {"ncclBroadcast", count, type, ncclSum, root}, in, out, stream);
}

ncclResult_t ncclReduce(const void* in, void* out, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  if (op != ncclSum) cudasim::report("NCCL: ncclReduce with an operation that is not simulated");
  return call(comm, {"ncclReduce", count, type, op, root}, in, out, stream);
}

}  // extern "C"
