// SPDX-License-Identifier: MIT
// What the CUDA kernels written by pto_jit are made of: tensors, tiles spread over a block, loads, stores, reductions.
//
// A tile lives in registers: thread t holds T tile[NR][NC], element (i, j) of which is row Spread::row(i), column
// Spread::column(j) of the tile. An axis of extent 1 has one slot, and every thread holds the same value in it.
// A Spread also says how values are combined over the threads that share a row (reduce_columns) or a column
// (reduce_rows). Loads fill what lies outside the tensor with a pad value; reductions and stores look at valid extents.
#pragma once

#include "pto_common.cuh"
#include "pto_rules.cuh"
#include "pto_spreads.cuh"
#include "pto_tiles.cuh"
