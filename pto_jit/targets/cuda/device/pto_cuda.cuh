// SPDX-License-Identifier: MIT
// What the CUDA kernels written by pto_jit are made of: tensors, tiles spread over a block, loads, stores, reductions.
//
// A tile lives in registers: thread t holds T tile[NR][NC], element (i, j) of which is row Spread::row(i), column
// Spread::column(j) of the tile. An axis of extent 1 has one slot, and every thread holds the same value in it.
// A Spread also says how values are combined over the threads that share a row (reduce_columns) or a column
// (reduce_rows). Loads fill what lies outside the tensor with a pad value; reductions and stores look at valid extents.
#pragma once

#if !defined(PTO_EMULATED)
#include <stdint.h>
#define PTO_FUNCTION __device__ __forceinline__
#define PTO_SUBROUTINE __device__ __noinline__
#define PTO_SHARED_MEMORY(name) extern __shared__ __align__(16) unsigned char name[]
#endif
#define PTO_CONSTANT __host__ __device__ constexpr
#define PTO_UNROLL _Pragma("unroll")
#define PTO_UNROLL_BY_4 _Pragma("unroll 4")
#define PTO_UNROLL_BY(n) PTO_PRAGMA(unroll n)
#define PTO_PRAGMA(text) _Pragma(#text)
#define PTO_KEEP_LOOP _Pragma("unroll 1")
// What a loop of the grid goes on with. COVERED: the grid has a block or thread for every iteration; then there is no
// loop, and nothing of it in registers.
#if defined(COVERED)
#define PTO_NEXT(at, stop, stride) at = stop
#else
#define PTO_NEXT(at, stop, stride) at += stride
#endif
#include "pto_elements.h"

