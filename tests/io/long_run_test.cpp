// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/backend/host/background_threads.hpp>
#include <lockstep/backend/host/host_stream.hpp>
#include <lockstep/data/dataloader.hpp>
#include <lockstep/data/prefetch.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/error.hpp>
#include <lockstep/io/checkpoint.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/nn/batch_norm.hpp>
#include <lockstep/nn/conv.hpp>
#include <lockstep/nn/embedding.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/nn/multihead_attention.hpp>
#include <lockstep/nn/rnn.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/loss.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/adam.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/parallel/distributed.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/random.hpp>

#include "data/files.hpp"
#include "support/devices.hpp"
#include "support/sanitizers.hpp"
#include "support/time_limit.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

// What a program does for days, for as long as LOCKSTEP_TEST_SECONDS says: models are made, trained
// from prefetched batches, saved, loaded, evaluated and destroyed; some trainings fail on the way.
// Neither memory nor threads nor open files may become more.
namespace lockstep::long_run_test {

using testing::first_devices;

struct ImageNet {
  nn::Conv2d conv{1, 4, 3, {.padding = 1}};
  nn::BatchNorm2d norm{4};
  nn::Linear out{4 * 4 * 4, 3};

  static Tensor batch(std::int64_t rows) { return randn({rows, 1, 4, 4}); }
  Tensor forward(const Tensor& x) const { return out(relu(norm(conv(x))).flatten(1)); }
};

struct TextNet {
  nn::Embedding words{10, 8};
  nn::LSTM lstm{8, 8, {.batch_first = true}};
  nn::MultiheadAttention attention{8, 2, {.batch_first = true}};
  nn::Linear out{8, 3};

  static Tensor batch(std::int64_t rows) {
    std::vector<std::int64_t> indices;
    for (std::int64_t i = 0; i < 5 * rows; ++i) indices.push_back(i * i % 10);
    return from_values(indices, {rows, 5});
  }
  Tensor forward(const Tensor& x) const {
    const auto [y, state] = lstm(words(x));
    const auto [z, weights] = attention(y, y, y, {.need_weights = false, .is_causal = true});
    return out(mean(z, {1}));
  }
};

Tensor labels(std::int64_t rows) {
  std::vector<std::int64_t> classes;
  for (std::int64_t i = 0; i < rows; ++i) classes.push_back(i % 3);
  return from_values(classes, {rows});
}

// One training and what comes after it. `number` chooses among its kinds.
template <class Net>
void live(std::size_t number, const std::filesystem::path& path) {
  constexpr std::int64_t kRows = 60;
  const std::vector<Device> all = first_devices(4);
  std::vector<Device> devices{all[number % 4]};
  for (std::size_t i = 0; i < number % 5; ++i) devices.push_back(all[(number + i * i) % 4]);

  DataParallel model{Net(), devices};
  optim::Adam adam{model.parameters()};
  data::DataLoader loader{
      data::TensorDataset{Net::batch(kRows), labels(kRows)},
      {.batch_size = 20, .shuffle = true, .num_workers = static_cast<std::int64_t>(number % 3)}};
  for (auto [x, y] : data::prefetch(loader, devices, data::whole<1>(model.output_device()))) {
    adam.zero_grad();
    cross_entropy(model(x), y).backward();
    adam.step();
    if (number % 4 == 0) break;  // with batches on their way
  }
  io::save_checkpoint(path, {.model = model.state_dict(), .optimizer = adam.state_dict()});

  DataParallel again{Net(), {all[number % 3]}};
  again.load_state_dict(io::load_checkpoint(path).model);
  const NoGradGuard no_grad;
  model.eval();
  again.eval();
  const Tensor x = Net::batch(8);
  const Tensor difference = model(x).to("cpu") - again(x).to("cpu");
  EXPECT_LT(mean(square(difference)).item(), 1e-8);
}

// A forward that throws on one replica, and a label that does not exist.
void fail() {
  const std::vector<Device> devices = first_devices(3);
  DataParallel model{ImageNet(), devices};
  EXPECT_THROW(model(randn({6, 2, 4, 4})), ShapeError);
  const Tensor wrong = full({6}, 7).to(Dtype::i64).to(model.output_device());
  EXPECT_THROW(cross_entropy(model(ImageNet::batch(6)), wrong).item(), IndexError);
}

void train_ranks() {
  distributed::run(first_devices(2), [](distributed::ProcessGroup group) {
    DistributedDataParallel model{ImageNet(), group, {.device_ids = {group.device()}}};
    optim::Adam adam{model.parameters()};
    for (int step = 0; step < 3; ++step) {
      adam.zero_grad();
      const Tensor x = ImageNet::batch(6).to(group.device());
      cross_entropy(model(x), labels(6).to(group.device())).backward();
      adam.step();
    }
  });
}

// How many threads the pools have at last is a matter of chance: of how many are wanted at once. So
// they get more of them here than anything below wants: streams that wait, each of which occupies a
// background thread, and ranks, each of which occupies a worker.
void start_all_threads() {
  using lockstep::detail::HostStream;
  constexpr int kAtOnce = 8;
  static auto& streams = *new std::vector<std::unique_ptr<HostStream>>;
  std::latch all{kAtOnce};
  for (int i = 0; i < kAtOnce; ++i) {
    streams.push_back(std::make_unique<HostStream>(Device("cpu:0"), HostStream::Mode::queued));
    streams.back()->submit([&all] {
      const lockstep::detail::BackgroundThreads::BlockingScope waiting;
      all.arrive_and_wait();
    });
  }
  for (const auto& stream : streams) stream->synchronize();
  distributed::run(first_devices(kAtOnce),
                   [](distributed::ProcessGroup group) { group.barrier().wait(); });
}

// What the process has at the moment.
struct Held {
  double mebibytes = 0;
  std::ptrdiff_t threads = 0;
  std::ptrdiff_t files = 0;

