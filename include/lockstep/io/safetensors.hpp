// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/io/atomic_file.hpp>
#include <lockstep/io/input_file.hpp>
#include <lockstep/io/json.hpp>
#include <lockstep/io/safetensors_header.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Tensors in files of the safetensors format, which Python's package of that name reads and writes:
// the length of a header, the header (names, dtypes, shapes and offsets, in JSON), the elements.
namespace lockstep::io {

static_assert(std::endian::native == std::endian::little,
              "lockstep: safetensors files hold little-endian numbers, and no other machine is "
              "supported");

namespace detail {

// The bytes of a contiguous tensor on the host.
inline std::span<const std::byte> bytes_of(const Tensor& host) {
  return dispatch_all(host.dtype(), [&]<class T>(T) {
    return std::as_bytes(
        std::span(host.const_data_ptr<T>(), static_cast<std::size_t>(host.numel())));
  });
}

inline Tensor contiguous_on_host(const Tensor& tensor) {
  if (tensor.device().is_host_memory()) return lockstep::detail::packed(tensor);
  const Tensor host = empty(tensor.sizes(), {.dtype = tensor.dtype()});
  lockstep::detail::copy_into(host, tensor);
  return host;
}

inline void check_saveable(const StateDict& tensors, const Metadata& metadata) {
  std::set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    check<ValueError>(is_utf8(name), "save_file: the name ", json_string(name), " is not UTF-8");
    check<ValueError>(name != kMetadataKey, "save_file: no tensor can be named ", name);
    check<ValueError>(names.insert(name).second, "save_file: the name ", json_string(name),
                      " is given twice");
    check<ValueError>(tensor.defined(), "save_file: tensor ", json_string(name), " is undefined");
    check<ModuleError>(!lockstep::detail::is_uninitialized(tensor), "save_file: parameter ",
                       json_string(name), " is uninitialized: it has no shape and no elements yet");
  }
  for (const auto& [key, value] : metadata) {
    check<ValueError>(is_utf8(key) && is_utf8(value), "save_file: the metadata ", json_string(key),
                      " is not UTF-8");
  }
}

// The tensors in the order of Python's writer: wide elements first, so that all are aligned, and by
// name among those of one dtype.
inline std::vector<const NamedTensor*> in_file_order(const StateDict& tensors) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& entry : tensors) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    const std::size_t rank_a = dtype_rank(a->tensor.dtype());
    const std::size_t rank_b = dtype_rank(b->tensor.dtype());
    return rank_a != rank_b ? rank_a < rank_b : a->name < b->name;
  });
  return order;
}

}  // namespace detail

// Writes tensors under their names to a file, with `metadata` beside them.
//
// The file is written under another name in the same folder, flushed to the disk, and renamed:
// there is always either the old file or the whole new one. A tensor that has several names is
// written under each. Views and non-contiguous tensors are written as the elements they show.
//
// **Torch counterpart.** safetensors.torch.save_file, and with state_dict torch.save.
// **Devices and streams.** Tensors on any device; each is read on the current stream of its device,
// one at a time, and waited for.
// **Threads and exceptions.** Before anything is written a ValueError for a name that is given
// twice or is not UTF-8, an undefined tensor, and more than 100 MB of names; a ModuleError for an
// uninitialised parameter. A DataError that names the file if it cannot be written: the old one is
// as it was then, unless it is only the folder that could not be flushed, which the message says.
// **Example.** io::save_file(state_dict(net), "net.safetensors", {{"epoch", "12"}});
inline void save_file(const StateDict& tensors, const std::filesystem::path& path,
                      const Metadata& metadata = {}) {
  detail::check_saveable(tensors, metadata);
  const std::vector<const NamedTensor*> order = detail::in_file_order(tensors);
  detail::SafetensorsHeader header;
  header.metadata = metadata;
  std::uint64_t end = 0;
  for (const NamedTensor* entry : order) {
    const Tensor& tensor = entry->tensor;
    const std::uint64_t begin = end;
    end += static_cast<std::uint64_t>(tensor.numel()) * element_size(tensor.dtype());
    header.tensors.push_back({entry->name, tensor.dtype(), tensor.sizes(), begin, end});
  }
  const std::string text = detail::format_header(header);
  check<ValueError>(text.size() <= detail::kMaxHeader, "save_file: the header would take ",
                    text.size(), " bytes, and the format allows ", detail::kMaxHeader);
  const auto length = std::bit_cast<std::array<std::byte, 8>>(std::uint64_t{text.size()});

  detail::AtomicFile file(path);
  file.write(length);
  file.write(std::as_bytes(std::span(text)));
  for (const NamedTensor* entry : order) {
    const Tensor host = detail::contiguous_on_host(entry->tensor);
    file.write(detail::bytes_of(host));
  }
  file.commit();
}

