// SPDX-License-Identifier: Apache-2.0

// The primitives over LibTorch's tensors: the cases of the reference's scatter, gather and
// parallel_apply, by their ids. Left out are those of what LibTorch does itself. And what loads
// batches of such tensors.
#include <lockstep/torch.hpp>

#include <lockstep/data/collate.hpp>
#include <lockstep/data/dataloader.hpp>
#include <lockstep/data/prefetch.hpp>
#include <lockstep/ops/matmul.hpp>
#include <lockstep/tensor/from_blob.hpp>

#include "support/expect_error.hpp"
#include "support/warnings.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace ls = lockstep;
using ls::testing::throws;

namespace torch_primitives_test {

using Devices = std::vector<ls::Device>;

const Devices kTwo{"cpu:0", "cpu:1"};
const Devices kThree{"cpu:0", "cpu:1", "cpu:2"};

torch::Tensor rows(std::int64_t count, std::int64_t width = 1) {
  return torch::arange(count * width, torch::kFloat64).reshape({count, width});
}

std::vector<std::int64_t> lengths(const ls::Scattered<torch::Tensor>& chunks,
                                  std::int64_t dim = 0) {
  std::vector<std::int64_t> result;
  for (const torch::Tensor& chunk : chunks) result.push_back(chunk.size(dim));
  return result;
}

using Lengths = std::vector<std::int64_t>;

TEST(TorchScatter, S01ToS11TakesTheChunkRule) {
  const auto split = [](std::int64_t count, std::size_t devices) {
    return lengths(ls::scatter(rows(count), Devices(devices, "cpu:0")));
  };
  EXPECT_EQ(split(10, 3), (Lengths{4, 4, 2}));
  EXPECT_EQ(split(15, 2), (Lengths{8, 7}));
  EXPECT_EQ(split(1, 2), (Lengths{1}));
  EXPECT_EQ(split(5, 4), (Lengths{2, 2, 1}));
  EXPECT_EQ(split(36, 7), (Lengths{6, 6, 6, 6, 6, 6}));
  EXPECT_EQ(split(0, 3), (Lengths{0, 0, 0}));
  const auto chunks = ls::scatter(rows(10), kThree);
  EXPECT_TRUE(torch::equal(chunks[1], rows(10).slice(0, 4, 8)));
}

TEST(TorchScatter, S12ToS15TakesAnyDimension) {
  const torch::Tensor x = torch::randn({2, 3, 4});
  EXPECT_EQ(lengths(ls::scatter(x, kTwo, 1), 1), (Lengths{2, 1}));
  EXPECT_EQ(lengths(ls::scatter(torch::randn({4, 4}), kTwo, -2)), (Lengths{2, 2}));
  EXPECT_TRUE(throws<ls::IndexError>(
      [] {
        ls::scatter(torch::randn({4, 4}), kTwo, 5);
      },
      "[-2, 1]", "got 5"));
}

TEST(TorchScatter, S16GivesTensorsWithoutDimensionsToAll) {
  const auto parts = ls::scatter(std::tuple(rows(4), torch::scalar_tensor(3.0)), kTwo);
  EXPECT_EQ(std::get<1>(parts[1]).item<double>(), 3);
  // No replica writes into another one's.
  std::get<1>(parts[1]).add_(1);
  EXPECT_EQ(std::get<1>(parts[0]).item<double>(), 3);
}

TEST(TorchScatter, S17ToS22RefusesSizesThatDoNotFit) {
  const auto sizes = [](std::vector<std::int64_t> list, const Devices& devices) {
    return lengths(ls::scatter(rows(6, 4), devices, 0, ls::Split::sizes(list)));
  };
  EXPECT_EQ(sizes({2, 4}, kTwo), (Lengths{2, 4}));
  EXPECT_TRUE(throws<ls::ValueError>([&] { sizes({2, 3}, kTwo); }, "6"));
  EXPECT_TRUE(throws<ls::ValueError>([&] { sizes({2, 4}, kThree); }, "3"));
  EXPECT_TRUE(throws<ls::ValueError>([&] { sizes({-1, 7}, kTwo); }, "-1"));
  EXPECT_TRUE(throws<ls::ValueError>([] { ls::scatter(rows(6), {}); }, "at least one device"));
}

TEST(TorchScatter, S23ChunksAreViews) {
  const torch::Tensor x = rows(4);
  const auto chunks = ls::scatter(x, kTwo);
  EXPECT_EQ(chunks[0].data_ptr(), x.data_ptr());
  // Its changes are the batch's: a graph that has saved that notices.
  chunks[1].zero_();
  EXPECT_EQ(x[3].item<double>(), 0);
  EXPECT_EQ(x._version(), 1);
}

TEST(TorchScatter, S24AndS25Differentiates) {
  const torch::Tensor x = torch::ones({4, 4}, torch::kFloat64).requires_grad_();
  const auto chunks = ls::scatter(x, kTwo);
  chunks[0].backward(torch::full({2, 4}, 2.0, torch::kFloat64));
  EXPECT_EQ(x.grad().slice(0, 0, 2).sum().item<double>(), 16);
  EXPECT_EQ(x.grad().slice(0, 2, 4).sum().item<double>(), 0);

  const torch::Tensor ten = torch::ones(10, torch::kFloat64).requires_grad_();
  const auto halves = ls::scatter(ten, kTwo);
  (halves[0] + halves[1]).backward(torch::ones(5, torch::kFloat64));
  EXPECT_EQ(ten.grad().sum().item<double>(), 10);
}

struct Record {
  torch::Tensor a;
  int b;
};
using Nested = std::map<std::string, std::vector<std::optional<torch::Tensor>>>;

TEST(TorchScatter, S26AndS27DividesNestedArguments) {
  const auto parts =
      ls::scatter(std::tuple(Nested{{"a", {rows(4), std::nullopt}}, {"b", {rows(4)}}},
                             std::string("s"), Record{rows(4), 3}, torch::Tensor()),
                  kTwo);
  ASSERT_EQ(parts.size(), 2u);
  const auto& [nested, text, record, none] = parts[1];
  EXPECT_TRUE(torch::equal(*nested.at("a")[0], rows(4).slice(0, 2, 4)));
  EXPECT_FALSE(nested.at("a")[1].has_value());
  EXPECT_EQ(text, "s");
  EXPECT_EQ(record.a.size(0), 2);
  EXPECT_EQ(record.b, 3);
  EXPECT_FALSE(none.defined());
  EXPECT_TRUE(
      throws<ls::ValueError>([] { ls::scatter(std::tuple(rows(4), std::vector{rows(2)}), kTwo); },
                             "inputs[0]", "inputs[1][0]"));
}

TEST(TorchScatter, S31KeepsChannelsLast) {
  const torch::Tensor x = torch::randn({4, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast);
  for (const torch::Tensor& chunk : ls::scatter(x, kTwo)) {
    EXPECT_TRUE(chunk.is_contiguous(at::MemoryFormat::ChannelsLast));
  }
}

TEST(TorchScatter, TakesEveryDtype) {
  for (const auto dtype : {torch::kComplexFloat, torch::kInt8, torch::kInt16, torch::kBFloat16}) {
    const auto chunks = ls::scatter(torch::ones({3, 2}).to(dtype), kTwo);
    const torch::Tensor whole = ls::gather(chunks, "cpu:1");
    EXPECT_EQ(whole.scalar_type(), dtype);
    EXPECT_EQ(whole.size(0), 3);
  }
}

// What the walk does not go into does not pass undivided.
template <class T>
constexpr bool kDivided = ls::Scatterable<T>;
static_assert(kDivided<torch::Tensor> && kDivided<std::vector<torch::Tensor>> && kDivided<Record>);
static_assert(!kDivided<torch::OrderedDict<std::string, torch::Tensor>>);
static_assert(!kDivided<c10::IValue>);
static_assert(!kDivided<std::vector<c10::IValue>>);
static_assert(!kDivided<c10::List<torch::Tensor>>);
static_assert(!kDivided<c10::Dict<std::string, torch::Tensor>>);
static_assert(!kDivided<torch::data::Example<>>);
static_assert(!kDivided<torch::nn::utils::rnn::PackedSequence>);
static_assert(!kDivided<at::TensorList>);
static_assert(!kDivided<at::TensorBase>);
static_assert(!kDivided<at::indexing::TensorIndex>);
static_assert(kDivided<c10::Scalar> && kDivided<c10::ArrayRef<c10::SymInt>>);
static_assert(kDivided<c10::SymFloat> && kDivided<at::Generator>);

TEST(TorchDevices, HardwareThatLockstepHasNotIsNamed) {
  const torch::Tensor elsewhere = torch::empty({4, 1}, torch::kMeta);
  const auto refused = [](const auto& call) {
    return throws<ls::DeviceError>(call, "lockstep knows CPUs and CUDA devices", "meta");
  };
  EXPECT_TRUE(refused([&] { ls::comm::reduce_add({elsewhere}); }));
  EXPECT_TRUE(refused([&] { ls::comm::gather({elsewhere, elsewhere}); }));
  EXPECT_TRUE(refused([] { ls::libtorch::DeviceList(std::vector<at::Device>{at::kMeta}); }));
}

TEST(TorchGather, G01AndG02PutsRowsTogether) {
  const torch::Tensor a = rows(2, 3).requires_grad_(), b = rows(3, 3).requires_grad_();
  const torch::Tensor whole = ls::gather(std::vector{a, b}, "cpu:0");
  EXPECT_TRUE(torch::equal(whole, torch::cat({a, b})));
  whole.backward(rows(5, 3));
  EXPECT_TRUE(torch::equal(b.grad(), rows(5, 3).slice(0, 2, 5)));
}

TEST(TorchGather, G03ToG05MakesAVectorOfScalars) {
  const torch::Tensor a = torch::scalar_tensor(1.0).requires_grad_();
  const torch::Tensor b = torch::scalar_tensor(2.0).requires_grad_();
  for (const std::int64_t dim : {0, 1}) {
    const ls::testing::CaughtWarnings warnings;
    const torch::Tensor both = ls::gather(std::vector{a, b}, "cpu", dim);
    EXPECT_EQ(both.sizes(), (std::vector<std::int64_t>{2}));
    EXPECT_EQ(warnings.count(), 1);
    (both * torch::tensor({3.0F, 4.0F})).sum().backward();
  }
  EXPECT_EQ(b.grad().item<float>(), 8);
  EXPECT_EQ(ls::gather(std::vector{a, b}, "cpu", 0, ls::Reduction::sum).item<float>(), 3);
  EXPECT_EQ(ls::gather(std::vector{a, b}, "cpu", 0, ls::Reduction::mean).item<float>(), 1.5);
  EXPECT_TRUE(throws<ls::ShapeError>(
      [&] {
        ls::gather(std::vector{a, torch::ones(1)}, "cpu");
      },
      "tensor 1"));
}

TEST(TorchGather, G06ToG19ComparesStructures) {
  const torch::Tensor none;
  EXPECT_FALSE(ls::gather(std::vector{none, none}, "cpu").defined());
  EXPECT_TRUE(throws<ls::ValueError>(
      [&] {
        ls::gather(std::vector{rows(1), none}, "cpu");
      },
      "undefined"));
  using Map = std::map<std::string, torch::Tensor>;
  EXPECT_TRUE(throws<ls::ValueError>(
      [] {
        ls::gather(std::vector{Map{{"x", rows(1)}}, Map{{"z", rows(1)}}}, "cpu");
      },
      "key x"));
  const Record whole =
      ls::gather(std::vector{Record{rows(2), 3}, Record{rows(1), 3}}, ls::Device("cpu:1"));
  EXPECT_EQ(whole.a.size(0), 3);
  EXPECT_TRUE(throws<ls::ShapeError>(
      [] {
        ls::gather(std::vector{rows(2, 2), rows(3, 2)}, "cpu", 1);
      },
      "tensor 1", "[3, 2]"));
  EXPECT_TRUE(throws<ls::DtypeError>(
      [] {
        ls::gather(std::vector{rows(2), rows(2).to(torch::kFloat32)}, "cpu");
      },
      "tensor 1"));
  EXPECT_TRUE(throws<ls::ValueError>([] { ls::gather(std::vector<torch::Tensor>(), "cpu"); },
                                     "no outputs"));
}

TEST(TorchComm, M01ToM08MovesAndAddsWithoutDerivatives) {
  const torch::Tensor x = rows(5, 2).requires_grad_();
  const auto chunks = ls::comm::scatter(x, kTwo);
  EXPECT_FALSE(chunks[0].requires_grad());
  EXPECT_TRUE(torch::equal(ls::comm::gather(chunks, 0, ls::Device("cpu:1")), x));
  EXPECT_EQ(ls::comm::scatter(x, kTwo, {1, 4})[1].size(0), 4);
  EXPECT_TRUE(throws<ls::ValueError>([&] { ls::comm::scatter(x, kTwo, {1, 3}); }, "5"));

  const auto copies = ls::comm::broadcast(x, kTwo);
  EXPECT_EQ(copies[0].data_ptr(), x.data_ptr());
  EXPECT_NE(copies[1].data_ptr(), x.data_ptr());
  EXPECT_TRUE(torch::equal(copies[1], x));
  EXPECT_TRUE(throws<ls::ValueError>([&] { ls::comm::broadcast(x, {}); }, "at least one device"));
  const auto lists = ls::comm::broadcast_coalesced({x, torch::ones(3)}, kTwo);
  EXPECT_TRUE(torch::equal(lists[1][1], torch::ones(3)));

  const torch::Tensor sum = ls::comm::reduce_add({x, x, x}, ls::Device("cpu:1"));
  EXPECT_TRUE(torch::equal(sum, rows(5, 2) * 3));
  EXPECT_TRUE(torch::equal(x, rows(5, 2)));  // the sum is a new tensor
  EXPECT_TRUE(torch::equal(ls::comm::reduce_add_coalesced({{x, x}, {x, x}})[1], rows(5, 2) * 2));
  EXPECT_TRUE(throws<ls::DeviceError>([&] { ls::comm::reduce_add({x}, ls::Device("cuda:0")); },
                                      "expects destination"));
  EXPECT_TRUE(throws<ls::ShapeError>(
      [&] {
        ls::comm::reduce_add({rows(5, 5), rows(5, 4)});
      },
      "input 1 has invalid size"));
  EXPECT_TRUE(throws<ls::ValueError>(
      [&] {
        ls::comm::reduce_add_coalesced({{}, {x}});
      },
      "1 tensors on one device, but 0 on the first"));
}

// Both libraries' matrix products, at the same time: their BLAS may be one or two.
TEST(TorchBlas, BothLibrariesMultiplyAtOnce) {
  const torch::Tensor a = torch::randn({96, 80}), b = torch::randn({80, 64});
  const auto lent = [](const torch::Tensor& tensor) {
    return ls::from_blob(tensor.data_ptr<float>(), {tensor.size(0), tensor.size(1)});
  };
  const torch::Tensor expected = a.to(torch::kFloat64).matmul(b.to(torch::kFloat64));
  const auto far = [&expected](const torch::Tensor& product) {
    return (product.to(torch::kFloat64) - expected).abs().max().item<double>();
  };
  std::vector<double> worst(4, 0);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < worst.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 50; ++round) {
        torch::Tensor product = torch::empty({96, 64});
        if (t % 2 == 0) {
          product = a.matmul(b);
        } else {
          lent(product).copy_(ls::matmul(lent(a), lent(b)));
        }
        worst[t] = std::max(worst[t], far(product));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const double distance : worst) EXPECT_LT(distance, 1e-4);
}

// LibTorch before 2.4 has other names.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
bool autocasts() { return at::autocast::is_autocast_enabled(at::kCPU); }
void set_autocasts(bool on) { at::autocast::set_autocast_enabled(at::kCPU, on); }
#else
bool autocasts() { return at::autocast::is_cpu_enabled(); }
void set_autocasts(bool on) { at::autocast::set_cpu_enabled(on); }
#endif
using ls::libtorch::detail::cpu_autocast;
using ls::libtorch::detail::gpu_autocast;
using ls::libtorch::detail::set_autocast;

// What LibTorch keeps for each thread.
struct Seen {
  bool grad = torch::GradMode::is_enabled();
  bool inference = c10::InferenceMode::is_enabled();
  bool autocast = autocasts();
  at::ScalarType dtype = gpu_autocast();
  bool cache = at::autocast::is_autocast_cache_enabled();
  friend bool operator==(const Seen&, const Seen&) = default;
};

std::vector<Seen> seen_by_replicas() {
  std::vector<Seen> seen(4);
  const auto look = [](Seen* slot) {
    *slot = Seen();
    return 0;
  };
  std::vector modules(4, look);
  std::vector<Seen*> slots;
  for (Seen& slot : seen) slots.push_back(&slot);
  ls::parallel_apply(modules, slots);
  return seen;
}

TEST(TorchParallelApply, P08ToP10AndX01GivesReplicasTheCallersState) {
  const auto all = [](const Seen& expected) { return std::vector<Seen>(4, expected); };
  const Seen usual;
  EXPECT_TRUE(usual.grad);
  {
    const torch::NoGradGuard guard;
    EXPECT_FALSE(Seen().grad);
    EXPECT_EQ(seen_by_replicas(), all(Seen()));
  }
  EXPECT_EQ(seen_by_replicas(), all(usual));
  {
    const c10::InferenceMode guard;
    EXPECT_TRUE(Seen().inference);
    EXPECT_EQ(seen_by_replicas(), all(Seen()));
  }
  set_autocasts(true);
  set_autocast(cpu_autocast(), torch::kBFloat16);  // the CPU has this one alone
  at::autocast::set_autocast_cache_enabled(false);
  EXPECT_EQ(seen_by_replicas(), all(Seen()));
  set_autocasts(usual.autocast);
  set_autocast(cpu_autocast(), usual.dtype);
  at::autocast::set_autocast_cache_enabled(usual.cache);
  EXPECT_EQ(seen_by_replicas(), all(usual));
}

TEST(TorchInference, P10ScattersAndGathers) {
  const c10::InferenceMode guard;
  const auto chunks = ls::scatter(rows(4), kTwo);
  EXPECT_TRUE(torch::equal(ls::gather(chunks, "cpu"), rows(4)));
}

TEST(TorchCollate, StacksTensorsWhereverTheyAre) {
  using ls::data::collate;
  const auto row = [](double value) { return torch::full({2}, value, torch::kFloat64); };
  const torch::Tensor trained = row(0).requires_grad_();
  const torch::Tensor both = collate(std::vector{trained, row(1)});
  EXPECT_TRUE(torch::equal(both, torch::stack({row(0), row(1)})));
  EXPECT_FALSE(both.requires_grad());

  struct Pair {
    torch::Tensor image, label;
  };
  const Pair pairs = collate(std::vector{Pair{row(0), row(2)}, Pair{row(1), row(3)}});
  EXPECT_TRUE(torch::equal(pairs.image, both));
  EXPECT_EQ(pairs.label[1][0].item<double>(), 3);

  using Sample = std::tuple<std::optional<torch::Tensor>, std::map<std::string, torch::Tensor>>;
  const Sample nested = collate(std::vector{Sample{row(0), {{"k", row(2)}}},  //
                                            Sample{row(1), {{"k", row(3)}}}});
  EXPECT_TRUE(torch::equal(*std::get<0>(nested), both));
  EXPECT_TRUE(torch::equal(std::get<1>(nested).at("k"), pairs.label));

  const auto numbered = collate(std::vector{Record{row(0), 5}, Record{row(1), 6}});
  static_assert(std::is_same_v<decltype(numbered), const std::tuple<torch::Tensor, ls::Tensor>>);
  EXPECT_TRUE(torch::equal(std::get<0>(numbered), both));

  using Example = torch::data::Example<>;
  const auto [data, target] = collate(std::vector{Example{row(0), row(2)}, {row(1), row(3)}});
  EXPECT_TRUE(torch::equal(data, both));
  EXPECT_TRUE(torch::equal(target, pairs.label));
  const std::vector<torch::data::TensorExample> without_target{row(0), row(1)};
  EXPECT_TRUE(torch::equal(collate(without_target), both));

  EXPECT_TRUE(throws<c10::Error>(
      [&] {
        collate(std::vector{row(0), torch::ones(3)});
      },
      "[2]", "[3]"));
}

// Its samples one by one, or whole batches at once.
template <bool batches>
struct Rows {
  torch::Tensor x, y;

