// SPDX-License-Identifier: Apache-2.0
#include <lockstep/tensor/dlpack.hpp>

#include <lockstep/autograd/variable.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/sparse.hpp>

#include "support/expect_error.hpp"
#include "support/gate.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

// Tensors handed to other libraries and taken from them, in DLPack's layout.
namespace lockstep {
namespace dlpack_test {

using dlpack::DLManagedTensorVersioned;
using dlpack::DLTensor;
using testing::Gate;
using testing::throws;

static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, device) == 8 &&
              offsetof(DLTensor, ndim) == 16 && offsetof(DLTensor, dtype) == 20 &&
              offsetof(DLTensor, shape) == 24 && offsetof(DLTensor, strides) == 32 &&
              offsetof(DLTensor, byte_offset) == 40);
static_assert(sizeof(DLManagedTensorVersioned) == 80 &&
              offsetof(DLManagedTensorVersioned, manager_ctx) == 8 &&
              offsetof(DLManagedTensorVersioned, deleter) == 16 &&
              offsetof(DLManagedTensorVersioned, flags) == 24 &&
              offsetof(DLManagedTensorVersioned, dl_tensor) == 32);
static_assert(sizeof(dlpack::DLDataType) == 4 && sizeof(dlpack::DLDevice) == 8);

// A consumer's handle.
using Held = std::unique_ptr<DLManagedTensorVersioned, void (*)(DLManagedTensorVersioned*)>;

Held hold(const Tensor& tensor, std::optional<std::intptr_t> stream = {}) {
  return {to_dlpack(tensor, stream), [](DLManagedTensorVersioned* it) { it->deleter(it); }};
}

// A producer's tensor of 2 × 3 f32, which counts how often it is given back.
struct Foreign {
  Foreign() {
    managed.version = {1, 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned* self) {
      static_cast<Foreign*>(self->manager_ctx)->returns.fetch_add(1);
    };
    managed.flags = 0;
    managed.dl_tensor = {.data = values.data(),
                         .device = {dlpack::kDLCPU, 0},
                         .ndim = 2,
                         .dtype = {dlpack::kDLFloat, 32, 1},
                         .shape = shape.data(),
                         .strides = nullptr,
                         .byte_offset = 0};
  }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;

  DLTensor& tensor() { return managed.dl_tensor; }

  std::vector<float> values{0, 1, 2, 3, 4, 5, 6, 7};
  std::array<std::int64_t, 2> shape{2, 3};
  std::array<std::int64_t, 2> strides{1, 2};
  DLManagedTensorVersioned managed;
  std::atomic<int> returns{0};
};

TEST(ToDlpack, DescribesEveryDtypeAndComesBackUncopied) {
  struct Kind {
    Dtype dtype;
    int code;
    int bits;
  };
  for (const auto& [dtype, code, bits] :
       {Kind{Dtype::f32, 2, 32}, Kind{Dtype::f64, 2, 64}, Kind{Dtype::f16, 2, 16},
        Kind{Dtype::bf16, 4, 16}, Kind{Dtype::i64, 0, 64}, Kind{Dtype::i32, 0, 32},
        Kind{Dtype::u8, 1, 8}, Kind{Dtype::boolean, 6, 8}}) {
    const Tensor x = full({3, 2}, 1, {.dtype = dtype, .device = "cpu:1"});
    DLManagedTensorVersioned* const managed = to_dlpack(x);
    EXPECT_EQ(managed->version.major, 1U);
    EXPECT_EQ(managed->flags, 0U);
    const DLTensor& tensor = managed->dl_tensor;
    EXPECT_EQ(tensor.data, x.impl()->data());
    EXPECT_EQ(tensor.byte_offset, 0U);
    EXPECT_EQ(tensor.device.device_type, dlpack::kDLCPU);
    EXPECT_EQ(tensor.device.device_id, 0);
    EXPECT_EQ(tensor.dtype.code, code) << dtype;
    EXPECT_EQ(tensor.dtype.bits, bits) << dtype;
    EXPECT_EQ(tensor.dtype.lanes, 1);
    const Tensor y = from_dlpack(managed, {.device = "cpu:1"});
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(y.device(), Device("cpu:1"));
    EXPECT_EQ(y.impl()->data(), x.impl()->data());
    EXPECT_EQ(y.to(Dtype::f32).to_vector<float>(), std::vector<float>(6, 1));
  }
}

