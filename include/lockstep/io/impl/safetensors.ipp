// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/atomic_file.hpp>
#include <lockstep/error.hpp>
#include <lockstep/io/json.hpp>
#include <lockstep/io/safetensors.hpp>
#include <lockstep/io/safetensors_header.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
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
#include <vector>

namespace lockstep::io::detail {

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
    check<ValueError>(!tensor.is_sparse(), "save_file: tensor ", json_string(name),
                      " is sparse, which the format has not: to_dense() gives a dense one");
  }
  for (const auto& [key, value] : metadata) {
    check<ValueError>(is_utf8(key) && is_utf8(value), "save_file: the metadata ", json_string(key),
                      " is not UTF-8");
  }
}

// The tensors in the order of Python's writer: wide elements first, so that all are aligned, and
// tensors of one dtype by name.
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

}  // namespace lockstep::io::detail

namespace lockstep::io {

LOCKSTEP_INLINE void save_file(const StateDict& tensors, const std::filesystem::path& path,
                               const Metadata& metadata) {
  detail::check_saveable(tensors, metadata);
  const std::vector<const NamedTensor*> order = detail::in_file_order(tensors);
  detail::SafetensorsHeader header;
  header.metadata = metadata;
  std::uint64_t end = 0;
  for (const NamedTensor* entry : order) {
    const Tensor& tensor = entry->tensor;
    const std::uint64_t begin = end;
    end += lockstep::detail::bytes_of(tensor);
    header.tensors.push_back({entry->name, tensor.dtype(), tensor.sizes(), begin, end, {}});
  }
  const std::string text = detail::format_header(header);
  check<ValueError>(text.size() <= detail::kMaxHeader, "save_file: the header would take ",
                    text.size(), " bytes, and the format allows ", detail::kMaxHeader);
  const auto length = std::bit_cast<std::array<std::byte, 8>>(std::uint64_t{text.size()});

  lockstep::detail::AtomicFile file(path);
  file.write(length);
  file.write(std::as_bytes(std::span(text)));
  for (const NamedTensor* entry : order) {
    const Tensor host = lockstep::detail::contiguous_on_host(entry->tensor);
    file.write(lockstep::detail::host_bytes(host));
  }
  file.commit();
}

LOCKSTEP_INLINE SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
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

LOCKSTEP_INLINE std::vector<std::string> SafetensorsFile::keys() const {
  std::vector<std::string> result;
  for (const detail::TensorEntry& entry : header_.tensors) result.push_back(entry.name);
  return result;
}

LOCKSTEP_INLINE Tensor SafetensorsFile::get_tensor(std::string_view name, Device device) const {
  const auto& tensors = header_.tensors;
  const auto found =
      lockstep::detail::find_if(tensors, [name](const auto& entry) { return entry.name == name; });
  check<DataError>(found != tensors.end(), file_.path().string(), ": there is no tensor ",
                   detail::json_string(name));
  return read(*found, device);
}

LOCKSTEP_INLINE StateDict SafetensorsFile::get_tensors(Device device) const {
  StateDict result;
  for (const detail::TensorEntry& entry : header_.tensors) {
    result.push_back({entry.name, read(entry, device)});
  }
  return result;
}

LOCKSTEP_INLINE Tensor SafetensorsFile::read(const detail::TensorEntry& entry,
                                             Device device) const {
  check<DataError>(entry.foreign_dtype.empty(), file_.path().string(), ": tensor ",
                   detail::json_string(entry.name), " is of dtype ",
                   detail::json_string(entry.foreign_dtype),
                   ": expected F64, F32, F16, BF16, I64, I32, U8 or BOOL");
  const Tensor host = empty(entry.shape, {.dtype = entry.dtype});
  const std::span bytes(static_cast<std::byte*>(lockstep::detail::write_on_host(host, entry.dtype)),
                        lockstep::detail::bytes_of(host));
  file_.read(data_at_ + entry.begin, bytes);
  if (entry.dtype == Dtype::boolean) {  // reading another byte as a bool is undefined behaviour
    const auto bad =
        std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
    check<DataError>(bad == bytes.end(), file_.path().string(), ": element ", bad - bytes.begin(),
                     " of the bool tensor ", detail::json_string(entry.name),
                     " is neither 0 nor 1");
  }
  if (device.is_host_memory()) return host;
  return lockstep::detail::copy_as(host, {.dtype = entry.dtype, .device = device});
}

LOCKSTEP_INLINE StateDict load_file(const std::filesystem::path& path, Device device) {
  return SafetensorsFile(path).get_tensors(device);
}

LOCKSTEP_INLINE Metadata load_metadata(const std::filesystem::path& path) {
  return SafetensorsFile(path).metadata();
}

}  // namespace lockstep::io