  std::int64_t size() const { return x.size(0); }
  auto get(std::int64_t i) const requires(!batches) { return std::pair(x[i], y[i]); }
  auto get_batch(std::span<const std::int64_t> indices) const requires batches {
    const auto picked = torch::tensor(at::IntArrayRef(indices.data(), indices.size()));
    return std::pair(x.index_select(0, picked), y.index_select(0, picked));
  }
};

template <bool batches>
void expect_loads_ahead(std::int64_t workers) {
  const Rows<batches> data{rows(7, 3), -rows(7)};
  ls::data::DataLoader loader{data, {.batch_size = 3, .num_workers = workers}};
  for (int pass = 0; pass < 2; ++pass) {
    std::int64_t start = 0;
    for (const auto& [x, y] : ls::data::prefetch(loader, kTwo, ls::data::whole<1>("cpu:1"))) {
      static_assert(std::is_same_v<decltype(x), const ls::Scattered<torch::Tensor>>);
      const std::int64_t end = std::min<std::int64_t>(start + 3, 7);
      EXPECT_EQ(x.size(), end - start == 1 ? 1u : 2u);
      EXPECT_TRUE(torch::equal(ls::gather(x, "cpu"), data.x.slice(0, start, end)));
      EXPECT_TRUE(torch::equal(y, data.y.slice(0, start, end)));
      start = end;
    }
    EXPECT_EQ(start, 7);
  }
}

TEST(TorchPrefetch, LoadsBatchesAheadAndDividesThem) {
  for (const std::int64_t workers : {0, 2}) {
    expect_loads_ahead<false>(workers);
    expect_loads_ahead<true>(workers);
  }
  ls::data::DataLoader shuffled{Rows<false>{rows(8), rows(8)},
                                {.batch_size = 4, .shuffle = true, .num_workers = 1}};
  double sum = 0;
  for (const auto& [x, y] : ls::data::prefetch(shuffled, "cpu:1")) {
    EXPECT_TRUE(torch::equal(x, y));
    sum += x.sum().item<double>();
  }
  EXPECT_EQ(sum, 28);
}

}  // namespace torch_primitives_test
