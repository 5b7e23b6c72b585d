// SPDX-License-Identifier: Apache-2.0
#include "cudasim/cudasim.hpp"
#include "cudasim/program.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace cudasim::test {
namespace deletion_test {

// One synchronisation that a program lacks.
enum class Deletion {
  none,
  scatter_wait,     // compute streams do not wait for the copy of their chunk
  scatter_record,   // chunks are freed while kernels read them
  gather_wait,      // the copy stream does not wait for the kernels
  gather_record,    // results are freed while the copy stream reads them
  sum_wait,         // the sum is copied to the host before it is there
  peer_wait,        // a copy between devices does not wait for its source
  wrong_device,     // kernels are launched while device 0 is current
  early_host_free,  // the input is freed while it is being copied
  wrong_stream,     // a copy between devices is on a stream that its reader does not wait for
};

constexpr Deletion kDeletions[] = {
    Deletion::scatter_wait,  Deletion::scatter_record,  Deletion::gather_wait,
    Deletion::gather_record, Deletion::sum_wait,        Deletion::peer_wait,
    Deletion::wrong_device,  Deletion::early_host_free, Deletion::wrong_stream,
};

// One data-parallel step: a scatter on copy streams, a kernel on every device, a gather to the
// host, and the sum of all results on device 0.
class Step {
 public:
  Step(int devices, Deletion deletion) : deletion_(deletion) {
    for (int i = 0; i < devices; ++i) {
      compute_.push_back(std::make_unique<Stream>(i));
      copy_.push_back(std::make_unique<Stream>(i));
    }
  }

  struct Result {
    std::vector<float> gathered;
    std::vector<float> sum;
  };

  Result run(std::size_t chunk) {
    auto input = std::make_unique<PageLocked>(chunk * compute_.size());
    PageLocked output(input->count());
    PageLocked sum(chunk);
    for (std::size_t i = 0; i < input->count(); ++i) input->data()[i] = static_cast<float>(i % 97);
    {
      std::vector<std::unique_ptr<Floats>> chunks = scatter(*input, chunk);
      if (deletion_ == Deletion::early_host_free) input.reset();
      std::vector<std::unique_ptr<Floats>> results = forward(chunks);
      chunks.clear();
      gather(results, output);
      const std::unique_ptr<Floats> total = add_up(results);
      results.clear();
      read(*total, sum);
    }
    copy_[0]->synchronize();
    return {{output.data(), output.data() + output.count()}, {sum.data(), sum.data() + chunk}};
  }

 private:
  bool lacks(Deletion deletion) const { return deletion_ == deletion; }

  std::vector<std::unique_ptr<Floats>> scatter(const PageLocked& input, std::size_t chunk) {
    scope("scatter");
    std::vector<std::unique_ptr<Floats>> chunks;
    for (std::size_t i = 0; i < copy_.size(); ++i) {
      chunks.push_back(std::make_unique<Floats>(chunk, *copy_[i]));
      const OnDevice on(static_cast<int>(i));
      ok(cudaMemcpyAsync(chunks[i]->data(), input.data() + i * chunk, chunks[i]->bytes(),
                         cudaMemcpyHostToDevice, copy_[i]->get()));
    }
    for (std::size_t i = 0; i < copy_.size(); ++i) {
      if (!lacks(Deletion::scatter_wait)) compute_[i]->wait(*copy_[i]);
      if (!lacks(Deletion::scatter_record)) chunks[i]->record_stream(*compute_[i]);
    }
    return chunks;
  }

  std::vector<std::unique_ptr<Floats>> forward(const std::vector<std::unique_ptr<Floats>>& chunks) {
    scope("forward");
    std::vector<std::unique_ptr<Floats>> results;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      results.push_back(std::make_unique<Floats>(chunks[i]->count(), *compute_[i]));
      const OnDevice guard(lacks(Deletion::wrong_device) ? 0 : static_cast<int>(i));
      const float* x = chunks[i]->data();
      float* y = results[i]->data();
      enqueue(compute_[i]->get(), "square", {chunks[i]->reading(), results[i]->writing()},
              [x, y, count = chunks[i]->count()] {
                for (std::size_t k = 0; k < count; ++k) y[k] = x[k] * x[k] + 1;
              });
    }
    return results;
  }

