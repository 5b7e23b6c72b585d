// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/streams.hpp>
#include <lockstep/io/safetensors.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/sparse.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <latch>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "io/files.hpp"
#include "io/python_file.hpp"
#include "support/expect_error.hpp"
#include "support/gate.hpp"

namespace lockstep {
namespace safetensors_test {

using testing::python_file;
using testing::read_file;
using testing::TempDirectory;
using testing::throws;
using testing::write_file;
using Names = std::vector<std::string>;

const std::string kEscapedName = "na\u00efve \"x\"\n";

// The tensors of python_file(), in another order.
StateDict python_tensors() {
  const std::vector<Half> half{Half(1.5F), Half(-65504.0F)};
  const std::vector<BFloat16> bf{BFloat16(1.5F), BFloat16(-2.0F)};
  constexpr bool kFlags[] = {true, false, true};
  return {{"flags", from_values(std::span<const bool>(kFlags), {3})},
          {kEscapedName, tensor<std::uint8_t>({9})},
          {"bytes", tensor<std::uint8_t>({0, 255, 7})},
          {"scalar", scalar_tensor(2.5F)},
          {"none", zeros({0, 4})},
          {"int", from_values(std::vector<std::int32_t>{-5}, {1, 1})},
          {"half", from_values(half, {2})},
          {"bf", from_values(bf, {2})},
          {"long", tensor<std::int64_t>({-(std::int64_t{1} << 62), 7})},
          {"fc.weight", from_values(std::vector<float>{1, -2, 3, 0.5F, 4, -0.25F}, {2, 3})},
          {"fc.bias", tensor<double>({1.0 / 3, -1e300})}};
}

void expect_equal(const Tensor& actual, const Tensor& expected, const std::string& name) {
  EXPECT_EQ(actual.dtype(), expected.dtype()) << name;
  EXPECT_EQ(actual.sizes(), expected.sizes()) << name;
  const auto bytes = [](const Tensor& t) {
    const Tensor host = detail::contiguous_on_host(t);
    const auto view = detail::host_bytes(host);
    return std::vector<std::byte>(view.begin(), view.end());
  };
  EXPECT_EQ(bytes(actual), bytes(expected)) << name;
}

Tensor find(const StateDict& dict, const std::string& name) {
  for (const NamedTensor& entry : dict) {
    if (entry.name == name) return entry.tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

TEST(Safetensors, ReadsWhatPythonWrote) {
  const TempDirectory folder;
  write_file(folder / "python", python_file());
  const StateDict dict = io::load_file(folder / "python");
  const StateDict expected = python_tensors();
  ASSERT_EQ(dict.size(), expected.size());
  for (const auto& [name, tensor] : expected) expect_equal(find(dict, name), tensor, name);
  EXPECT_EQ(io::load_metadata(folder / "python"), (io::Metadata{{"by", "python \u00e9\t"}}));
}

TEST(Safetensors, WritesWhatPythonWrites) {
  const TempDirectory folder;
  io::save_file(python_tensors(), folder / "ours", {{"by", "python \u00e9\t"}});
  EXPECT_EQ(read_file(folder / "ours"), python_file());
}

TEST(Safetensors, ListsTheNamesInTheOrderOfTheFile) {
  const TempDirectory folder;
  write_file(folder / "python", python_file());
  const io::SafetensorsFile file(folder / "python");
  EXPECT_EQ(file.keys(), (Names{"long", "fc.bias", "fc.weight", "none", "scalar", "int", "bf",
                                "half", "bytes", kEscapedName, "flags"}));
  expect_equal(file.get_tensor("fc.bias"), tensor<double>({1.0 / 3, -1e300}), "fc.bias");
  EXPECT_TRUE(throws<DataError>([&] { file.get_tensor("fc"); },
                                (folder / "python").string() + ": there is no tensor \"fc\""));
}

TEST(Safetensors, ManyThreadsReadOneFile) {
  const TempDirectory folder;
  StateDict dict;
  for (int i = 0; i < 16; ++i) dict.push_back({std::to_string(i), full({i + 1}, i)});
  io::save_file(dict, folder / "file");
  const io::SafetensorsFile file(folder / "file");
  std::latch start(8);
  std::vector<std::jthread> threads;
  for (std::size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      for (std::size_t n = 0; n < 500; ++n) {
        const auto& [name, tensor] = dict[n * (2 * t + 1) % dict.size()];
        expect_equal(file.get_tensor(name), tensor, name);
      }
    });
  }
}

TEST(Safetensors, AFileWithoutTensorsIsOne) {
  const TempDirectory folder;
  io::save_file({}, folder / "none");
  EXPECT_EQ(read_file(folder / "none"), testing::safetensors("{}      "));
  EXPECT_TRUE(io::load_file(folder / "none").empty());
  EXPECT_TRUE(io::load_metadata(folder / "none").empty());
  io::save_file({}, folder / "none", {{"a", "1"}, {"b", "\x01/\\"}});
  EXPECT_EQ(io::load_metadata(folder / "none"), (io::Metadata{{"a", "1"}, {"b", "\x01/\\"}}));
}

TEST(Safetensors, AFileThatIsCutShortWhileItIsOpenSaysSo) {
  const TempDirectory folder;
  io::save_file({{"t", ones({100})}}, folder / "cut");
  const io::SafetensorsFile file(folder / "cut");
  std::filesystem::resize_file(folder / "cut", 200);
  EXPECT_TRUE(throws<DataError>([&] { file.get_tensor("t"); }, "truncated: ends at byte"));
}

TEST(Safetensors, HoldsAnyNumberOfTensorsAtOnePlace) {
  const TempDirectory folder;
  StateDict dict;
  for (int i = 0; i < 100; ++i) dict.push_back({std::to_string(i), empty({0})});
  io::save_file(dict, folder / "empty");
  EXPECT_EQ(io::load_file(folder / "empty").size(), 100U);
}

TEST(Safetensors, SavesAModuleFromOneDeviceAndLoadsItOnAnother) {
  const TempDirectory folder;
  nn::Linear from(3, 2);
  to(from, Device("cpu:1"));
  io::save_file(state_dict(from), folder / "linear");
  nn::Linear module(3, 2);
  to(module, Device("cpu:2"));
  const StateDict dict = io::load_file(folder / "linear", "cpu:3");
  EXPECT_EQ(dict.front().tensor.device(), Device("cpu:3"));
  load_state_dict(module, dict);
  expect_equal(module.weight, from.weight, "weight");
  expect_equal(module.bias, from.bias, "bias");
}

TEST(Safetensors, SavesTheElementsThatAViewShows) {
  const TempDirectory folder;
  const Tensor whole = from_values(std::vector<float>{0, 1, 2, 3, 4, 5}, {2, 3});
  const Tensor away = from_values(std::vector<float>{0, 1, 2, 3, 4, 5}, {2, 3}, "cpu:1");
  io::save_file({{"t", whole.t()}, {"row", whole.narrow(0, 1, 1)}, {"away", away.t()}},
                folder / "views");
  const StateDict dict = io::load_file(folder / "views");
  const Tensor turned = from_values(std::vector<float>{0, 3, 1, 4, 2, 5}, {3, 2});
  expect_equal(find(dict, "t"), turned, "t");
  expect_equal(find(dict, "away"), turned, "away");
  expect_equal(find(dict, "row"), from_values(std::vector<float>{3, 4, 5}, {1, 3}), "row");
}

TEST(Safetensors, WaitsForWhatTheCurrentStreamHolds) {
  const TempDirectory folder;
  const Stream side = pool_stream("cpu:0");
  const testing::Queued queued({side});
  testing::Gate gate;
  const Tensor t = zeros({3}, {.device = "cpu:0"});
  gate.hold(side);
  {
    const StreamGuard guard(side);
    t.fill_(7);
  }
  EXPECT_TRUE(testing::waits_for(gate, side, [&] { io::save_file({{"t", t}}, folder / "file"); }));
  expect_equal(io::load_file(folder / "file")[0].tensor, full({3}, 7), "t");
}

TEST(Safetensors, WritesATiedTensorUnderEachName) {
  const TempDirectory folder;
  const Tensor shared = tensor({1.0F, 2.0F});
  io::save_file({{"b", shared}, {"a", shared}}, folder / "tied");
  const StateDict dict = io::load_file(folder / "tied");
  ASSERT_EQ(dict.size(), 2U);
  EXPECT_EQ(dict[0].name, "a");
  expect_equal(dict[1].tensor, shared, "b");
  EXPECT_NE(dict[0].tensor.const_data_ptr<float>(), dict[1].tensor.const_data_ptr<float>());
}

TEST(Safetensors, RefusesWhatNoFileCanHoldAndLeavesTheOldOne) {
  const TempDirectory folder;
  write_file(folder / "file", "old");
  const Tensor one = tensor({1.0F});
  const auto save = [&](const StateDict& dict, const io::Metadata& metadata = {}) {
    return [&folder, dict, metadata] { io::save_file(dict, folder / "file", metadata); };
  };
  EXPECT_TRUE(throws<ValueError>(save({{"a", one}, {"a", one}}), "\"a\" is given twice"));
  EXPECT_TRUE(throws<ValueError>(save({{"a", Tensor()}}), "\"a\" is undefined"));
  EXPECT_TRUE(throws<ValueError>(save({{"__metadata__", one}}), "__metadata__"));
  EXPECT_TRUE(throws<ValueError>(save({{"a\xff", one}}), "not UTF-8"));
  EXPECT_TRUE(throws<ValueError>(save({}, {{"a", "\xc3"}}), "\"a\" is not UTF-8"));
  EXPECT_TRUE(throws<ModuleError>(save({{"a", Parameter::uninitialized()}}), "\"a\""));
  const Tensor rows = from_values<std::int64_t>({0}, {1, 1});
  const Tensor sparse = sparse_coo_tensor(rows, ones({1, 1}), {2, 1});
  EXPECT_TRUE(throws<ValueError>(save({{"a", one}, {"b", sparse}}), "\"b\" is sparse"));
  EXPECT_EQ(read_file(folder / "file"), "old");
  EXPECT_EQ(testing::files_in(folder.path()), 1);
}

}  // namespace safetensors_test
}  // namespace lockstep