// An open file, of which nothing but the header has been read.
//
// The whole layout is checked when it is opened, so that a damaged file is found out before any
// memory is taken for its tensors.
//
// **Torch counterpart.** safetensors.safe_open.
// **Threads and exceptions.** Any number of threads may read. A DataError that names the file, and
// the byte or the tensor, for a file that cannot be read or breaks a rule of the format: a header
// longer than the file or than 100 MB; JSON that is not as the format has it, or not UTF-8; a name
// that comes twice; an unknown dtype; bytes that do not fit the shape, overlap, leave a hole or do
// not end with the file; more than Shape::kMaxDims dimensions; a bool that is neither 0 nor 1.
// **Example.**
//   const io::SafetensorsFile file("net.safetensors");
//   const Tensor weight = file.get_tensor("fc1.weight", "cuda:0");
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path) : file_(path) {
    const std::string where = file_.path().string();
    std::array<std::byte, 8> bytes{};
    check<DataError>(file_.size() >= bytes.size(), where, ": truncated: ", file_.size(),
                     " bytes hold no header of a safetensors file");
    file_.read(0, bytes);
    const auto length = std::bit_cast<std::uint64_t>(bytes);
    check<DataError>(length <= detail::kMaxHeader, where, ": a header of ", length,
                     " bytes: a safetensors file has at most ", detail::kMaxHeader);
    check<DataError>(length <= file_.size() - bytes.size(), where, ": truncated: a header of ",
                     length, " bytes in a file of ", file_.size());
    data_at_ = bytes.size() + length;
    std::string text(static_cast<std::size_t>(length), '\0');
    file_.read(bytes.size(), std::as_writable_bytes(std::span(text)));
    header_ = detail::parse_header(text, file_.size() - data_at_, where);
  }

  const Metadata& metadata() const { return header_.metadata; }

  // The names, in the order of the file.
  std::vector<std::string> keys() const {
    std::vector<std::string> result;
    for (const detail::TensorEntry& entry : header_.tensors) result.push_back(entry.name);
    return result;
  }

  // A new tensor of that name; a name that is not in the file is a DataError.
  Tensor get_tensor(std::string_view name, Device device = {}) const {
    const auto& tensors = header_.tensors;
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [name](const auto& entry) { return entry.name == name; });
    check<DataError>(found != tensors.end(), file_.path().string(), ": there is no tensor ",
                     detail::json_string(name));
    return read(*found, device);
  }

  // All of them, in the order of the file.
  StateDict get_tensors(Device device = {}) const {
    StateDict result;
    for (const detail::TensorEntry& entry : header_.tensors) {
      result.push_back({entry.name, read(entry, device)});
    }
    return result;
  }

 private:
  Tensor read(const detail::TensorEntry& entry, Device device) const {
    const Tensor host = empty(entry.shape, {.dtype = entry.dtype});
    const auto count = static_cast<std::size_t>(host.numel());
    const std::span<std::byte> bytes = dispatch_all(entry.dtype, [&]<class T>(T) {
      return std::as_writable_bytes(std::span(host.mutable_data_ptr<T>(), count));
    });
    file_.read(data_at_ + entry.begin, bytes);
    if (entry.dtype == Dtype::boolean) check_bools(entry, bytes);
    if (device.is_host_memory()) return host;
    const Tensor result = empty(entry.shape, {.dtype = entry.dtype, .device = device});
    lockstep::detail::copy_into(result, host);
    return result;
  }

  // A C++ bool of any other value is undefined behaviour to look at.
  void check_bools(const detail::TensorEntry& entry, std::span<const std::byte> bytes) const {
    const auto bad =
        std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
    check<DataError>(bad == bytes.end(), file_.path().string(), ": element ", bad - bytes.begin(),
                     " of the bool tensor ", detail::json_string(entry.name),
                     " is neither 0 nor 1");
  }

  detail::InputFile file_;
  detail::SafetensorsHeader header_;
  std::uint64_t data_at_ = 0;
};

// All tensors of a file, in the order of the file, as new tensors on `device`.
//
// **Torch counterpart.** safetensors.torch.load_file.
// **Devices and streams.** The tensors belong to the current stream of the device.
// **Threads and exceptions.** See SafetensorsFile.
// **Example.** load_state_dict(net, io::load_file("net.safetensors"));
inline StateDict load_file(const std::filesystem::path& path, Device device = {}) {
  return SafetensorsFile(path).get_tensors(device);
}

// The text that a file carries beside its tensors; empty if there is none.
//
// **Torch counterpart.** safe_open(path).metadata().
inline Metadata load_metadata(const std::filesystem::path& path) {
  return SafetensorsFile(path).metadata();
}

}  // namespace lockstep::io