TEST(ToDlpack, DescribesAView) {
  const Tensor x = arange(12, Dtype::f32);
  const Tensor view = transpose(x.reshape({3, 4}).narrow(1, 1, 2), 0, 1);
  const Held held = hold(view);
  const DLTensor& tensor = held->dl_tensor;
  ASSERT_EQ(tensor.ndim, 2);
  EXPECT_EQ(tensor.data, x.const_data_ptr<float>() + 1);
  EXPECT_EQ(tensor.shape[0], 2);
  EXPECT_EQ(tensor.shape[1], 3);
  EXPECT_EQ(tensor.strides[0], 1);
  EXPECT_EQ(tensor.strides[1], 4);
  const Held scalar = hold(scalar_tensor(2.5F));
  EXPECT_EQ(scalar->dl_tensor.ndim, 0);
  EXPECT_EQ(*static_cast<float*>(scalar->dl_tensor.data), 2.5F);
  EXPECT_EQ(hold(zeros({0, 2}))->dl_tensor.data, nullptr);
}

TEST(ToDlpack, TheConsumerKeepsTheMemory) {
  const auto before = memory_stats("cpu:1").allocated_bytes;
  Tensor x = full({1000}, 3, {.device = "cpu:1"});
  Held held = hold(x);
  x.set_data(zeros({2}));
  EXPECT_EQ(held->dl_tensor.shape[0], 1000);
  EXPECT_EQ(static_cast<float*>(held->dl_tensor.data)[999], 3);
  EXPECT_GE(memory_stats("cpu:1").allocated_bytes, before + 4000);
  held.reset();
  EXPECT_EQ(memory_stats("cpu:1").allocated_bytes, before);
}

// A stream that notes what it is asked for.
class NotingStream final : public detail::StreamState {
 public:
  using StreamState::StreamState;
  bool idle() const override { return false; }
  detail::EventPtr record() override { return nullptr; }
  void wait(const detail::EventPtr&) override { asked.emplace_back("wait"); }
  void synchronize() override { asked.emplace_back("synchronize"); }

  std::vector<std::string> asked;
};

TEST(ToDlpack, WaitsForTheTensorsStreamAndForWhoStillReadsTheMemory) {
  using Asked = std::vector<std::string>;
  NotingStream stream(Device("cpu:1"));
  Gate gate;
  const Tensor x = full({4}, 1, {.device = "cpu:1"});
  const auto version = x.version();
  const StreamGuard guard{Stream(stream)};
  EXPECT_NE(hold(x, -1), nullptr);
  EXPECT_EQ(stream.asked, Asked());
  EXPECT_NE(hold(x), nullptr);
  EXPECT_EQ(stream.asked, Asked({"synchronize"}));
  stream.asked.clear();
  gate.hold(copy_stream("cpu:2"));
  x.record_stream(copy_stream("cpu:2"));
  EXPECT_NE(hold(x), nullptr);
  EXPECT_EQ(stream.asked, Asked({"wait", "synchronize"}));
  EXPECT_EQ(x.version(), version);
}

