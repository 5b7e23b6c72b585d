// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

// What every carrier has to do alike: each function is called by all ranks of a group, and compares
// this rank's results, bit by bit, with what it computes itself of what all ranks bring.
namespace lockstep::testing {

using distributed::ProcessGroup;
using distributed::ReduceOp;

// Element i of what a rank brings: without pattern, small, and rounded by every sum of floating
// point.
template <class T>
T brought(int rank, std::size_t i) {
  std::uint64_t bits =
      (i + 1) * 0x9E3779B97F4A7C15U + static_cast<std::uint64_t>(rank + 1) * 0xD1B54A32D192ED03U;
  bits ^= bits >> 29;
  bits *= 0xBF58476D1CE4E5B9U;
  bits ^= bits >> 32;
  if constexpr (std::is_same_v<T, bool>) {
    return bits % 4 == 0;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(bits % 7);
  } else {
    return T(static_cast<float>(static_cast<double>(bits >> 11) * 0x1p-52 - 1.0));
  }
}

// Made and read as bytes in host memory, as not every type can be given as values.
template <class T>
Tensor from_function(std::size_t count, Device device, const auto& function) {
  const Tensor tensor = empty({static_cast<std::int64_t>(count)}, {.dtype = dtype_of<T>});
  T* data = tensor.mutable_data_ptr<T>();
  for (std::size_t i = 0; i < count; ++i) data[i] = function(i);
  return tensor.to(device);
}

template <class T>
Tensor brought_tensor(int rank, std::size_t count, Device device, std::size_t from = 0) {
  return from_function<T>(count, device, [&](std::size_t i) { return brought<T>(rank, from + i); });
}

// The first element that differs, if one does.
template <class T>
::testing::AssertionResult same_bits(const Tensor& tensor, const auto& expected) {
  const Tensor host = tensor.to("cpu");
  const T* data = host.const_data_ptr<T>();
  for (std::size_t i = 0; i < static_cast<std::size_t>(tensor.numel()); ++i) {
    const T value = expected(i);
    if (std::memcmp(&value, &data[i], sizeof(T)) != 0) {
      return ::testing::AssertionFailure() << "element " << i << " of " << tensor.numel();
    }
  }
  return ::testing::AssertionSuccess();
}

// What the ranks bring, combined in their order in the simplest way.
template <class T>
T combined(ReduceOp op, int size, std::size_t i) {
  using Wide = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;
  Wide total = static_cast<Wide>(brought<T>(0, i));
  for (int r = 1; r < size; ++r) {
    const Wide next = static_cast<Wide>(brought<T>(r, i));
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        total = static_cast<Wide>(total + next);
        break;
      case ReduceOp::product:
        total = static_cast<Wide>(total * next);
        break;
      case ReduceOp::min:
        total = next < total ? next : total;
        break;
      case ReduceOp::max:
        total = total < next ? next : total;
        break;
    }
  }
  if constexpr (std::is_floating_point_v<Wide>) {
    if (op == ReduceOp::avg) total /= static_cast<Wide>(size);
  }
  return T(total);
}

template <class Body>
void for_each_dtype(const Body& body) {
  for (int d = 0; d <= static_cast<int>(Dtype::boolean); ++d) {
    SCOPED_TRACE(name(static_cast<Dtype>(d)));
    dispatch_all(static_cast<Dtype>(d), body);
  }
}

template <class Body>
void for_each_op(Dtype dtype, const Body& body) {
  for (const ReduceOp op :
       {ReduceOp::sum, ReduceOp::avg, ReduceOp::product, ReduceOp::min, ReduceOp::max}) {
    if (op == ReduceOp::avg && !is_floating_point(dtype)) continue;
    SCOPED_TRACE(name(op));
    body(op);
  }
}