namespace pto {

// The first failure of a launch: a number that the host knows, and the two numbers that its message shows. The host may
// look while the kernel runs: `site` is written last.
struct Failure {
  int site;
  int claimed;  // by the thread that writes the rest
  int64_t first, second;
};

PTO_FUNCTION void fail(Failure* failure, int site, int64_t first, int64_t second) {
  if (atomicCAS(&failure->claimed, 0, 1) != 0) return;
  failure->first = first;
  failure->second = second;
  __threadfence_system();
  *reinterpret_cast<volatile int*>(&failure->site) = site;
}

// A tensor: strides count elements.
template <class T, int N>
struct Tensor {
  T* data;
  int64_t shape[N];
  int64_t stride[N];
};
template <class T>
struct Tensor<T, 0> {
  T* data;
};

// How much of `extent` elements from `offset` on lies in a tensor of `size`; nothing when the offset is negative.
PTO_FUNCTION int64_t view_extent(int64_t extent, int64_t size, int64_t offset) {
  const int64_t left = size - offset, inside = left < extent ? left : extent;
  return offset < 0 || inside < 0 ? 0 : inside;
}
PTO_FUNCTION int clipped(int64_t extent, int64_t size, int64_t offset) {
  return int(view_extent(extent, size, offset));
}

PTO_FUNCTION int smaller(int x, int y) { return x < y ? x : y; }

// exp in f32: CUDA's own, by the hardware's 2**x, wrong by one unit in the last place at most as NVIDIA documents it.
PTO_FUNCTION float exponential(float x) { return ::expf(x); }

// What fastmath makes of exp and exp2 in f32: the hardware's 2**x, within 2 + |x| units in the last place; numbers too
// small to be normal become 0.
PTO_FUNCTION float fast_exp2(float x) {
#if defined(__CUDA_ARCH__)
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  return exp2f(x);
#endif
}
PTO_FUNCTION float fast_exp(float x) { return fast_exp2(x * 1.442695f); }

// 1 / x by the hardware, for 2**-126 <= x <= 2**126: wrong by one unit in the last place at most, right for powers of
// two. The emulation takes a neighbour of what is right as often as not.
PTO_FUNCTION float fast_reciprocal(float x) {
#if defined(__CUDA_ARCH__)
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  const float near = 1.0f / x;
  const uint32_t fraction = uint32_t(bits(x)) & 0x7fffff;
  return fraction == 0 || near != near ? near : from_bits(bits(near) + int32_t(fraction % 3) - 1);
#endif
}
// x / y for 1/2 <= y <= 2**64, without the checks of a division for all numbers: what the quotient takes too much of x
// is divided too. That is NaN where x is infinite, and then any number serves; it is +0 where x is -0 or +0.
PTO_FUNCTION float ratio(float x, float y) {
  const float near = fast_reciprocal(y), quotient = x * near;
  return fma(-::fmaxf(fma(y, quotient, -x), -0x1p112f), near, quotient);
}
PTO_FUNCTION float fast_ratio(float x, float y) { return x * fast_reciprocal(y); }

// What one access of so many bytes moves: a type of the hardware, as the compiler takes structures of bytes apart.
template <int BYTES>
struct Piece;
template <>
struct Piece<1> {
  using type = uint8_t;
};
template <>
struct Piece<2> {
  using type = uint16_t;
};
template <>
struct Piece<4> {
  using type = uint32_t;
};
template <>
struct Piece<8> {
  using type = uint2;
};
template <>
struct Piece<16> {
  using type = uint4;
};

// The largest power of two up to 16 that divides n.
PTO_CONSTANT int access_size(int n) { return n % 16 == 0 ? 16 : n % 8 == 0 ? 8 : n % 4 == 0 ? 4 : n % 2 == 0 ? 2 : 1; }

// From one row to the next of a tile in shared memory.
template <class T>
PTO_CONSTANT int pitch(int columns) { return columns + 16 / int(sizeof(T)); }
PTO_CONSTANT int padded(int n) { return (n + 15) / 16 * 16; }

// A tile without elements has room for one: there are no arrays of none.
PTO_CONSTANT int some(int n) { return n > 0 ? n : 1; }

template <int RUN, class T>
PTO_FUNCTION void load_run(T (&run)[RUN], const T* at) {
  constexpr int size = access_size(RUN * int(sizeof(T)));
  PTO_UNROLL
  for (int k = 0; k < RUN * int(sizeof(T)) / size; ++k) {
    const auto piece = reinterpret_cast<const typename Piece<size>::type*>(at)[k];
    memcpy(reinterpret_cast<unsigned char*>(run) + k * size, &piece, size);
  }
}

// A run of a row from a column on, which is a multiple of RUN. The row is what the pieces are counted from: where the
// address of the run itself is converted, compilers store the elements of a piece one by one.
template <int RUN, class T>
PTO_FUNCTION void store_run(T* row, int column, const T (&run)[RUN]) {
  constexpr int size = access_size(RUN * int(sizeof(T)));
  auto* const pieces = reinterpret_cast<typename Piece<size>::type*>(row);
  PTO_UNROLL
  for (int k = 0; k < RUN * int(sizeof(T)) / size; ++k) {
    typename Piece<size>::type piece;
    memcpy(&piece, reinterpret_cast<const unsigned char*>(run) + k * size, size);
    pieces[column * int(sizeof(T)) / size + k] = piece;
  }
}

// Whether runs of RUN columns can be accessed as a whole. The same for all threads of a block.
template <int RUN, class T>
PTO_FUNCTION bool in_runs(const T* at, int64_t row_stride, int64_t column_stride, int rows, int columns) {
  constexpr int size = access_size(RUN * int(sizeof(T)));
  return RUN > 1 && column_stride == 1 && columns % RUN == 0 && reinterpret_cast<uintptr_t>(at) % size == 0 &&
         (rows <= 1 || row_stride * int64_t(sizeof(T)) % size == 0);
}

// Which element of a tile a slot holds; an axis with one slot for all threads is an axis of extent 1.
template <class Spread, bool UNIT_ROW>
PTO_FUNCTION int row_of(int i) { return UNIT_ROW ? 0 : Spread::row(i); }
template <class Spread, bool UNIT_COLUMN>
PTO_FUNCTION int column_of(int j) { return UNIT_COLUMN ? 0 : Spread::column(j); }

template <class Spread, bool UNIT_ROW, bool UNIT_COLUMN, int NR, int NC, class R, class T>
PTO_FUNCTION void load_tile(R (&tile)[NR][NC], const T* at, int64_t row_stride, int64_t column_stride, int rows,
                            int columns, R pad) {
  constexpr int RUN = UNIT_COLUMN ? 1 : Spread::RUN;
  if (in_runs<RUN>(at, row_stride, column_stride, rows, columns)) {
    PTO_UNROLL
    for (int i = 0; i < NR; ++i) {
      const int row = row_of<Spread, UNIT_ROW>(i);
      PTO_UNROLL
      for (int j = 0; j < NC; j += RUN) {
        const int column = column_of<Spread, UNIT_COLUMN>(j);
        if (row < rows && column < columns) {
          T run[RUN];
          load_run<RUN>(run, at + row * row_stride + column);
          PTO_UNROLL
          for (int k = 0; k < RUN; ++k) tile[i][j + k] = from_memory(run[k]);
        } else {
          PTO_UNROLL
          for (int k = 0; k < RUN; ++k) tile[i][j + k] = pad;
        }
      }
    }
  } else {
    PTO_UNROLL
    for (int i = 0; i < NR; ++i) {
      const int row = row_of<Spread, UNIT_ROW>(i);
      PTO_UNROLL
      for (int j = 0; j < NC; ++j) {
        const int column = column_of<Spread, UNIT_COLUMN>(j);
        const bool inside = row < rows && column < columns;
        tile[i][j] = inside ? from_memory(at[row * row_stride + column * column_stride]) : pad;
      }
    }
  }
}

template <class Spread, bool UNIT_ROW, bool UNIT_COLUMN, int NR, int NC, class R, class T>
PTO_FUNCTION void store_tile(T* at, int64_t row_stride, int64_t column_stride, int rows, int columns,
                             const R (&tile)[NR][NC]) {
  constexpr int RUN = UNIT_COLUMN ? 1 : Spread::RUN;
  if ((UNIT_ROW && !Spread::writes_unit_rows()) || (UNIT_COLUMN && !Spread::writes_unit_columns())) return;
  if (in_runs<RUN>(at, row_stride, column_stride, rows, columns)) {
    PTO_UNROLL
    for (int i = 0; i < NR; ++i) {
      const int row = row_of<Spread, UNIT_ROW>(i);
      PTO_UNROLL
      for (int j = 0; j < NC; j += RUN) {
        const int column = column_of<Spread, UNIT_COLUMN>(j);
        if (row < rows && column < columns) {
          T run[RUN];
          PTO_UNROLL
          for (int k = 0; k < RUN; ++k) run[k] = to_memory<T>(tile[i][j + k]);
          store_run<RUN>(at + row * row_stride, column, run);
        }
      }
    }
  } else {
    PTO_UNROLL
    for (int i = 0; i < NR; ++i) {
      const int row = row_of<Spread, UNIT_ROW>(i);
      PTO_UNROLL
      for (int j = 0; j < NC; ++j) {
        const int column = column_of<Spread, UNIT_COLUMN>(j);
        if (row < rows && column < columns) at[row * row_stride + column * column_stride] = to_memory<T>(tile[i][j]);
      }
    }
  }
}

// The slots of a row, which a function of the slot gives, divided by one number: times its reciprocal, and corrected by
// what is left. That is the quotient as it has to be rounded where no number on the way is too small or too large
// (Markstein, IBM Journal of Research and Development 34, 1990, with the reciprocal rounded; where the first product is
// wrong by more than a unit, all quotients that are close enough to the middle of two numbers were tried).
template <int N, class Element>
PTO_FUNCTION void divide_row(float (&row)[N], float by, const Element& element) {
  const float inverse = 1.0f / by;
  bool sure = by >= 0x1p-20f && by <= 0x1p100f;
  float x[N];
  PTO_UNROLL
  for (int j = 0; j < N; ++j) {
    x[j] = element(j);
    const float near = x[j] * inverse;
    row[j] = fma(-fma(by, near, -x[j]), inverse, near);
    sure = bool(sure & ((absolute(row[j]) >= 0x1p-80f) | (x[j] == 0.0f)));  // not for NaN, which infinities lead to
  }
  if (!sure) {
    PTO_UNROLL
    for (int j = 0; j < N; ++j) row[j] = x[j] / by;
  }
}

// Where an element of a tile of so many columns is in shared memory while its axes are exchanged. The lanes of a warp are
// runs of RUN elements apart, along rows when they write and down columns when they read. Lines have an odd number of
// elements, so every RUN-th bank would be used by both; the elements of a run change places from one 128 bytes to the
// next, along both axes, so that all banks are.
PTO_CONSTANT int odd_line(int columns, int run) { return (columns + run - 1) / run * run | 1; }
template <class R>
PTO_CONSTANT int exchanged_run(int columns, int run) {
  return run == 1 || (sizeof(R) >= 4 && odd_line(columns, run) <= pitch<R>(columns)) ? run
                                                                                      : exchanged_run<R>(columns, run / 2);
}
template <class R, int RUN, int COLUMNS>
PTO_FUNCTION int exchanged_place(int row, int column) {
  constexpr unsigned BLOCK = 128 / unsigned(sizeof(R)), SWAPPED = unsigned(exchanged_run<R>(COLUMNS, RUN));
  const unsigned swap = (unsigned(column) / BLOCK ^ unsigned(row) / BLOCK) % SWAPPED;
  return row * odd_line(COLUMNS, int(SWAPPED)) + int(unsigned(column) ^ swap);
}

// A tile with its axes exchanged, by way of shared memory; UNIT_ROW and UNIT_COLUMN are of the tile that it is made
// from. The threads must have met before.
template <class Spread, bool UNIT_ROW, bool UNIT_COLUMN, int ROWS, int COLUMNS, int NR, int NC, int MR, int MC, class R>
PTO_FUNCTION void transpose_tile(R (&out)[MR][MC], R* shared, const R (&tile)[NR][NC]) {
  constexpr int RUN = Spread::RUN;
  PTO_UNROLL
  for (int i = 0; i < NR; ++i) {
    PTO_UNROLL
    for (int j = 0; j < NC; ++j) {
      const int row = row_of<Spread, UNIT_ROW>(i), column = column_of<Spread, UNIT_COLUMN>(j);
      if (row < ROWS && column < COLUMNS) shared[exchanged_place<R, RUN, COLUMNS>(row, column)] = tile[i][j];
    }
  }
  Spread::synchronise();
  PTO_UNROLL
  for (int i = 0; i < MR; ++i) {
    PTO_UNROLL
    for (int j = 0; j < MC; ++j) {
      const int row = row_of<Spread, UNIT_COLUMN>(i), column = column_of<Spread, UNIT_ROW>(j);
      out[i][j] = row < COLUMNS && column < ROWS ? shared[exchanged_place<R, RUN, COLUMNS>(column, row)] : R(0);
    }
  }
}

// Reductions: how two values become one, and what changes nothing.
template <class T>
struct Sum {
  static PTO_FUNCTION T identity() { return T(0); }
  static PTO_FUNCTION T combine(T x, T y) { return x + y; }
};
template <class T>
struct Product {
  static PTO_FUNCTION T identity() { return T(1); }
  static PTO_FUNCTION T combine(T x, T y) { return x * y; }
};
template <class T>
struct Extreme {  // of integers: the lowest and highest number
  static constexpr bool is_signed = T(-1) < T(0);
  static constexpr T highest = T(~uint64_t(0) >> (64 - (8 * sizeof(T) - (is_signed ? 1 : 0))));
  static constexpr T lowest = is_signed ? T(-highest - 1) : T(0);
};
template <class T>
struct Maximum {
  static PTO_FUNCTION T identity() { return Extreme<T>::lowest; }
  static PTO_FUNCTION T combine(T x, T y) { return x > y ? x : y; }
};
template <class T>
struct Minimum {
  static PTO_FUNCTION T identity() { return Extreme<T>::highest; }
  static PTO_FUNCTION T combine(T x, T y) { return x < y ? x : y; }
};
template <>
struct Maximum<float> {
  static PTO_FUNCTION float identity() { return -infinity_of<float>(); }
  static PTO_FUNCTION float combine(float x, float y) { return maximum(x, y); }
};
template <>
struct Minimum<float> {
  static PTO_FUNCTION float identity() { return infinity_of<float>(); }
  static PTO_FUNCTION float combine(float x, float y) { return minimum(x, y); }
};
template <>
struct Maximum<double> {
  static PTO_FUNCTION double identity() { return -infinity_of<double>(); }
  static PTO_FUNCTION double combine(double x, double y) { return maximum(x, y); }
};
template <>
struct Minimum<double> {
  static PTO_FUNCTION double identity() { return infinity_of<double>(); }
  static PTO_FUNCTION double combine(double x, double y) { return minimum(x, y); }
};
// A rule whose results have the precision of a 16-bit type.
template <class Rule, class T>
struct Rounded {
  static PTO_FUNCTION float identity() { return Rule::identity(); }
  static PTO_FUNCTION float combine(float x, float y) { return from_memory(to_memory<T>(Rule::combine(x, y))); }
};
struct Any {
  static PTO_FUNCTION bool identity() { return false; }
  static PTO_FUNCTION bool combine(bool x, bool y) { return x || y; }
};
struct All {
  static PTO_FUNCTION bool identity() { return true; }
  static PTO_FUNCTION bool combine(bool x, bool y) { return x && y; }
};

// A value and its index, for argmax and argmin: the first extreme, where NaN is more extreme than any number.
template <class T>
struct Indexed {
  T value;
  int index;
};
constexpr int NOWHERE = 0x7fffffff;  // the index of the extreme of nothing, or of nothing better than that
template <class T>
PTO_FUNCTION int place_of(Indexed<T> x) { return x.index == NOWHERE ? 0 : x.index; }
template <class T, bool MAXIMUM>
struct FirstExtreme {
  static PTO_FUNCTION Indexed<T> identity() {
    if constexpr (MAXIMUM) return {Maximum<T>::identity(), NOWHERE};
    else return {Minimum<T>::identity(), NOWHERE};
  }
  // Where y is behind x, and all that there is begins at 0, the place of nothing.
  static PTO_FUNCTION Indexed<T> next(Indexed<T> x, Indexed<T> y) {
    const bool better = (x.value == x.value) & !(MAXIMUM ? y.value <= x.value : y.value >= x.value);
    return {better ? y.value : x.value, better ? y.index : x.index};
  }
  static PTO_FUNCTION Indexed<T> combine(Indexed<T> x, Indexed<T> y) {
    if (x.index == NOWHERE) return y;
    if (y.index == NOWHERE) return x;
    const bool x_nan = x.value != x.value, y_nan = y.value != y.value;
    const bool better = x_nan || y_nan ? y_nan && !x_nan : MAXIMUM ? y.value > x.value : y.value < x.value;
    const bool equal = x_nan || y_nan ? x_nan && y_nan : x.value == y.value;
    return better || (equal && y.index < x.index) ? y : x;
  }
};

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
// ACROSS-th block of 8 columns; in such a block a thread has two columns of rows lane / 4 and lane / 4 + 8.
template <int DOWN, int ACROSS>
struct Fragments {
  static constexpr int RUN = 2;
  // Extents that fragments cover, for tiles in shared memory: rows and columns of a result, and what is contracted.
  static PTO_CONSTANT int padded_rows(int n) { return (n + 16 * DOWN - 1) / (16 * DOWN) * 16 * DOWN; }
  static PTO_CONSTANT int padded_columns(int n) { return ((n + 8 * ACROSS - 1) / (8 * ACROSS) * 8 * ACROSS + 15) / 16 * 16; }
  static PTO_CONSTANT int padded_depth(int n) { return (n + 15) / 16 * 16; }
  static constexpr int THREADS = 32 * DOWN * ACROSS;
  static constexpr int DOWN_WARPS = DOWN, ACROSS_WARPS = ACROSS;
  static PTO_CONSTANT int rows(int n) { return (some(n) + 16 * DOWN - 1) / (16 * DOWN) * 2; }
  static PTO_CONSTANT int columns(int n) { return (some(n) + 8 * ACROSS - 1) / (8 * ACROSS) * 2; }
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
  static PTO_FUNCTION int column(int j) { return (j / 2 * ACROSS + warp_column()) * 8 + lane() % 4 * 2 + j % 2; }
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
