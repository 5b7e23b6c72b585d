// SPDX-License-Identifier: Apache-2.0
#pragma once

// Datasets, samplers, loaders, prefetch, and readers of files.
#include <lockstep/data/collate.hpp>
#include <lockstep/data/csv.hpp>
#include <lockstep/data/dataloader.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/data/distributed_sampler.hpp>
#include <lockstep/data/fashion_mnist.hpp>
#include <lockstep/data/files/gzip_file.hpp>
#include <lockstep/data/idx.hpp>
#include <lockstep/data/map_dataset.hpp>
#include <lockstep/data/npy.hpp>
#include <lockstep/data/prefetch.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/data/weighted_random_sampler.hpp>
