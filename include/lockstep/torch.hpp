// SPDX-License-Identifier: Apache-2.0
#pragma once

// lockstep over LibTorch: data parallelism for programs that use LibTorch's tensors and modules.
// lockstep.hpp includes none of it; the program links lockstep::torch.
//
//   auto net = std::make_shared<Net>();  // a torch::nn::Module
//   lockstep::libtorch::DataParallel model{net, {"cpu:0", "cpu:1"}};
//   torch::nll_loss(model(images), labels).backward();
//
// and libtorch::DistributedDataParallel{net, group} on the ranks of a group.

#include <lockstep/parallel/criterion.hpp>
#include <lockstep/parallel/parallel_apply.hpp>
#include <lockstep/parallel/replicate.hpp>
#include <lockstep/parallel/scatter_gather.hpp>
#include <lockstep/torch/collate.hpp>
#include <lockstep/torch/comm.hpp>
#include <lockstep/torch/data_parallel.hpp>
#include <lockstep/torch/distributed.hpp>
#include <lockstep/torch/module_traits.hpp>
#include <lockstep/torch/tensor_traits.hpp>
#include <lockstep/torch/thread_state.hpp>
