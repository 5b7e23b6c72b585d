// SPDX-License-Identifier: Apache-2.0
#pragma once

// Optimisers, learning rate schedules, and gradient clipping.
#include <lockstep/optim/adam.hpp>
#include <lockstep/optim/adamw.hpp>
#include <lockstep/optim/clip_grad.hpp>
#include <lockstep/optim/lr_scheduler.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/optim/sparse_adam.hpp>
