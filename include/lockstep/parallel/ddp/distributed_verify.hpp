// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/parallel/distributed_options.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Whether all ranks have made the same model.
namespace lockstep::detail {

// A model as text, by which ranks compare theirs: the options, then each parameter and buffer in
// order. A name ends with a tab, everything with a newline.
struct ModelDescription {
  std::vector<std::string> options;
  std::vector<std::string> parameters;
  std::vector<std::string> buffers;

  ModelDescription(const std::vector<NamedParameter>& named_parameters,
                   const std::vector<NamedBuffer>& named_buffers,
                   const DistributedDataParallelOptions& settings);

  explicit ModelDescription(std::string_view text);

  std::string text() const;

 private:
  // Replaces tabs and newlines in the name, which the keys of a map may contain.
  static std::string describe(std::string name, const Tensor& tensor);
};

// FNV-1a, 64 bits: the same on every machine.
std::uint64_t hash_of(std::string_view text);

// Throws the ModuleError that says where `other`, of rank `rank`, first differs from rank 0's.
void check_same_model(const ModelDescription& root, const ModelDescription& other,
                      std::size_t rank);

// Throws, on every rank alike, unless all have the same parameters and buffers (names, order,
// shapes, strides, dtypes) and options. What the ranks send each other is a hash; only where these
// differ, everything.
void verify_same_model(const distributed::ProcessGroup& group, Device device,
                       const ModelDescription& description);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/ddp/impl/distributed_verify.ipp>
#endif
