// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <filesystem>

namespace lockstep::data {

// Reads the array in a .npy file as a tensor of its shape and dtype on `cpu`: f4, f8, f2, i8, i4,
// u1, b1 become f32, f64, f16, i64, i32, u8, bool, and V2, as which Python's ml_dtypes saves
// bfloat16, becomes bf16.
//
// It reads versions 1 to 3 of the format, in either byte order and order of elements, plain or
// gzip-compressed.
//
// **Torch counterpart.** torch.from_numpy(numpy.load(path)).
// **Threads and exceptions.** A DataError that names the file and the fault, unless the file is
// exactly one .npy file of one of these types.
Tensor read_npy(const std::filesystem::path& path);

// Writes a tensor, from any device, as a .npy file with the bytes that numpy.save would write for
// the same array in C order; bf16 as V2, which `.view(ml_dtypes.bfloat16)` converts back. An
// existing file stays until the new one is complete.
//
// **Torch counterpart.** numpy.save(path, tensor.numpy()).
// **Threads and exceptions.** A DataError that names the file if it cannot be written.
void write_npy(const std::filesystem::path& path, const Tensor& tensor);

}  // namespace lockstep::data

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/data/impl/npy.ipp>
#endif
