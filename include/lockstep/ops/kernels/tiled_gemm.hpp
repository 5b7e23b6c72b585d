// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host/blas.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <type_traits>

// Products of f32 on host devices in tiles of registers. Rows of an operand are read where they
// lie, so that a BLAS, which writes out both operands for its kernel, takes a fifth longer; and a
// matrix that many products share is written out once.
namespace lockstep::detail {

// A product in blocks of terms: b is written as panels into the work space, which stay in the
// second cache, and each tile of rows passes them all. An element is a sum of its blocks' sums,
// each in the order of k, whatever m and n are and wherever it lies.
struct TiledGemm {
  enum class Part : std::uint8_t { all, panels, product };
  Gemm<float> gemm;
  View<float> work;
  Part part = Part::all;  // or the panels of all of b alone, or the product with those in `work`

  // The floats of work space; 0 if the product is not computed so: if the machine has no tiles or
  // they hang over its edges, if it has fewer than 12 rows, if a BLAS may have several threads, or
  // if panels would serve once on a machine without AVX-512, for which a BLAS's kernels are as
  // fast.
  static std::int64_t work_size(const Gemm<float>& gemm, Part part);

  void operator()() const;
};

// Launches a product, in tiles if it is so large that their panels pay.
template <class T>
void launch_gemm(const Stream& stream, const Gemm<T>& gemm) {
  if constexpr (std::is_same_v<T, float>) {
    constexpr std::int64_t kLeast = std::int64_t{1} << 18;  // multiplications
    const bool large = gemm.m >= 32 && gemm.m * gemm.n * gemm.k >= kLeast;
    if (const std::int64_t size = large && stream.device().is_cpu()
                                      ? TiledGemm::work_size(gemm, TiledGemm::Part::all)
                                      : 0) {
      const Tensor work = empty_on(stream, {size}, Dtype::f32);
      return launch_on_host(stream, TiledGemm{gemm, output<float>(work, stream)});
    }
  }
  launch_call(stream, gemm);
}

// A Gemm that is called often, with other a and c, which may have more rows.
template <class T>
class RepeatedGemm {
 public:
  RepeatedGemm(const Stream& stream, const Gemm<T>& gemm) : stream_(stream) {
    if constexpr (std::is_same_v<T, float>) {
      const std::int64_t size =
          stream.device().is_cpu() ? TiledGemm::work_size(gemm, TiledGemm::Part::panels) : 0;
      if (size == 0) return;
      work_ = empty_on(stream, {size}, Dtype::f32);
      launch_on_host(stream,
                     TiledGemm{gemm, output<float>(work_, stream), TiledGemm::Part::panels});
    }
  }

  void operator()(const Gemm<T>& gemm) const {
    if constexpr (std::is_same_v<T, float>) {
      if (work_.defined()) {
        return launch_on_host(
            stream_, TiledGemm{gemm, output<float>(work_, stream_), TiledGemm::Part::product});
      }
    }
    launch_call(stream_, gemm);
  }

 private:
  const Stream stream_;
  Tensor work_;
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/kernels/impl/tiled_gemm.ipp>
#endif
