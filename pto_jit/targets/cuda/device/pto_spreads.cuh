// SPDX-License-Identifier: MIT
// How the elements of a tile are spread over the threads of a block, and how values are combined over those that share
// a row or a column. `Rule`: as in pto_rules.cuh.
#pragma once

#include "pto_common.cuh"

namespace pto {

// The value that the lane at distance `mask` has.
template <class T>
PTO_FUNCTION T exchanged(T x, int mask) {
  constexpr int words = (int(sizeof(T)) + 3) / 4;
  int32_t raw[words] = {};
  memcpy(raw, &x, sizeof(T));
  PTO_UNROLL
  for (int k = 0; k < words; ++k) raw[k] = __shfl_xor_sync(0xffffffffu, raw[k], mask);
  memcpy(&x, raw, sizeof(T));
  return x;
}

// Combined over the lanes whose numbers differ in the bits from LOW up to (not including) HIGH.
template <class Rule, int LOW, int HIGH, class T>
PTO_FUNCTION T combined_over_lanes(T x) {
  PTO_UNROLL
  for (int mask = LOW; mask < HIGH; mask *= 2) x = Rule::combine(x, exchanged(x, mask));
  return x;
}

// Memory through which the threads of a block exchange what they have, the same for all that take so many bytes: they
// meet before what they write, and before they read it.
template <int BYTES>
PTO_FUNCTION unsigned char* room() {
  __shared__ __align__(16) unsigned char bytes[BYTES];
  return bytes;
}
// An array of T there; of few sizes, so that operations of all types together fit what a kernel may declare.
template <int ROWS, int COLUMNS, class T>
PTO_FUNCTION T (*exchanged_rows())[COLUMNS] {
  constexpr int size = sizeof(T) <= 4 ? 4 : sizeof(T) <= 8 ? 8 : sizeof(T) <= 16 ? 16 : int(sizeof(T));
  return reinterpret_cast<T(*)[COLUMNS]>(room<ROWS * COLUMNS * size>());
}

// Arrays combined over COUNT groups of threads that have the same columns: group `share` of them, place `at` of WIDTH.
template <class Rule, int COUNT, int WIDTH, int N, class T>
PTO_FUNCTION void combined_over_shares(T (&x)[N], int share, int at) {
  constexpr int PIECE = N % 4 == 0 && sizeof(T) <= 4 ? 4 : N % 2 == 0 && sizeof(T) <= 8 ? 2 : 1;
  T(*const parts)[PIECE][WIDTH] = reinterpret_cast<T(*)[PIECE][WIDTH]>(exchanged_rows<COUNT * PIECE, WIDTH, T>());
  PTO_UNROLL
  for (int j = 0; j < N; j += PIECE) {
    __syncthreads();
    PTO_UNROLL
    for (int k = 0; k < PIECE; ++k) parts[share][k][at] = x[j + k];
    __syncthreads();
    PTO_UNROLL
    for (int k = 0; k < PIECE; ++k) {
      x[j + k] = parts[0][k][at];
      for (int s = 1; s < COUNT; ++s) x[j + k] = Rule::combine(x[j + k], parts[s][k][at]);
    }
  }
}

// A number combined with those of the first `count` threads of a block, one after the other, by one of its warps.
template <class Rule, int THREADS, class T>
PTO_FUNCTION T combined_in_order(T before, T mine, int64_t count) {
  T* const parts = *exchanged_rows<1, THREADS, T>();
  __syncthreads();
  parts[threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.x < 32) {
    const int last = count < THREADS ? int(count) : THREADS;
    PTO_UNROLL_BY_4
    for (int k = 0; k < last; ++k) before = Rule::combine(before, parts[k]);
    __syncwarp();
    parts[threadIdx.x] = before;
  }
  __syncthreads();
  return parts[0];
}

// Rows of threads: TEAMS teams of THREADS threads; each team has every TEAMS-th row, each thread runs of PIECE columns.
// TEAMED: every team works on an iteration of its own, whose tiles have one row.
template <int TEAMS, int THREADS, int PIECE, bool TEAMED>
struct Rows {
  static_assert(THREADS % 32 == 0 && (!TEAMED || THREADS == 32 || TEAMS == 1), "a team is a warp, or the block");
  static constexpr int RUN = PIECE;
  static constexpr bool HAS_16_COLUMNS = false;
  // How many slots a thread has for n rows, for n columns.
  static PTO_CONSTANT int rows(int n) { return (some(n) + TEAMS - 1) / TEAMS; }
  static PTO_CONSTANT int columns(int n) { return (some(n) + THREADS * PIECE - 1) / (THREADS * PIECE) * PIECE; }
  static PTO_FUNCTION int row(int i) { return i * TEAMS + int(threadIdx.y); }
  static PTO_FUNCTION int column(int j) { return (j / PIECE * THREADS + int(threadIdx.x)) * PIECE + j % PIECE; }
  // Whether so many valid rows or columns are all that so many slots of all threads hold.
  static PTO_FUNCTION bool fills_rows(int valid, int slots) { return valid == slots * TEAMS; }
  static PTO_FUNCTION bool fills_columns(int valid, int slots) { return valid == slots * THREADS; }
  static PTO_FUNCTION bool writes_unit_rows() { return TEAMED || threadIdx.y == 0; }
  static PTO_FUNCTION bool writes_unit_columns() { return threadIdx.x == 0; }
  static PTO_FUNCTION bool writes_scalars() { return threadIdx.x == 0 && (TEAMED || threadIdx.y == 0); }
  // Who shares a row: lanes of a warp, and warps; and which of the rows that are worked on at a time it is.
  static constexpr int LANES = 32, WARPS = THREADS / 32, LINES = TEAMED ? 1 : TEAMS;
  static PTO_FUNCTION int lane_of_line() { return int(threadIdx.x) % 32; }
  static PTO_FUNCTION int warp_of_line() { return int(threadIdx.x) / 32; }
  static PTO_FUNCTION int line() { return TEAMED ? 0 : int(threadIdx.y); }
  // Wait for the threads that work on this iteration.
  static PTO_FUNCTION void synchronise() {
    if (TEAMED && THREADS == 32) __syncwarp();
    else __syncthreads();
  }
  template <class Rule, class T>
  static PTO_FUNCTION T reduce_columns(T x) {
    x = combined_over_lanes<Rule, 1, 32>(x);
    if constexpr (THREADS > 32) {
      T(*const parts)[THREADS / 32] = exchanged_rows<TEAMS, THREADS / 32, T>();
      __syncthreads();
      if (threadIdx.x % 32 == 0) parts[threadIdx.y][threadIdx.x / 32] = x;
      __syncthreads();
      x = parts[threadIdx.y][0];
      for (int k = 1; k < THREADS / 32; ++k) x = Rule::combine(x, parts[threadIdx.y][k]);
    }
    return x;
  }
  template <class Rule, class T>
  static PTO_FUNCTION T reduce_rows(T x) {
    if constexpr (!TEAMED && TEAMS > 1) {
      T(*const parts)[THREADS] = exchanged_rows<TEAMS, THREADS, T>();
      __syncthreads();
      parts[threadIdx.y][threadIdx.x] = x;
      __syncthreads();
      x = parts[0][threadIdx.x];
      for (int k = 1; k < TEAMS; ++k) x = Rule::combine(x, parts[k][threadIdx.x]);
    }
    return x;
  }
  // Work on one row that threads with the same columns share: among how many, the number of this one, and their sums.
  static constexpr int SHARES = TEAMED ? 1 : TEAMS;
  static PTO_FUNCTION int share() { return TEAMED ? 0 : int(threadIdx.y); }
  template <class Rule, int N, class T>
  static PTO_FUNCTION void reduce_shares(T (&x)[N]) {
    if constexpr (SHARES > 1) combined_over_shares<Rule, SHARES, THREADS>(x, share(), int(threadIdx.x));
  }
};

// The layout of mma.sync's accumulators: DOWN x ACROSS warps, each with every DOWN-th block of 16 rows and every
// ACROSS-th block of 8 columns, or every ACROSS-th two of them (BLOCKS 2); in such a block a thread has two columns of
// rows lane / 4 and lane / 4 + 8.
template <int DOWN, int ACROSS, int BLOCKS = 1>
struct Fragments {
  static constexpr int RUN = 2;
  static constexpr bool HAS_16_COLUMNS = BLOCKS == 2;  // side by side, where it has four slots of a row
  static constexpr int UNIT = 8 * BLOCKS * ACROSS;
  // Extents that fragments cover, for tiles in shared memory: rows and columns of a result, and what is contracted.
  static PTO_CONSTANT int padded_rows(int n) { return (n + 16 * DOWN - 1) / (16 * DOWN) * 16 * DOWN; }
  static PTO_CONSTANT int padded_columns(int n) { return ((n + UNIT - 1) / UNIT * UNIT + 15) / 16 * 16; }
  static PTO_CONSTANT int padded_depth(int n) { return (n + 15) / 16 * 16; }
  static constexpr int THREADS = 32 * DOWN * ACROSS;
  static constexpr int DOWN_WARPS = DOWN, ACROSS_WARPS = ACROSS;
  static PTO_CONSTANT int rows(int n) { return (some(n) + 16 * DOWN - 1) / (16 * DOWN) * 2; }
  static PTO_CONSTANT int columns(int n) { return (some(n) + UNIT - 1) / UNIT * 2 * BLOCKS; }
  static PTO_FUNCTION int lane() { return int(threadIdx.x) % 32; }
  static PTO_FUNCTION int warp_row() { return int(threadIdx.x) / 32 % DOWN; }
  static PTO_FUNCTION int warp_column() { return int(threadIdx.x) / 32 / DOWN; }
  // Whether this warp copies operands before a product, or after it: of two warps of a scheduler (warps that are four
  // apart) one multiplies while the other copies. What the next product reads is copied before; warpgroups multiply
  // meanwhile.
  template <int COPIES, bool GROUPED>
  static PTO_FUNCTION bool copies_early() {
    return COPIES < 3 || (!GROUPED && (THREADS <= 128 || threadIdx.x / 128 % 2 == 0));
  }
  static PTO_FUNCTION int row(int i) { return (i / 2 * DOWN + warp_row()) * 16 + i % 2 * 8 + lane() / 4; }
  static PTO_FUNCTION int first_column(int block) {
    return ((block / BLOCKS * ACROSS + warp_column()) * BLOCKS + block % BLOCKS) * 8;
  }
  static PTO_FUNCTION int column(int j) { return first_column(j / 2) + lane() % 4 * 2 + j % 2; }
  static PTO_FUNCTION bool fills_rows(int valid, int slots) { return valid == slots * 8 * DOWN; }
  static PTO_FUNCTION bool fills_columns(int valid, int slots) { return valid == slots * 4 * ACROSS; }
  static PTO_FUNCTION bool writes_unit_rows() { return warp_row() == 0 && lane() / 4 == 0; }
  static PTO_FUNCTION bool writes_unit_columns() { return warp_column() == 0 && lane() % 4 == 0; }
  static PTO_FUNCTION bool writes_scalars() { return threadIdx.x == 0; }
  static constexpr int LANES = 4, WARPS = ACROSS, LINES = 8 * DOWN;
  static PTO_FUNCTION int lane_of_line() { return lane() % 4; }
  static PTO_FUNCTION int warp_of_line() { return warp_column(); }
  static PTO_FUNCTION int line() { return warp_row() * 8 + lane() / 4; }
  static PTO_FUNCTION void synchronise() { __syncthreads(); }
  template <class Rule, class T>
  static PTO_FUNCTION T reduce_columns(T x) {
    x = combined_over_lanes<Rule, 1, 4>(x);
    if constexpr (ACROSS > 1) {
      T(*const parts)[DOWN * 8] = exchanged_rows<ACROSS, DOWN * 8, T>();
      const int at = warp_row() * 8 + lane() / 4;
      __syncthreads();
      if (lane() % 4 == 0) parts[warp_column()][at] = x;
      __syncthreads();
      x = parts[0][at];
      for (int k = 1; k < ACROSS; ++k) x = Rule::combine(x, parts[k][at]);
    }
    return x;
  }
  template <class Rule, class T>
  static PTO_FUNCTION T reduce_rows(T x) {
    x = combined_over_lanes<Rule, 4, 32>(x);
    if constexpr (DOWN > 1) {
      T(*const parts)[ACROSS * 4] = exchanged_rows<DOWN, ACROSS * 4, T>();
      const int at = warp_column() * 4 + lane() % 4;
      __syncthreads();
      if (lane() / 4 == 0) parts[warp_row()][at] = x;
      __syncthreads();
      x = parts[0][at];
      for (int k = 1; k < DOWN; ++k) x = Rule::combine(x, parts[k][at]);
    }
    return x;
  }
  static constexpr int SHARES = 8 * DOWN;
  static PTO_FUNCTION int share() { return warp_row() * 8 + lane() / 4; }
  template <class Rule, int N, class T>
  static PTO_FUNCTION void reduce_shares(T (&x)[N]) {
    PTO_UNROLL
    for (int j = 0; j < N; ++j) x[j] = combined_over_lanes<Rule, 4, 32>(x[j]);
    if constexpr (DOWN > 1) {
      combined_over_shares<Rule, DOWN, 4 * ACROSS>(x, warp_row(), warp_column() * 4 + lane() % 4);
    }
  }
};

}  // namespace pto
