// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <filesystem>

namespace lockstep::data {

// The array in a .npy file, as a tensor of its shape and dtype on `cpu`: f4, f8, f2, i8, i4, u1, b1
// become f32, f64, f16, i64, i32, u8, bool, and V2, as which Python's ml_dtypes saves its bfloat16,
// becomes bf16.
//
// Versions 1 to 3 of the format, both byte orders, both orders of the elements; the file may be
// packed by gzip.
//
// **Torch counterpart.** torch.from_numpy(numpy.load(path)).
// **Threads and exceptions.** A DataError that names the file, and what it is that cannot be,
// unless the file is a whole .npy file of one of these types and nothing else.
Tensor read_npy(const std::filesystem::path& path);

// Writes the tensor, from whichever device, as a .npy file that is byte for byte what numpy.save
// makes of the same array in C order; bf16 as V2, which `.view(ml_dtypes.bfloat16)` turns back. A
// file that is there stays until the new one is whole.
//
// **Torch counterpart.** numpy.save(path, tensor.numpy()).
// **Threads and exceptions.** A DataError that names the file if it cannot be written.
void write_npy(const std::filesystem::path& path, const Tensor& tensor);

}  // namespace lockstep::data

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/data/impl/npy.ipp>
#endif