  static Held now() {
    const auto entries = [](const char* folder) {
      return std::distance(std::filesystem::directory_iterator(folder), {});
    };
    std::ifstream statm("/proc/self/statm");
    double pages = 0;
    double resident = 0;
    statm >> pages >> resident;
    return {resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20),
            entries("/proc/self/task"), entries("/proc/self/fd")};
  }
  // The same, once no thread is left that has ended: the system lists one for a moment after it has
  // been joined, as here after ranks. `most` is what there have been; `limit` ends the wait.
  static Held settled(std::ptrdiff_t most, std::chrono::milliseconds limit) {
    Held held = now();
    const auto end = std::chrono::steady_clock::now() + limit;
    while (held.threads > most && std::chrono::steady_clock::now() < end) {
      held.threads = now().threads;
    }
    return held;
  }
  // The most of each.
  void include(const Held& other) {
    mebibytes = std::max(mebibytes, other.mebibytes);
    threads = std::max(threads, other.threads);
    files = std::max(files, other.files);
  }
};

TEST(LongRun, MemoryThreadsAndFilesDoNotBecomeMore) {
  const char* text = std::getenv("LOCKSTEP_TEST_SECONDS");
  const double seconds = text ? std::strtod(text, nullptr) : 3;
  const double warm = std::min(120.0, seconds / 2);
  const testing::TempDirectory folder;
  const auto start = std::chrono::steady_clock::now();
  Held before;
  Held after;
  std::size_t lives = 0;
  constexpr std::size_t kKinds = 30;  // numbers of devices and of workers
  start_all_threads();
  for (double time = 0; (time < seconds || lives < 2 * kKinds) && !HasFailure();) {
    testing::TimeLimit::at("training", lives);
    if (lives % 2 == 0) {
      live<ImageNet>(lives / 2, folder / "model.safetensors");
    } else {
      live<TextNet>(lives / 2, folder / "model.safetensors");
    }
    if (lives % 7 == 0) fail();
    if (lives % 9 == 0) train_ranks();
    ++lives;
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    time = passed.count();
    const bool warming = time < warm || lives <= kKinds;  // more threads may well be right then
    const std::chrono::milliseconds limit(warming ? 200 : 10'000);
    (warming ? before : after).include(Held::settled(before.threads, limit));
  }
  std::cout << lives << " trainings; " << before.mebibytes << " MiB, then " << after.mebibytes
            << "; threads " << before.threads << ", then " << after.threads << "; files "
            << before.files << ", then " << after.files << '\n';
  // For some hundred trainings blocks of memory still find their places; and a sanitizer keeps what
  // is freed.
  if (seconds >= 60 && !testing::kSanitizer) {
    EXPECT_LE(after.mebibytes, before.mebibytes * 1.02);
  }
  EXPECT_LE(after.threads, before.threads);
  EXPECT_LE(after.files, before.files);
}

}  // namespace lockstep::long_run_test
