// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/function_ref.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/tensor/device_random.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace lockstep {

class Generator;

namespace detail {

// Each call returns 64 random bits.
using RandomBits = FunctionRef<std::uint64_t()>;

// Uniform in [0, 1), a multiple of 2⁻⁵³.
inline double uniform_of(RandomBits bits) { return static_cast<double>(bits() >> 11) * 0x1p-53; }
// Standard normal, by the ziggurat of Marsaglia and Tsang (2000).
double normal_of(RandomBits bits);

// Calls `fill` with the bits for a tensor on `device`: those of `generator`, which is locked
// meanwhile. In a replica the default generator is replaced by the replica's own sequence on that
// device, of which one number seeds the whole tensor.
void with_random_bits(Generator& generator, Device device, FunctionRef<void(RandomBits)> fill);

}  // namespace detail

// A source of random numbers whose sequence depends on the seed alone. It uses the standard's
// 64-bit Mersenne Twister and its own distributions, since the standard does not fix the numbers of
// its distributions.
//
// **Torch counterpart.** torch::Generator; the sequences differ.
// **Threads and exceptions.** Any thread may draw; `mutex_` guards the engine. If several do, which
// one gets which number depends on their order.
class Generator : detail::NonCopyable {
 public:
  explicit Generator(std::uint64_t seed = 67280421310721);
  ~Generator();

  void manual_seed(std::uint64_t seed);
  // 64 random bits.
  std::uint64_t bits();
  // Uniform in [0, 1), a multiple of 2⁻⁵³.
  double uniform();
  // Standard normal.
  double normal();
  // Uniform in [0, bound), without bias. A ValueError for a bound of 0.
  std::uint64_t below(std::uint64_t bound);

  // The state of the engine, as text.
  //
  // **Torch counterpart.** torch::Generator::get_state.
  std::string state();
  // Continues the sequence from where `state` was taken. Invalid text is a ValueError and changes
  // nothing.
  //
  // **Torch counterpart.** torch::Generator::set_state.
  void set_state(const std::string& state);

 private:
  friend void detail::with_random_bits(Generator&, Device,
                                       detail::FunctionRef<void(detail::RandomBits)>);

  struct Engine;

  std::mutex mutex_;
  const std::unique_ptr<Engine> engine_;
};

namespace detail {

// A program's random numbers: those drawn on the host, and those that kernels draw.
struct RandomNumbers {
  Generator generator;
  DeviceRandom devices;
};

// The numbers that this thread draws instead of the process's; null except in a rank of
// distributed::run and the threads that work for it.
std::shared_ptr<RandomNumbers>& random_override();

RandomNumbers& random_numbers();
inline DeviceRandom& device_random() { return random_numbers().devices; }

// Throws unless numbers of `dtype` can be drawn from [low, high): a ValueError for bounds that are
// not finite or not in order, or, for an integer dtype, with no whole number between them; a
// DtypeError for bounds out of the dtype's range.
void check_uniform(const char* operation, double low, double high, Dtype dtype);

// Uniform in [low, high), even after rounding to `dtype`; `low` if they are equal. For integers all
// whole numbers in it are equally likely, if doubles have all of them. The bounds have passed
// check_uniform.
double uniform_in(double low, double high, Dtype dtype, RandomBits bits);

// A copy of this thread's numbers, which continues from their present state.
std::shared_ptr<RandomNumbers> copy_random_numbers();

}  // namespace detail

// The generator that functions use by default: the process's, or in a rank of distributed::run the
// rank's, which starts as a copy of its caller's. In a replica that parallel_apply runs, filling a
// tensor by it draws the replica's own numbers, like dropout: they depend on the seed, the device
// and the replica, not on the order of threads.
inline Generator& default_generator() { return detail::random_numbers().generator; }

// Seeds the default generator and the random numbers that kernels and replicas draw.
//
// **Torch counterpart.** torch::manual_seed.
void manual_seed(std::uint64_t seed);

// A tensor of numbers uniform in [low, high); for an integer dtype, of the whole numbers in it.
// They are drawn on the host, so every device gets the same, and each replica its own
// (default_generator). A ValueError for bounds that are not finite or not in order, or, for an
// integer dtype, with no whole number between them; a DtypeError for bounds out of the dtype's
// range.
//
// **Torch counterpart.** torch::rand.
Tensor rand(const Shape& shape, const TensorOptions& options = {}, double low = 0, double high = 1,
            Generator& generator = default_generator());
template <std::same_as<Dtype> D>
Tensor rand(const Shape& shape, D dtype) {
  return rand(shape, TensorOptions{.dtype = dtype});
}

// A tensor of normal numbers with mean 0 and deviation 1, drawn on the host as rand's are. A
// DtypeError for a dtype that is not floating-point.
//
// **Torch counterpart.** torch::randn.
Tensor randn(const Shape& shape, const TensorOptions& options = {},
             Generator& generator = default_generator());
template <std::same_as<Dtype> D>
Tensor randn(const Shape& shape, D dtype) {
  return randn(shape, TensorOptions{.dtype = dtype});
}

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/impl/random.ipp>
#endif