// all_reduce, reduce and reduce_scatter of every dtype with every operation.
inline void expect_reductions(const ProcessGroup& group, std::size_t count) {
  SCOPED_TRACE(count);
  const int size = group.size();
  const Device device = group.device();
  for_each_dtype([&]<class T>(T) {
    for_each_op(dtype_of<T>, [&](ReduceOp op) {
      const auto expected = [&](std::size_t i) { return combined<T>(op, size, i); };
      const Tensor tensor = brought_tensor<T>(group.rank(), count, device);
      group.all_reduce(tensor, op).wait();
      EXPECT_TRUE(same_bits<T>(tensor, expected)) << "all_reduce";

      const int root = size - 1;
      const Tensor at_root = brought_tensor<T>(group.rank(), count, device);
      group.reduce(at_root, root, op).wait();
      if (group.rank() == root) {
        EXPECT_TRUE(same_bits<T>(at_root, expected)) << "reduce";
      } else {
        EXPECT_TRUE(same_bits<T>(at_root, [&](std::size_t i) {
          return brought<T>(group.rank(), i);
        })) << "reduce";
      }

      const auto parts = static_cast<std::size_t>(size);
      const Tensor all = brought_tensor<T>(group.rank(), parts * count, device);
      const Tensor part =
          zeros({static_cast<std::int64_t>(count)}, {.dtype = dtype_of<T>, .device = device});
      group.reduce_scatter_tensor(part, all, op).wait();
      const std::size_t first = static_cast<std::size_t>(group.rank()) * count;
      EXPECT_TRUE(same_bits<T>(part, [&](std::size_t i) { return expected(first + i); }))
          << "reduce_scatter_tensor";
    });
  });
}

// What moves bytes only, as lists of tensors and in one tensor.
inline void expect_moves(const ProcessGroup& group, std::size_t count) {
  SCOPED_TRACE(count);
  const int size = group.size();
  const int rank = group.rank();
  const Device device = group.device();
  const auto length = static_cast<std::int64_t>(count);
  for_each_dtype([&]<class T>(T) {
    const TensorOptions options{.dtype = dtype_of<T>, .device = device};
    const auto from_rank = [](int r) { return [r](std::size_t i) { return brought<T>(r, i); }; };
    const auto from_all = [&](std::size_t i) {
      return brought<T>(static_cast<int>(i / count), i % count);
    };
    const Tensor input = brought_tensor<T>(rank, count, device);
    const int root = size / 2;

    const Tensor copy = brought_tensor<T>(rank, count, device);
    group.broadcast(copy, root).wait();
    EXPECT_TRUE(same_bits<T>(copy, from_rank(root))) << "broadcast";

    std::vector<Tensor> outputs;
    for (int r = 0; r < size; ++r) outputs.push_back(zeros({length}, options));
    group.all_gather(outputs, input).wait();
    for (int r = 0; r < size; ++r) {
      EXPECT_TRUE(same_bits<T>(outputs[static_cast<std::size_t>(r)], from_rank(r)))
          << "all_gather " << r;
    }
    const Tensor whole = zeros({size * length}, options);
    group.all_gather_into_tensor(whole, input).wait();
    EXPECT_TRUE(same_bits<T>(whole, from_all)) << "all_gather_into_tensor";

    std::vector<Tensor> gathered;
    for (int r = 0; rank == root && r < size; ++r) gathered.push_back(zeros({length}, options));
    group.gather(input, gathered, root).wait();
    for (std::size_t r = 0; r < gathered.size(); ++r) {
      EXPECT_TRUE(same_bits<T>(gathered[r], from_rank(static_cast<int>(r)))) << "gather " << r;
    }

    std::vector<Tensor> parts;
    for (int r = 0; rank == root && r < size; ++r)
      parts.push_back(brought_tensor<T>(r + 5, count, device));
    const Tensor mine = zeros({length}, options);
    group.scatter(mine, parts, root).wait();
    EXPECT_TRUE(same_bits<T>(mine, from_rank(rank + 5))) << "scatter";

    // To the right around the ring, everybody at once, and received before it is sent.
    if (size > 1) {
      const Tensor received = zeros({length}, options);
      const auto receive = group.recv(received, (rank + size - 1) % size, 3);
      const auto send = group.send(input, (rank + 1) % size, 3);
      receive.wait();
      send.wait();
      EXPECT_TRUE(same_bits<T>(received, from_rank((rank + size - 1) % size))) << "recv";
    }
  });
  group.barrier().wait();
}

