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
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::detail {

// Replaces tabs and newlines in the name, which the keys of a map may contain.
inline std::string describe_tensor(std::string name, const Tensor& tensor) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '\t' || c == '\n'; }, ' ');
  return str(name, "\tof shape ", tensor.sizes(), ", strides ", tensor.strides(), " and ",
             tensor.dtype());
}

// A model as text, by which ranks compare theirs: the options, then each parameter and buffer in
// order. A name ends with a tab, everything with a newline.
struct ModelDescription {
  std::vector<std::string> options;
  std::vector<std::string> parameters;
  std::vector<std::string> buffers;

  ModelDescription(const std::vector<NamedParameter>& named_parameters,
                   const std::vector<NamedBuffer>& named_buffers,
                   const DistributedDataParallelOptions& settings) {
    std::string caps;
    for (const double cap : settings.bucket_cap_mb_list) caps += str(' ', cap);
    options = {str("init_sync\t", settings.init_sync),
               str("forward_sync_buffers\t", settings.forward_sync_buffers),
               str("bucket_cap_mb\t", settings.bucket_cap_mb.value_or(-1)),
               str("bucket_cap_mb_list\t", caps),
               str("find_unused_parameters\t", settings.find_unused_parameters),
               str("static_graph\t", settings.static_graph)};
    for (const auto& [name, tensor] : named_parameters) {
      parameters.push_back(describe_tensor(name, tensor) +
                           (tensor.requires_grad() ? "" : ", without gradient") +
                           (expects_sparse_gradient(tensor) ? ", with sparse gradients" : ""));
    }
    for (const auto& [name, tensor] : named_buffers) {
      buffers.push_back(describe_tensor(name, tensor));
    }
  }

  explicit ModelDescription(std::string_view text) {
    for (std::vector<std::string>* list : {&options, &parameters, &buffers}) {
      while (!text.starts_with('\n')) {
        const std::size_t end = text.find('\n');
        list->emplace_back(text.substr(0, end));
        text.remove_prefix(end + 1);
      }
      text.remove_prefix(1);
    }
  }

  std::string text() const {
    std::string result;
    for (const std::vector<std::string>* list : {&options, &parameters, &buffers}) {
      for (const std::string& line : *list) result += line + '\n';
      result += '\n';
    }
    return result;
  }
};

// FNV-1a, 64 bits: the same on every machine.
inline std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

// Throws the ModuleError that says where `other`, of rank `rank`, first differs from rank 0's.
inline void check_same_model(const ModelDescription& root, const ModelDescription& other,
                             std::size_t rank) {
  const auto check_list = [rank](const char* kind, const std::vector<std::string>& expected,
                                 const std::vector<std::string>& found) {
    const std::size_t both = std::min(expected.size(), found.size());
    for (std::size_t i = 0; i < both; ++i) {
      if (found[i] == expected[i]) continue;
      const std::size_t tab = expected[i].find('\t');
      const std::size_t other_tab = found[i].find('\t');
      const std::string name = expected[i].substr(0, tab);
      const std::string other_name = found[i].substr(0, other_tab);
      check<ModuleError>(name == other_name, "DistributedDataParallel: ", kind, ' ', i, " is \"",
                         name, "\" on rank 0, but \"", other_name, "\" on rank ", rank,
                         ": expected the same ", kind, "s in the same order on every rank");
      fail<ModuleError>("DistributedDataParallel: ", kind, ' ', i, ", \"", name, "\", is ",
                        expected[i].substr(tab + 1), " on rank 0, but ",
                        found[i].substr(other_tab + 1), " on rank ", rank);
    }
  };
  check_list("option", root.options, other.options);
  const auto check_count = [rank](const char* kind, std::size_t expected, std::size_t found) {
    check<ModuleError>(expected == found,
                       "DDP expects same model across all ranks, but Rank 0 has ", expected, ' ',
                       kind, ", while rank ", rank, " has inconsistent ", found, ' ', kind, '.');
  };
  check_count("params", root.parameters.size(), other.parameters.size());
  check_list("parameter", root.parameters, other.parameters);
  check_count("buffers", root.buffers.size(), other.buffers.size());
  check_list("buffer", root.buffers, other.buffers);
}

LOCKSTEP_INLINE void verify_same_model(const distributed::ProcessGroup& group, Device device,
                                       const std::vector<NamedParameter>& parameters,
                                       const std::vector<NamedBuffer>& buffers,
                                       const DistributedDataParallelOptions& options) {
  const distributed::ProcessGroup ranks = group.blocking();
  const auto count = static_cast<std::size_t>(ranks.size());
  const std::string text = ModelDescription(parameters, buffers, options).text();
  const Tensor digests = empty({ranks.size(), 2}, {.dtype = Dtype::i64, .device = device});
  (void)ranks.all_gather_into_tensor(
      digests, from_values<std::int64_t>({static_cast<std::int64_t>(hash_of(text)),
                                          static_cast<std::int64_t>(text.size())},
                                         {2}, device));
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
  (void)ranks.all_gather_into_tensor(texts, from_values(own, {longest}, device));
  const std::vector<std::uint8_t> all = texts.to_vector<std::uint8_t>();
  const auto text_of = [&](std::size_t r) {
    const auto* const begin = all.data() + r * static_cast<std::size_t>(longest);
    return ModelDescription(std::string(begin, begin + values[2 * r + 1]));
  };
  const ModelDescription root = text_of(0);
  for (std::size_t r = 1; r < count; ++r) check_same_model(root, text_of(r), r);
}

}  // namespace lockstep::detail