TEST(ToDlpack, ReportsWhatCannotBeHandedOver) {
  const Tensor x = ones({2, 3}, {.device = "cpu:1", .requires_grad = true});
  EXPECT_TRUE(throws<AutogradError>([&] { (void)to_dlpack(x); }, "to_dlpack", "[2, 3]", "cpu:1",
                                    "requires grad", "detach()"));
  EXPECT_NE(hold(x.detach()), nullptr);
  EXPECT_TRUE(throws<ValueError>([] { (void)to_dlpack(ones({2}), 1); }, "to_dlpack",
                                 "no stream for a tensor on cpu", "got 1"));
  EXPECT_TRUE(throws<OperandError>([] { (void)to_dlpack(Tensor()); }, "undefined"));
  const Tensor rows =
      sparse_coo_tensor(tensor<std::int64_t>({0}).reshape({1, 1}), ones({1, 2}), {3, 2});
  EXPECT_TRUE(throws<OperandError>([&] { (void)to_dlpack(rows); }, "sparse"));
}

TEST(Dlpack, SaysWhereATensorIsAndWhatStreamAProducerHasToKnow) {
  EXPECT_EQ(dlpack_device(ones({2}, {.device = "cpu:3"})).device_type, dlpack::kDLCPU);
  EXPECT_EQ(dlpack_device(ones({2}, {.device = "cpu:3"})).device_id, 0);
  EXPECT_EQ(dlpack_stream(current_stream("cpu:3")), std::nullopt);
}

TEST(FromDlpack, SharesTheMemoryAndGivesItBackOnce) {
  Foreign foreign;
  {
    const Tensor x = from_dlpack(&foreign.managed);
    EXPECT_EQ(x.device(), Device());
    EXPECT_EQ(x.const_data_ptr<float>(), foreign.values.data());
    EXPECT_EQ(x.strides(), Shape({3, 1}));
    x.narrow(0, 1, 1).mul_(10);
    EXPECT_EQ(foreign.returns, 0);
  }
  EXPECT_EQ(foreign.returns, 1);
  EXPECT_EQ(foreign.values, (std::vector<float>{0, 1, 2, 30, 40, 50, 6, 7}));
}

TEST(FromDlpack, GivesItBackAfterTheWork) {
  Foreign foreign;
  Gate gate;
  Tensor x = from_dlpack(&foreign.managed, {.device = "cpu:1"});
  gate.hold(copy_stream("cpu:1"));
  x.record_stream(copy_stream("cpu:1"));
  x = {};
  EXPECT_EQ(foreign.returns, 0);
  gate.open();
  while (foreign.returns == 0) std::this_thread::yield();
  EXPECT_EQ(foreign.returns, 1);
}

TEST(FromDlpack, ReadsOffsetsStridesAndPageLockedMemory) {
  Foreign foreign;
  foreign.tensor().byte_offset = 8;
  foreign.tensor().strides = foreign.strides.data();
  foreign.tensor().device = {dlpack::kDLCUDAHost, 0};
  foreign.managed.version.minor = 7;
  foreign.managed.deleter = nullptr;
  const Tensor x = from_dlpack(&foreign.managed);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{2, 4, 6, 3, 5, 7}));
  foreign.tensor().shape = nullptr;
  foreign.tensor().ndim = 0;
  EXPECT_EQ(from_dlpack(&foreign.managed).item(), 2);
  std::array<std::int64_t, 8> most{1, 1, 1, 1, 1, 1, 1, 1};
  foreign.tensor().shape = most.data();
  foreign.tensor().strides = nullptr;
  foreign.tensor().ndim = 8;
  EXPECT_EQ(from_dlpack(&foreign.managed).dim(), 8U);
}

TEST(FromDlpack, CopiesWhereItMustOrIsAskedTo) {
  for (const bool read_only : {true, false}) {
    Foreign foreign;
    foreign.managed.flags = read_only ? dlpack::kReadOnly : 0;
    foreign.tensor().strides = foreign.strides.data();
    const Tensor x =
        from_dlpack(&foreign.managed,
                    {.device = "cpu:2", .copy = read_only ? std::nullopt : std::optional(true)});
    EXPECT_EQ(foreign.returns, 1);
    EXPECT_EQ(x.device(), Device("cpu:2"));
    x.add_(ones({2, 3}, {.device = "cpu:2"}));
    EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 3, 5, 2, 4, 6}));
    EXPECT_EQ(foreign.values[0], 0);
  }
  Foreign foreign;
  foreign.managed.flags = dlpack::kReadOnly;
  EXPECT_TRUE(throws<ValueError>([&] { (void)from_dlpack(&foreign.managed, {.copy = false}); },
                                 "from_dlpack", "read-only", "none is allowed"));
  EXPECT_EQ(foreign.returns, 0);
}