// Several operations in flight, waited for in the other order.
inline void expect_many_in_flight(const ProcessGroup& group) {
  constexpr std::size_t kCount = 40;
  std::vector<Tensor> tensors;
  std::vector<distributed::Work> works;
  for (std::size_t k = 0; k < kCount; ++k) {
    tensors.push_back(full({static_cast<std::int64_t>(k * k * 7 + 1)},
                           static_cast<double>(k) + group.rank(), {.device = group.device()}));
    works.push_back(group.all_reduce(tensors[k]));
  }
  for (std::size_t k = kCount; k-- > 0;) {
    works[k].wait();
    const double sum =
        static_cast<double>(k) * group.size() + group.size() * (group.size() - 1) / 2.0;
    for (const float value : tensors[k].to_vector<float>()) ASSERT_EQ(value, sum);
    EXPECT_TRUE(works[k].is_completed());
  }
}

// Each rank sends to the next and receives from the one before, which is itself in a ring of one;
// and each sends to itself, two tags in an order of their own.
inline void expect_ring(const ProcessGroup& group) {
  const auto number = [&](double value) { return full({3}, value, {.device = group.device()}); };
  const auto expect = [](const Tensor& tensor, int value) {
    EXPECT_EQ(tensor.to_vector<float>(), std::vector<float>(3, static_cast<float>(value)));
  };
  const int before = (group.rank() + group.size() - 1) % group.size();
  for (const bool receives_first : {false, true}) {
    const Tensor got = number(-1);
    distributed::Work received;
    if (receives_first) received = group.recv(got, before);
    const distributed::Work sent =
        group.send(number(group.rank()), (group.rank() + 1) % group.size());
    if (!receives_first) received = group.recv(got, before);
    received.wait();
    sent.wait();
    expect(got, before);
  }
  const Tensor value = number(1);
  (void)group.blocking().send(value, group.rank(), 5);
  value.copy_(number(2));  // what was sent is another's
  group.send(value, group.rank(), 6).wait();
  value.copy_(number(3));
  group.send(value, group.rank(), 5).wait();
  for (const auto& [tag, expected] : {std::pair{6, 2}, {5, 1}, {5, 3}}) {
    const Tensor got = number(0);
    (void)group.blocking().recv(got, group.rank(), tag);
    expect(got, expected);
  }
  (void)group.send(value, group.rank());
  EXPECT_THROW(group.recv(zeros({7}, {.device = group.device()}), group.rank()).wait(), ValueError);
}

// Groups of the even ranks and of the others, and one of all in the other order.
inline void expect_new_groups(const ProcessGroup& group) {
  std::vector<int> even;
  std::vector<int> odd;
  std::vector<int> reversed;
  for (int r = 0; r < group.size(); ++r) {
    (r % 2 == 0 ? even : odd).push_back(r);
    reversed.insert(reversed.begin(), r);
  }
  const ProcessGroup evens = group.new_group(even);
  const ProcessGroup odds = odd.empty() ? ProcessGroup() : group.new_group(odd);
  const ProcessGroup turned = group.new_group(reversed);
  EXPECT_EQ(evens.defined(), group.rank() % 2 == 0);
  EXPECT_EQ(odds.defined(), group.rank() % 2 == 1);
  EXPECT_EQ(turned.rank(), group.size() - 1 - group.rank());

  const ProcessGroup mine = evens ? evens : odds;
  EXPECT_EQ(mine.size(), static_cast<int>((evens ? even : odd).size()));
  EXPECT_EQ(mine.rank(), group.rank() / 2);
  const Tensor number = full({1}, group.rank(), {.device = group.device()});
  mine.all_reduce(number).wait();
  int sum = 0;
  for (const int r : evens ? even : odd) sum += r;
  EXPECT_EQ(number.item(), sum);

  number.fill_(group.rank());
  turned.broadcast(number, 0).wait();
  EXPECT_EQ(number.item(), group.size() - 1);
}

}  // namespace lockstep::testing
