// SPDX-License-Identifier: Apache-2.0
#pragma once

// Layers, losses and initialisation; and the parameters, hooks, concepts and walks for modules of
// your own.
#include <lockstep/module/clone.hpp>
#include <lockstep/module/concepts.hpp>
#include <lockstep/module/hooks.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/visit.hpp>
#include <lockstep/nn/activation.hpp>
#include <lockstep/nn/batch_norm.hpp>
#include <lockstep/nn/conv.hpp>
#include <lockstep/nn/dropout.hpp>
#include <lockstep/nn/embedding.hpp>
#include <lockstep/nn/flatten.hpp>
#include <lockstep/nn/group_norm.hpp>
#include <lockstep/nn/init.hpp>
#include <lockstep/nn/layer_norm.hpp>
#include <lockstep/nn/lazy_linear.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/nn/loss.hpp>
#include <lockstep/nn/multihead_attention.hpp>
#include <lockstep/nn/pooling.hpp>
#include <lockstep/nn/rnn.hpp>
#include <lockstep/nn/sequential.hpp>
#include <lockstep/nn/sync_batch_norm.hpp>