// What is refused stays its producer's.
TEST(FromDlpack, ReportsWhatItCannotReadAndLeavesItToItsProducer) {
  Foreign foreign;
  const Foreign intact;
  std::array<std::int64_t, 9> ones{1, 1, 1, 1, 1, 1, 1, 1, 1};
  const auto refused = [&]<class E>(E*, const auto& change, const auto&... parts) {
    foreign.managed = intact.managed;
    foreign.managed.manager_ctx = &foreign;
    foreign.tensor().data = foreign.values.data();
    foreign.tensor().shape = foreign.shape.data();
    change(foreign.managed, foreign.tensor());
    return throws<E>([&] { (void)from_dlpack(&foreign.managed); }, "from_dlpack", parts...);
  };
  DataError* const data = nullptr;
  DtypeError* const dtype = nullptr;
  EXPECT_TRUE(refused(
      data,
      [](auto& it, DLTensor&) {
        it.version = {2, 3};
      },
      "DLPack 1", "2.3"));
  EXPECT_TRUE(refused(
      data, [](auto&, DLTensor& it) { it.ndim = -1; }, "got -1"));
  EXPECT_TRUE(refused(
      data, [](auto&, DLTensor& it) { it.shape = nullptr; }, "2 sizes", "null"));
  const auto is = [](int code, int bits, int lanes = 1) {
    return [=](auto&, DLTensor& it) {
      it.dtype = {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits),
                  static_cast<std::uint16_t>(lanes)};
    };
  };
  EXPECT_TRUE(refused(dtype, is(5, 128), "expected f32, f64", "got complex128"));
  EXPECT_TRUE(refused(dtype, is(0, 16), "got int16"));
  EXPECT_TRUE(refused(dtype, is(1, 32), "got uint32"));
  EXPECT_TRUE(refused(dtype, is(17, 4), "code 17 of 4 bits"));
  EXPECT_TRUE(refused(dtype, is(2, 32, 4), "float32 in vectors of 4"));
  EXPECT_TRUE(refused(
      static_cast<DeviceError*>(nullptr),
      [](auto&, DLTensor& it) { it.device.device_type = static_cast<dlpack::DLDeviceType>(8); },
      "kDLCUDA (2)", "device type 8"));
  EXPECT_TRUE(refused(
      static_cast<ShapeError*>(nullptr),
      [&](auto&, DLTensor& it) {
        it.ndim = 9;
        it.shape = ones.data();
      },
      "at most 8 dimensions", "got 9"));
  EXPECT_TRUE(refused(
      static_cast<ValueError*>(nullptr), [](auto&, DLTensor& it) { it.data = nullptr; },
      "null pointer", "6 elements"));
  EXPECT_TRUE(refused(
      static_cast<ValueError*>(nullptr), [](auto&, DLTensor& it) { it.byte_offset = 2; },
      "aligned to 4 bytes"));
  EXPECT_TRUE(throws<ValueError>([] { (void)from_dlpack(nullptr); }, "from_dlpack", "null"));
  EXPECT_EQ(foreign.returns, 0);
}

TEST(FromDlpack, ANegativeStrideIsReported) {
  Foreign foreign;
  foreign.strides = {3, -1};
  foreign.tensor().strides = foreign.strides.data();
  EXPECT_TRUE(throws<ValueError>([&] { (void)from_dlpack(&foreign.managed); }, "from_dlpack",
                                 "negative stride", "[3, -1]"));
  EXPECT_EQ(foreign.returns, 0);
}

}  // namespace dlpack_test
}  // namespace lockstep
