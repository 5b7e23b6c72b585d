// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <filesystem>

namespace lockstep::data {

// Reads the array in an idx file (the format of MNIST), plain or gzip-compressed, as a tensor of
// its shape and dtype (u8, i32, f32 or f64) on `cpu`.
//
// Source of the format: http://yann.lecun.com/exdb/mnist, "The idx file format".
//
// **Torch counterpart.** torchvision's read_sn3_pascalvincent_tensor.
// **Threads and exceptions.** A DataError that names the file, and where useful the byte, unless
// the file is exactly one idx file.
Tensor read_idx(const std::filesystem::path& path);

}  // namespace lockstep::data

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/data/impl/idx.ipp>
#endif
