// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/thread/reduce_ranks.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace lockstep {
namespace reduce_ranks_test {

// Values of every size, among them those whose mean is rounded, subnormal or none.
template <class T>
std::vector<T> values_of_rank(std::size_t rank, std::size_t count) {
  using Limits = std::numeric_limits<T>;
  std::mt19937 random(static_cast<unsigned>(rank));
  std::vector<T> values = {T{0},          -T{0},         Limits::denorm_min(),
                           Limits::min(), Limits::max(), -Limits::max()};
  if (rank == 1) values[0] = Limits::denorm_min();
  while (values.size() < count) {
    const int exponent = std::uniform_int_distribution<int>(Limits::min_exponent - Limits::digits,
                                                            Limits::max_exponent - 8)(random);
    values.push_back(std::ldexp(std::uniform_real_distribution<T>(-1, 1)(random), exponent));
  }
  return values;
}

template <class T>
void expect_mean_is_sum_divided() {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  const std::size_t count = 5000;  // more than a block, and no whole number of them
  for (const std::size_t ranks : {1u, 2u, 3u, 4u, 5u, 8u}) {
    std::vector<std::vector<T>> inputs;
    std::vector<const void*> from;
    for (std::size_t r = 0; r < ranks; ++r) inputs.push_back(values_of_rank<T>(r, count));
    for (const std::vector<T>& input : inputs) from.push_back(input.data());
    std::vector<T> mean(count);
    void* const to = mean.data();
    distributed::detail::reduce_ranks(dtype_of<T>, distributed::ReduceOp::avg, from, {&to, 1}, 0,
                                      count);
    for (std::size_t i = 0; i < count; ++i) {
      T sum = inputs[0][i];
      for (std::size_t r = 1; r < ranks; ++r) sum += inputs[r][i];
      const T expected = sum / static_cast<T>(ranks);
      ASSERT_EQ(std::bit_cast<Bits>(mean[i]), std::bit_cast<Bits>(expected))
          << "element " << i << " of " << ranks << " ranks: " << mean[i] << ", not " << expected;
    }
  }
}

TEST(ReduceRanks, AMeanIsTheSumDividedToTheBit) {
  expect_mean_is_sum_divided<float>();
  expect_mean_is_sum_divided<double>();
}

// Bytes behind which there is no memory.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes) : page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
    size_ = (bytes + page_ - 1) / page_ * page_ + page_;
    void* const all =
        ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(all, MAP_FAILED);
    begin_ = static_cast<std::byte*>(all);
    EXPECT_EQ(::mprotect(begin_ + size_ - page_, page_, PROT_NONE), 0);
    data = begin_ + size_ - page_ - bytes;
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { ::munmap(begin_, size_); }

  std::byte* data = nullptr;

 private:
  std::size_t page_;
  std::size_t size_ = 0;
  std::byte* begin_ = nullptr;
};

// Half precision goes through a block of its own.
TEST(ReduceRanks, NothingBehindTheElementsIsTouched) {
  using distributed::ReduceOp;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i64}) {
    for (const std::size_t count : {1U, 2048U, 5000U}) {
      const std::size_t bytes = count * element_size(dtype);
      const Guarded a(bytes);
      const Guarded b(bytes);
      const Guarded c(bytes);
      const Guarded sum(bytes);
      const std::array<const void*, 3> inputs{a.data, b.data, c.data};
      void* const output = sum.data;
      for (std::size_t ranks = 1; ranks <= inputs.size(); ++ranks) {
        std::memset(output, 1, bytes);
        distributed::detail::reduce_ranks(dtype, ReduceOp::sum, {inputs.data(), ranks},
                                          {&output, 1}, 0, count);
        EXPECT_EQ(std::count(sum.data, sum.data + bytes, std::byte{0}),
                  static_cast<std::ptrdiff_t>(bytes));
      }
    }
  }
}

}  // namespace reduce_ranks_test
}  // namespace lockstep
