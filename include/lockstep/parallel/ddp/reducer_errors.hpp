// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <string>

// What a Reducer says of gradients that came when they should not have, or did not come. Parameters
// are named as in: 1 (fc.weight), 3 (fc2.weight)
namespace lockstep::detail {

[[noreturn]] void fail_second_gradient(int rank, const std::string& parameter);

[[noreturn]] void fail_static_graph_used(int rank, const std::string& parameter);

[[noreturn]] void fail_static_graph_unused(int rank, const std::string& parameters);

[[noreturn]] void fail_other_layout(bool expected_sparse, const std::string& parameter);

[[noreturn]] void fail_hook_and_sparse(const std::string& parameters);

inline constexpr const char* kUnusedRemedy =
    ". If that is meant, set find_unused_parameters; else see to it that all outputs of forward "
    "take part in the loss";

[[noreturn]] void fail_unused(int rank, const std::string& parameters);

[[noreturn]] void fail_replaced(const std::string& name);

// `where`: "parameter 3 (extra) got none on rank 1; …"
[[noreturn]] void fail_unused_elsewhere(int rank, const std::string& where, bool joined);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/ddp/impl/reducer_errors.ipp>
#endif