  void gather(const std::vector<std::unique_ptr<Floats>>& results, const PageLocked& output) {
    scope("gather");
    float* to = output.data();
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (!lacks(Deletion::gather_wait)) copy_[0]->wait(*compute_[i]);
      ok(cudaMemcpyPeerAsync(staging_for(i, *results[i]), 0, results[i]->data(),
                             static_cast<int>(i), results[i]->bytes(), copy_[0]->get()));
      ok(cudaMemcpyAsync(to, staging_.back()->data(), results[i]->bytes(), cudaMemcpyDeviceToHost,
                         copy_[0]->get()));
      to += results[i]->count();
      if (!lacks(Deletion::gather_record)) results[i]->record_stream(*copy_[0]);
    }
    staging_.clear();
  }

  void* staging_for(std::size_t, const Floats& result) {
    staging_.push_back(std::make_unique<Floats>(result.count(), *copy_[0]));
    return staging_.back()->data();
  }

  // A copy on device 0, on a stream there.
  std::unique_ptr<Floats> to_first(Floats& from, std::size_t device, const Stream& stream) {
    auto copy = std::make_unique<Floats>(from.count(), stream);
    if (!lacks(Deletion::peer_wait)) stream.wait(*compute_[device]);
    ok(cudaMemcpyPeerAsync(copy->data(), 0, from.data(), static_cast<int>(device), from.bytes(),
                           stream.get()));
    from.record_stream(stream);
    return copy;
  }

  std::unique_ptr<Floats> add_up(const std::vector<std::unique_ptr<Floats>>& results) {
    scope("add up");
    auto total = to_first(*results[0], 0, *compute_[0]);
    for (std::size_t i = 1; i < results.size(); ++i) {
      const Stream& stream = lacks(Deletion::wrong_stream) ? *copy_[0] : *compute_[0];
      const auto one = to_first(*results[i], i, stream);
      const float* x = one->data();
      float* y = total->data();
      compute_[0]->run("add", {one->reading(), total->writing()}, [x, y, count = one->count()] {
        for (std::size_t k = 0; k < count; ++k) y[k] += x[k];
      });
    }
    return total;
  }

  void read(Floats& total, const PageLocked& sum) {
    scope("read");
    if (!lacks(Deletion::sum_wait)) copy_[0]->wait(*compute_[0]);
    ok(cudaMemcpyAsync(sum.data(), total.data(), total.bytes(), cudaMemcpyDeviceToHost,
                       copy_[0]->get()));
    total.record_stream(*copy_[0]);
    scope("");
  }

  Deletion deletion_;
  std::vector<std::unique_ptr<Stream>> compute_;
  std::vector<std::unique_ptr<Stream>> copy_;
  std::vector<std::unique_ptr<Floats>> staging_;
};

constexpr std::size_t kChunk = 320;

bool right(const Step::Result& result, int devices) {
  const auto expected = [](std::size_t i) {
    const auto x = static_cast<float>(i % 97);
    return x * x + 1;
  };
  for (std::size_t i = 0; i < result.gathered.size(); ++i) {
    if (result.gathered[i] != expected(i)) return false;
  }
  for (std::size_t i = 0; i < kChunk; ++i) {
    float sum = 0;
    for (std::size_t k = 0; k < static_cast<std::size_t>(devices); ++k) {
      sum += expected(k * kChunk + i);
    }
    if (result.sum[i] != sum) return false;
  }
  return true;
}

TEST(CudasimDeletion, TheWholeProgramIsCleanUnderEverySchedule) {
  for (const int devices : {1, 2, 3, 4}) {
    for (const Config& config : schedules(devices, 2 * devices, 20)) {
      reset(config);
      EXPECT_TRUE(right(Step(devices, Deletion::none).run(kChunk), devices)) << name_of(config);
      EXPECT_EQ(take_errors(), std::vector<std::string>()) << name_of(config);
      EXPECT_EQ(leaks(), std::vector<std::string>()) << name_of(config);
    }
  }
}

TEST(CudasimDeletion, EachIsSeenUnderEverySchedule) {
  constexpr int kDevices = 3;
  for (const Deletion deletion : kDeletions) {
    for (Config config : schedules(kDevices, 2 * kDevices, 20)) {
      config.fibers = false;
      reset(config);
      (void)Step(kDevices, deletion).run(kChunk);
      EXPECT_NE(take_errors(), std::vector<std::string>())
          << "deletion " << static_cast<int>(deletion) << " under " << name_of(config);
    }
  }
}

}  // namespace deletion_test
}  // namespace cudasim::test
