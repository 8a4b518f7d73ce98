// SPDX-License-Identifier: MIT
// Tiles in registers: loaded, stored, divided, their axes exchanged. `Spread`: as in pto_spreads.cuh.
#pragma once

#include "pto_common.cuh"

namespace pto {

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

// The lane of a thread, read anew: what is made of it takes no registers in the loops before.
PTO_FUNCTION int lane_again() {
#if defined(__CUDA_ARCH__)
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
#else
  return int(threadIdx.x) % 32;
#endif
}
// Of two neighbouring blocks of 8 columns four lanes have two columns each; they exchange these, so that each has four
// that lie side by side, the 16 columns in the order of the lanes.
PTO_FUNCTION uint2 four_columns(int lane, uint32_t first, uint32_t second) {
  const int even = (lane & ~3) | (lane & 1) << 1 | (lane >> 1 & 1);
  const bool odd = lane & 1, right = lane & 2;
  // Lanes 0 to 3 take from lanes 0, 2, 1 and 3, and then from those beside them.
  const uint32_t one = uint32_t(__shfl_sync(0xffffffffu, int(odd ? second : first), even));
  const uint32_t other = uint32_t(__shfl_sync(0xffffffffu, int(odd ? first : second), even ^ 1));
  return right ? uint2{other, one} : uint2{one, other};
}

template <class Spread, bool UNIT_ROW, bool UNIT_COLUMN, int NR, int NC, class R, class T>
PTO_FUNCTION void store_tile(T* at, int64_t row_stride, int64_t column_stride, int rows, int columns,
                             const R (&tile)[NR][NC]) {
  constexpr int RUN = UNIT_COLUMN ? 1 : Spread::RUN;
  if constexpr (Spread::HAS_16_COLUMNS && sizeof(T) == 2 && NC % 4 == 0 && !UNIT_ROW && !UNIT_COLUMN) {
    if (in_runs<4>(at, row_stride, column_stride, rows, columns)) {  // whole sectors of 32 bytes
      const int lane = lane_again();
      PTO_UNROLL
      for (int i = 0; i < NR; ++i) {
        const int row = Spread::row(i);
        PTO_UNROLL
        for (int j = 0; j < NC; j += 4) {
          T runs[2][2];
          PTO_UNROLL
          for (int k = 0; k < 4; ++k) runs[k / 2][k % 2] = to_memory<T>(tile[i][j + k]);
          uint32_t pairs[2];
          memcpy(pairs, runs, 8);
          const uint2 four = four_columns(lane, pairs[0], pairs[1]);
          const int column = Spread::first_column(j / 2) + lane % 4 * 4;
          if (row < rows && column < columns) reinterpret_cast<uint2*>(at + row * row_stride)[column / 4] = four;
        }
      }
      return;
    }
  }
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

}  // namespace pto
