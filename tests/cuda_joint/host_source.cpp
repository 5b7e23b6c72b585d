// SPDX-License-Identifier: Apache-2.0

#include <lockstep/src.hpp>
