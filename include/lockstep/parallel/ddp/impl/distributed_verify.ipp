// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/ddp/distributed_verify.hpp>
#include <lockstep/parallel/distributed_options.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::detail {

// Describes a model as text, for ranks to compare: a line for each option, then each parameter and
// buffer in order. A tab follows its kind and its name.
inline std::string describe_model(const std::vector<NamedParameter>& parameters,
                                  const std::vector<NamedBuffer>& buffers,
                                  const DistributedDataParallelOptions& options) {
  std::string text;
  const auto add = [&text](const char* kind, std::string name, const auto&... is) {
    // The keys of a map may contain tabs and newlines.
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c == '\t' || c == '\n'; }, ' ');
    text += str(kind, '\t', name, '\t', is..., '\n');
  };
  const auto add_tensor = [&add](const char* kind, const auto& named, const auto&... more) {
    const Tensor& tensor = named.tensor;
    add(kind, named.name, "of shape ", tensor.sizes(), ", strides ", tensor.strides(), " and ",
        tensor.dtype(), more...);
  };
  std::string caps;
  for (const double cap : options.bucket_cap_mb_list) caps += str(' ', cap);
  add("option", "init_sync", options.init_sync);
  add("option", "forward_sync_buffers", options.forward_sync_buffers);
  add("option", "bucket_cap_mb", options.bucket_cap_mb.value_or(-1));
  add("option", "bucket_cap_mb_list", caps);
  add("option", "find_unused_parameters", options.find_unused_parameters);
  add("option", "static_graph", options.static_graph);
  for (const NamedParameter& parameter : parameters) {
    add_tensor("parameter", parameter, parameter.tensor.requires_grad() ? "" : ", without gradient",
               expects_sparse_gradient(parameter.tensor) ? ", with sparse gradients" : "");
  }
  for (const NamedBuffer& buffer : buffers) add_tensor("buffer", buffer);
  return text;
}

// What a line of that text says of an option, parameter or buffer.
struct ModelLine {
  std::string_view name;
  std::string_view is;
};

inline std::vector<ModelLine> lines_of_kind(std::string_view text, std::string_view kind) {
  std::vector<ModelLine> lines;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() + 1);
    const std::size_t name = line.find('\t') + 1;
    const std::size_t is = line.find('\t', name) + 1;
    if (line.substr(0, name - 1) != kind) continue;
    lines.push_back({line.substr(name, is - name - 1), line.substr(is)});
  }
  return lines;
}

// Throws a ModuleError that says where `other`, of rank `rank`, first differs from rank 0's text.
inline void check_same_model(std::string_view root, std::string_view other, std::size_t rank) {
  const auto check_lines = [&](const char* kind, const char* counted) {
    const std::vector<ModelLine> expected = lines_of_kind(root, kind);
    const std::vector<ModelLine> found = lines_of_kind(other, kind);
    check<ModuleError>(expected.size() == found.size(),
                       "DDP expects same model across all ranks, but Rank 0 has ", expected.size(),
                       ' ', counted, ", while rank ", rank, " has inconsistent ", found.size(), ' ',
                       counted, '.');
    for (std::size_t i = 0; i < expected.size(); ++i) {
      check<ModuleError>(found[i].name == expected[i].name, "DistributedDataParallel: ", kind, ' ',
                         i, " is \"", expected[i].name, "\" on rank 0, but \"", found[i].name,
                         "\" on rank ", rank, ": expected the same ", kind,
                         "s in the same order on every rank");
      check<ModuleError>(found[i].is == expected[i].is, "DistributedDataParallel: ", kind, ' ', i,
                         ", \"", expected[i].name, "\", is ", expected[i].is, " on rank 0, but ",
                         found[i].is, " on rank ", rank);
    }
  };
  check_lines("option", "options");
  check_lines("parameter", "params");
  check_lines("buffer", "buffers");
}

LOCKSTEP_INLINE void verify_same_model(const distributed::ProcessGroup& group, Device device,
                                       const std::vector<NamedParameter>& parameters,
                                       const std::vector<NamedBuffer>& buffers,
                                       const DistributedDataParallelOptions& options) {
  const distributed::ProcessGroup ranks = group.blocking();
  const auto count = static_cast<std::size_t>(ranks.size());
  const std::string text = describe_model(parameters, buffers, options);
  const Tensor digests = empty({ranks.size(), 2}, {.dtype = Dtype::i64, .device = device});
  // Ranks whose standard libraries hash differently go on to compare the texts.
  const std::size_t hash = std::hash<std::string>()(text);
  (void)ranks.all_gather_into_tensor(
      digests,
      tensor({static_cast<std::int64_t>(hash), static_cast<std::int64_t>(text.size())}, device));
  const std::vector<std::int64_t> values = digests.to_vector<std::int64_t>();
  std::int64_t longest = 0;
  bool same = true;
  for (std::size_t r = 0; r < count; ++r) {
    same = same && values[2 * r] == values[0] && values[2 * r + 1] == values[1];
    longest = std::max(longest, values[2 * r + 1]);
  }
  if (same) return;

  std::vector<std::uint8_t> own(static_cast<std::size_t>(longest));
  std::copy(text.begin(), text.end(), own.begin());
  const Tensor texts = empty({ranks.size(), longest}, {.dtype = Dtype::u8, .device = device});
  (void)ranks.all_gather_into_tensor(texts, tensor(own, device));
  const std::vector<std::uint8_t> all = texts.to_vector<std::uint8_t>();
  const auto text_of = [&](std::size_t r) {
    const auto* const begin = all.data() + r * static_cast<std::size_t>(longest);
    return std::string(begin, begin + values[2 * r + 1]);
  };
  const std::string root = text_of(0);
  for (std::size_t r = 1; r < count; ++r) check_same_model(root, text_of(r), r);
}

}  // namespace lockstep::detail
