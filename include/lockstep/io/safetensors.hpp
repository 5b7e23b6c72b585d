// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/io/input_file.hpp>
#include <lockstep/io/safetensors_header.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Files of the safetensors format, which Python's package of that name reads and writes: the length
// of a header, the header (names, dtypes, shapes and offsets, in JSON), the elements.
namespace lockstep::io {

static_assert(std::endian::native == std::endian::little,
              "lockstep: safetensors files hold little-endian numbers, and no other machine is "
              "supported");

// Writes tensors by name to a file, together with `metadata`.
//
// The file is written under another name in the same folder, flushed to disk, and renamed, so there
// is always either the old file or the complete new one. A tensor with several names is written
// under each; a view is written as the elements it shows.
//
// **Torch counterpart.** safetensors.torch.save_file, and with state_dict torch.save.
// **Devices and streams.** Tensors may be on any device. They are read one at a time on the current
// streams of their devices, and waited for.
// **Threads and exceptions.** Before anything is written, a ValueError for a name that is used
// twice, reserved ("__metadata__") or not UTF-8, for metadata that is not UTF-8, an undefined or
// sparse tensor, and more than 100 MB of names; a ModuleError for an uninitialised parameter. A
// DataError that names the file if it cannot be written; the old one is then unchanged, unless only
// the folder could not be flushed, which the message says.
// **Example.** io::save_file(state_dict(net), "net.safetensors", {{"epoch", "12"}});
void save_file(const StateDict& tensors, const std::filesystem::path& path,
               const Metadata& metadata = {});

// An open file of which only the header has been read.
//
// Opening it checks the whole layout, so that a damaged file is detected before memory is allocated
// for its tensors.
//
// **Torch counterpart.** safetensors.safe_open.
// **Threads and exceptions.** Any number of threads may read. A DataError that names the file, and
// the byte or the tensor, for a file that cannot be read or is not valid: a header longer than the
// file or than 100 MB; JSON that the format does not allow, or not UTF-8; a duplicate name; bytes
// that do not match the shape, overlap, leave a gap or do not end with the file; more than
// Shape::kMaxDims dimensions; a bool that is neither 0 nor 1. Reading a tensor of a dtype that
// lockstep does not have, such as F8_E4M3, is a DataError that names both.
// **Example.**
//   const io::SafetensorsFile file("net.safetensors");
//   const Tensor weight = file.get_tensor("fc1.weight", "cuda:0");
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const Metadata& metadata() const { return header_.metadata; }

  // The names in file order.
  std::vector<std::string> keys() const;

  // Reads the tensor of that name; a DataError if there is none.
  Tensor get_tensor(std::string_view name, Device device = {}) const;

  // Reads all tensors, in file order.
  StateDict get_tensors(Device device = {}) const;

 private:
  Tensor read(const detail::TensorEntry& entry, Device device) const;

  detail::InputFile file_;
  detail::SafetensorsHeader header_;
  std::uint64_t data_at_ = 0;
};

// Reads all tensors of a file, in file order, as new tensors on `device`.
//
// **Torch counterpart.** safetensors.torch.load_file.
// **Devices and streams.** The tensors belong to the current stream of the device.
// **Threads and exceptions.** See SafetensorsFile.
// **Example.** load_state_dict(net, io::load_file("net.safetensors"));
StateDict load_file(const std::filesystem::path& path, Device device = {});

// Reads a file's metadata; empty if there is none.
//
// **Torch counterpart.** safe_open(path).metadata().
// **Threads and exceptions.** See SafetensorsFile.
Metadata load_metadata(const std::filesystem::path& path);

}  // namespace lockstep::io

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/io/impl/safetensors.ipp>
#endif
