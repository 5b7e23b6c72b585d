// SPDX-License-Identifier: Apache-2.0
//
// Trainings that tell when their gradients' buckets become ready, and what a network makes of that.
#pragma once

#include "rounds.hpp"

#include <lockstep/autograd/engine.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/bucket.hpp>
#include <lockstep/parallel/distributed.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace network {

namespace ls = lockstep;

// What becomes of a bucket: it is reduced while backward goes on, or after it; or it stays.
enum class Reduction { together, after, never };

// The buckets that hooks have seen, in the order in which they were ready, and when, in
// microseconds from the last `begin`.
//
// Threads: backward's; read by the thread that has called it.
class BucketTimes {
 public:
  void begin() {
    began_ = rounds::Clock::now();
    ready_.clear();
    buffers_.clear();
  }
  void note(const ls::GradBucket& bucket) {
    ready_.push_back(rounds::microseconds(rounds::Clock::now() - began_));
    buffers_.push_back(bucket.buffer());
  }
  // What `note` has seen since then is one more sample.
  void end() { samples_.push_back(ready_); }
  void forget() { samples_.clear(); }

  const std::vector<ls::Tensor>& buffers() const { return buffers_; }
  std::vector<std::size_t> bytes() const {
    std::vector<std::size_t> result;
    for (const ls::Tensor& buffer : buffers_) {
      result.push_back(static_cast<std::size_t>(buffer.numel()) * ls::element_size(buffer.dtype()));
    }
    return result;
  }
  // The median of the samples of each bucket.
  std::vector<double> ready() const {
    std::vector<double> result;
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      std::vector<double> times;
      for (const auto& sample : samples_) times.push_back(sample[i]);
      result.push_back(rounds::median(std::move(times)));
    }
    return result;
  }

 private:
  rounds::Clock::time_point began_;
  std::vector<double> ready_;
  std::vector<ls::Tensor> buffers_;
  std::vector<std::vector<double>> samples_;
};

// A hook for one DistributedDataParallel; `times` outlives it.
inline ls::CommHook hook(Reduction reduction, const ls::distributed::ProcessGroup& group,
                         BucketTimes& times) {
  return [reduction, group, &times](const ls::GradBucket& bucket) {
    times.note(bucket);
    const ls::Tensor& buffer = bucket.buffer();
    constexpr auto kMean = ls::distributed::ReduceOp::avg;
    if (reduction == Reduction::together) {
      return ls::BucketFuture(group.all_reduce(buffer, kMean), buffer);
    }
    if (reduction == Reduction::never) return ls::BucketFuture(buffer);
    return ls::BucketFuture(buffer).then([group](const ls::Tensor& gradients) {
      (void)group.blocking().all_reduce(gradients, kMean);
      return gradients;
    });
  };
}

// A training of its own, whose buckets are dealt with in one way. Net has what compare_models.hpp
// has.
template <class Net>
struct Training {
  BucketTimes times;
  ls::DistributedDataParallel<Net> model;
  ls::optim::SGD sgd;
  ls::Tensor x, y;

  Training(Reduction reduction, const ls::distributed::ProcessGroup& group, std::int64_t rows,
           const ls::DistributedDataParallelOptions& options = {})
      : model(Net{}, group, options),
        sgd(model.parameters(), {.lr = 1e-3, .momentum = Net::kMomentum}),
        x(Net::input(rows).to(group.device())),
        y(Net::target(rows).to(group.device())) {
    model.register_comm_hook(hook(reduction, group, times));
    for (int i = 0; i < 2; ++i) step();  // the buckets are made anew after the first one
    times.forget();
  }

  void step() {
    times.begin();
    sgd.zero_grad();
    Net::loss(model(x), y).backward();
    times.end();
    sgd.step();
  }
};

// When the last of the buckets is there, if bucket i is ready at ready[i], takes takes[i], and they
// go one after the other. All in one unit of time.
inline double last_arrival(const std::vector<double>& ready, const std::vector<double>& takes) {
  double free = 0;
  for (std::size_t i = 0; i < ready.size(); ++i) free = std::max(free, ready[i]) + takes[i];
  return free;
}

}  // namespace network
