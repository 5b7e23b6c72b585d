// SPDX-License-Identifier: Apache-2.0

// What lockstep's scatter and gather take beside plain copies of as many bytes, on one GPU.
//
//   copy_benchmark                  with LOCKSTEP_CUDA_DEVICES=4, four devices of one GPU
//   copy_benchmark --mib 1 --rounds 3
//
// A line for each case: its name, the bytes, then the lower quartile, the median and the upper
// quartile in microseconds of lockstep's side and of the plain one, separated by tabs.
//
//   scatter/page-locked/N   host to N devices, from page-locked memory, beside one cudaMemcpyAsync
//                           out of the same
//   scatter/ordinary/N      the same out of ordinary memory, on both sides
//   gather/N                from N devices to the first, beside one copy within the GPU
//   gather-of-parts/N       the same beside N copies of a part each
//
// Each side ends with the host waiting for the copies. What lockstep allocates is its time, too;
// the plain copies have memory.
#include <lockstep/lockstep.hpp>

#include "samples.hpp"
#include "support/arguments.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

namespace {

namespace ls = lockstep;

void check(cudaError_t status, const char* call) {
  ls::check<ls::Error>(status == cudaSuccess, call, ": ", cudaGetErrorString(status));
}

// Memory for plain copies, and a stream for them.
class Plain {
 public:
  explicit Plain(std::size_t bytes) : bytes_(bytes) {
    check(cudaMallocHost(&host_, bytes), "cudaMallocHost");
    check(cudaMalloc(&source_, bytes), "cudaMalloc");
    check(cudaMalloc(&target_, bytes), "cudaMalloc");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    std::fill_n(static_cast<std::byte*>(host_), bytes, std::byte{1});
    copy(source_, host_, cudaMemcpyHostToDevice);
  }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;
  ~Plain() {
    (void)cudaStreamDestroy(stream_);
    (void)cudaFree(target_);
    (void)cudaFree(source_);
    (void)cudaFreeHost(host_);
  }

  int from_host() const { return copy(target_, host_, cudaMemcpyHostToDevice); }
  int from(const void* ordinary) const { return copy(target_, ordinary, cudaMemcpyHostToDevice); }
  // In so many parts.
  int on_device(std::size_t parts) const {
    const std::size_t bytes = bytes_ / parts;
    for (std::size_t i = 0; i < parts; ++i) {
      check(cudaMemcpyAsync(static_cast<std::byte*>(target_) + i * bytes,
                            static_cast<const std::byte*>(source_) + i * bytes, bytes,
                            cudaMemcpyDeviceToDevice, stream_),
            "cudaMemcpyAsync");
    }
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return 0;
  }

 private:
  int copy(void* target, const void* source, cudaMemcpyKind kind) const {
    check(cudaMemcpyAsync(target, source, bytes_, kind, stream_), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return 0;
  }

  const std::size_t bytes_;
  void* host_ = nullptr;
  void* source_ = nullptr;
  void* target_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

// Page-locks the memory of a tensor on the host as long as it lives.
class PageLock {
 public:
  explicit PageLock(const ls::Tensor& tensor)
      : tensor_(tensor), data_(tensor_.mutable_data_ptr<float>()) {
    const std::size_t bytes = static_cast<std::size_t>(tensor.numel()) * sizeof(float);
    check(cudaHostRegister(data_, bytes, cudaHostRegisterDefault), "cudaHostRegister");
  }
  PageLock(const PageLock&) = delete;
  PageLock& operator=(const PageLock&) = delete;
  ~PageLock() { (void)cudaHostUnregister(data_); }

 private:
  ls::Tensor tensor_;
  void* data_;
};

void wait_for(const std::vector<ls::Device>& devices) {
  for (const ls::Device device : devices) ls::synchronize(device);
}

struct Settings {
  std::int64_t mib = 0;
  std::int64_t rounds = 40;
};

void measure(const Settings& settings, std::int64_t mib, const std::vector<ls::Device>& all) {
  const std::size_t bytes = static_cast<std::size_t>(mib) << 20U;
  const int rounds = static_cast<int>(settings.rounds);
  const int warm_up = rounds < 10 ? 1 : 10;
  const Plain plain(bytes);
  const ls::Tensor batch =
      ls::ones({static_cast<std::int64_t>(bytes / 1024 / sizeof(float)), 1024});

  const auto report = [&](const std::string& name, const gpu_benchmark::Comparison& times) {
    std::cout << name << '\t' << bytes << '\t' << times.first << '\t' << times.second << std::endl;
  };
  for (const std::size_t count : {std::size_t{1}, all.size()}) {
    const std::vector<ls::Device> devices(all.begin(),
                                          all.begin() + static_cast<std::ptrdiff_t>(count));
    const auto scatter = [&] {
      auto chunks = ls::scatter(batch, devices);
      wait_for(devices);
      return chunks;
    };
    const auto copy = [&] { return plain.from_host(); };
    const std::string of_count = "/" + std::to_string(count);
    report("scatter/ordinary" + of_count, gpu_benchmark::compare(warm_up, rounds, scatter, [&] {
             return plain.from(batch.const_data_ptr<float>());
           }));
    {
      const PageLock lock(batch);
      report("scatter/page-locked" + of_count,
             gpu_benchmark::compare(warm_up, rounds, scatter, copy));
    }
    if (count == 1) continue;
    const auto chunks = ls::scatter(batch, devices);
    wait_for(devices);
    const auto gather = [&] {
      auto whole = ls::gather(chunks, devices[0]);
      ls::synchronize(devices[0]);
      return whole;
    };
    report("gather" + of_count,
           gpu_benchmark::compare(warm_up, rounds, gather, [&] { return plain.on_device(1); }));
    report("gather-of-parts" + of_count,
           gpu_benchmark::compare(warm_up, rounds, gather, [&] { return plain.on_device(count); }));
  }
}

void run(int argc, char** argv) {
  Settings settings;
  example::Arguments arguments("Times scatter and gather beside plain copies.");
  arguments.add("--mib", settings.mib, "one size only, in MiB");
  arguments.add("--rounds", settings.rounds, "samples of each case");
  arguments.parse(argc, argv);
  const std::vector<ls::Device> devices = ls::devices(ls::DeviceType::cuda);
  ls::check<ls::DeviceError>(devices.size() > 1, "expected two CUDA devices at least, got ",
                             devices.size(), "; set LOCKSTEP_CUDA_DEVICES");
  const ls::NoGradGuard no_grad;
  const std::vector<std::int64_t> sizes =
      settings.mib > 0 ? std::vector{settings.mib} : std::vector<std::int64_t>{1, 16, 64, 256};
  for (const std::int64_t mib : sizes) measure(settings, mib, devices);
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argv[0], [&] { run(argc, argv); });
}
