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

// Products of f32 with a matrix that many of them share. A BLAS writes it out for its kernel each
// time, which for few rows takes a third as long as the product; here it is written out once.
namespace lockstep::detail {

// Writes b and the bias as panels into the work space, or multiplies by those that are there. Each
// element is a sum in the order of k, whatever m is.
struct TiledGemm {
  Gemm<float> gemm;
  View<float> work;
  bool writes_panels;

  // The floats of work space; 0 if the product is not computed so: if the machine has no tiles or
  // they are cut off at its edges, or if a BLAS may have several threads.
  static std::int64_t work_size(const Gemm<float>& gemm);

  void operator()() const;
};

// A Gemm that is called often, with other a and c.
template <class T>
class RepeatedGemm {
 public:
  RepeatedGemm(const Stream& stream, const Gemm<T>& gemm) : stream_(stream) {
    if constexpr (std::is_same_v<T, float>) {
      const std::int64_t size = stream.device().is_cpu() ? TiledGemm::work_size(gemm) : 0;
      if (size == 0) return;
      work_ = empty_on(stream, {size}, Dtype::f32);
      launch_on_host(stream, TiledGemm{gemm, output<float>(work_, stream), true});
    }
  }

  void operator()(const Gemm<T>& gemm) const {
    if constexpr (std::is_same_v<T, float>) {
      if (work_.defined()) {
        return launch_on_host(stream_, TiledGemm{gemm, output<float>(work_, stream_), false});
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
