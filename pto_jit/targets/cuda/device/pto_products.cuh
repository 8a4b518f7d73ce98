// SPDX-License-Identifier: MIT
// Matrix products of tiles: operands in shared memory, brought there by asynchronous copies; 16-bit floats on the tensor
// cores (mma.sync m16n8k16, sums in float), everything else by multiply-adds in the type of the sum.
//
// A tile in shared memory has `pitch(COLUMNS)` elements from one row to the next: 16 bytes more than its columns, so
// that eight rows of 16 bytes lie in different banks. "Turned" operands are stored as the transpose of what is meant.
#pragma once

#include "pto_cuda.cuh"

namespace pto {

// Where a block is in a grid whose rows share left operands and whose columns share right ones (or the other way round).
// Blocks begin in the order of their numbers, x first, and as many run at a time as a device holds. In groups of rows,
// one column after the other, those read fewer different operands than in whole rows, so that the L2 cache keeps them.
// It is called wherever it is asked for: to keep what it gives would take registers from the products.
struct Place {
  unsigned x, y;
};
template <unsigned GROUP>
PTO_SUBROUTINE Place grouped_place() {
  unsigned x = blockIdx.x, y = blockIdx.y;
#if defined(__CUDA_ARCH__)
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x));
  asm volatile("mov.u32 %0, %%ctaid.y;" : "=r"(y));
#endif
  if (gridDim.x >= 1u << 27) return {x, y};  // whose blocks in a group no 32 bits count
  const unsigned first = y / GROUP * GROUP, left = gridDim.y - first, rows = left < GROUP ? left : GROUP;
  const unsigned number = (y - first) * gridDim.x + x;
  return {number / rows, first + number % rows};
}

// -- asynchronous copies ----------------------------------------------------------------------------------------------

#if !defined(PTO_EMULATED)
// 16 bytes to shared memory; zeros, and nothing is read, when they are not `inside` the tensor.
PTO_FUNCTION void copy_async(void* shared, const void* global, bool inside) {
  const uint32_t to = uint32_t(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(inside ? 16 : 0) : "memory");
}
PTO_FUNCTION void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Wait until at most PENDING groups of this thread's copies are under way.
template <int PENDING>
PTO_FUNCTION void wait_for_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

// Four 8 x 8 matrices of 16-bit elements: lane l gives the address of row l % 8 of matrix l / 8.
template <bool TRANSPOSED>
PTO_FUNCTION void load_matrices(uint32_t (&x)[4], const void* row) {
  const uint32_t from = uint32_t(__cvta_generic_to_shared(row));
  if constexpr (TRANSPOSED) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from) : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from) : "memory");
  }
}
PTO_FUNCTION void multiply_fragments(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, half) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
PTO_FUNCTION void multiply_fragments(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bfloat16) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

// In a loop that works through several copies of its tiles: wait for the oldest, and end the copies for a later iteration.
// A single one is copied when it is needed, and waited for.
template <int COPIES>
PTO_FUNCTION void wait_for_stage() {
  if constexpr (COPIES > 1) wait_for_copies<COPIES - 2>();
}
template <class Spread, int COPIES>
PTO_FUNCTION void commit_stage() {
  commit_copies();
  if constexpr (COPIES == 1) {
    wait_for_copies<0>();
    Spread::synchronise();
  }
}

// The largest power of two that divides n, up to `most`.
PTO_CONSTANT int power_in(int n, int most) { return n % 2 == 0 && most > 1 ? 2 * power_in(n / 2, most / 2) : 1; }

PTO_CONSTANT int larger(int x, int y) { return x > y ? x : y; }

// Where an element of a tile in shared memory is; SWIZZLED: as warpgroups read it (pto_warpgroups.cuh).
template <int ROWS, int COLUMNS, bool SWIZZLED, class T>
PTO_CONSTANT int place(int row, int column) {
  return SWIZZLED ? (column / 64 * ROWS + row) * 64 + (column % 64 / 8 ^ row % 8) * 8 + column % 8
                  : row * pitch<T>(COLUMNS) + column;
}

// A tile from global to shared memory, zeros outside its valid part. Complete when the copies of all threads are waited
// for and the threads have met. Where whole pieces of 16 bytes can be copied, a thread keeps its column and goes down the
// rows, so that a copy is an addition, a comparison and the copy.
template <int ROWS, int COLUMNS, int THREADS, bool SWIZZLED = false, class T>
PTO_FUNCTION void stage_tile(T* shared, const T* at, int64_t row_stride, int64_t column_stride, int rows, int columns) {
  constexpr int chunk = 16 / int(sizeof(T)), chunks = COLUMNS / chunk;
  static_assert(COLUMNS % chunk == 0, "rows are copied in pieces of 16 bytes");
  static_assert(!SWIZZLED || (sizeof(T) == 2 && COLUMNS % 64 == 0 && ROWS % 8 == 0), "a swizzled tile is whole panels");
  constexpr int across = power_in(chunks, THREADS), down = THREADS / across;
  constexpr bool alike = !SWIZZLED || down % 8 == 0;  // rows of a thread lie at one distance
  const bool whole = column_stride == 1 && columns % chunk == 0 && reinterpret_cast<uintptr_t>(at) % 16 == 0 &&
                     (rows <= 1 || row_stride * int64_t(sizeof(T)) % 16 == 0);
  if (whole) {
    const uint32_t first = threadIdx.x / across;
    const int64_t stride = rows > 1 ? row_stride : 0;  // copies of nothing are from aligned places, too
    const int64_t step = down * stride;
    PTO_UNROLL
    for (int piece = 0; piece < chunks; piece += across) {
      const int column = (piece + int(threadIdx.x) % across) * chunk;
      const int valid = (column < columns ? rows : 0) - int(first);
      const T* from = at + first * stride + column;
      const int place_of_first = place<ROWS, COLUMNS, SWIZZLED, T>(int(first), column);
      PTO_UNROLL
      for (int row = 0; row < ROWS; row += down) {
        const int to = alike ? place_of_first + place<ROWS, COLUMNS, SWIZZLED, T>(row, 0)
                             : place<ROWS, COLUMNS, SWIZZLED, T>(int(first) + row, column);
        if (ROWS % down == 0 || int(first) + row < ROWS) copy_async(shared + to, from, row < valid);
        from += step;
      }
    }
  } else {
    const bool down_columns = row_stride == 1 && column_stride != 1;  // neighbours are below each other
    for (int k = int(threadIdx.x); k < ROWS * COLUMNS; k += THREADS) {
      const int row = down_columns ? k % ROWS : k / COLUMNS, column = down_columns ? k / ROWS : k % COLUMNS;
      const bool inside = row < rows && column < columns;
      shared[place<ROWS, COLUMNS, SWIZZLED, T>(row, column)] =
          inside ? at[row * row_stride + column * column_stride] : T{};
    }
  }
}

// A tile from registers to shared memory, zeros outside its valid part. The threads must meet before and after.
template <class Spread, int ROWS, int COLUMNS, int NR, int NC, class R, class T>
PTO_FUNCTION void keep_tile(T* shared, const R (&tile)[NR][NC], int rows, int columns) {
  PTO_UNROLL
  for (int i = 0; i < NR; ++i) {
    PTO_UNROLL
    for (int j = 0; j < NC; ++j) {
      const int row = Spread::row(i), column = Spread::column(j);
      const bool inside = row < rows && column < columns;
      if (row < ROWS && column < COLUMNS) {
        shared[row * pitch<T>(COLUMNS) + column] = inside ? to_memory<T>(tile[i][j]) : T{};
      }
    }
  }
  // What is stored beyond the columns and rows that fragments cover.
  constexpr int covered = NC * 4 * Spread::ACROSS_WARPS, beyond = COLUMNS - covered;
  if constexpr (beyond > 0) {
    for (int k = int(threadIdx.x); k < ROWS * beyond; k += Spread::THREADS) {
      shared[k / beyond * pitch<T>(COLUMNS) + covered + k % beyond] = T{};
    }
  }
  constexpr int height = NR * 8 * Spread::DOWN_WARPS, width = beyond > 0 ? covered : COLUMNS;
  if constexpr (ROWS > height) {
    for (int k = int(threadIdx.x); k < (ROWS - height) * width; k += Spread::THREADS) {
      shared[(height + k / width) * pitch<T>(COLUMNS) + k % width] = T{};
    }
  }
}

// -- products ---------------------------------------------------------------------------------------------------------

PTO_FUNCTION float multiply_add(float x, float y, float z) { return fma(x, y, z); }
PTO_FUNCTION double multiply_add(double x, double y, double z) { return fma(x, y, z); }
template <class T>
PTO_FUNCTION T multiply_add(T x, T y, T z) { return wrapping_add<T>(wrapping_mul<T>(x, y), z); }

// acc += a @ b in the type of acc, DEPTH being contracted.
template <class Spread, int DEPTH, int A_PITCH, bool A_TURNED, int B_PITCH, bool B_TURNED, int NR, int NC, class R,
          class T, class U>
PTO_FUNCTION void multiply(R (&acc)[NR][NC], const T* a, const U* b) {
  constexpr int STEP = 4;
  for (int k = 0; k < DEPTH; k += STEP) {
    R x[NR][STEP];
    PTO_UNROLL
    for (int i = 0; i < NR; ++i) {
      T run[STEP];
      if constexpr (A_TURNED) {
        PTO_UNROLL
        for (int s = 0; s < STEP; ++s) run[s] = a[(k + s) * A_PITCH + Spread::row(i)];
      } else {
        load_run<STEP>(run, a + Spread::row(i) * A_PITCH + k);
      }
      PTO_UNROLL
      for (int s = 0; s < STEP; ++s) x[i][s] = R(from_memory(run[s]));
    }
    PTO_UNROLL
    for (int j = 0; j < NC; j += 2) {
      U pair[2][STEP];
      if constexpr (B_TURNED) {
        load_run<STEP>(pair[0], b + Spread::column(j) * B_PITCH + k);
        load_run<STEP>(pair[1], b + Spread::column(j + 1) * B_PITCH + k);
      } else {
        PTO_UNROLL
        for (int s = 0; s < STEP; ++s) {
          U run[2];
          load_run<2>(run, b + (k + s) * B_PITCH + Spread::column(j));
          pair[0][s] = run[0];
          pair[1][s] = run[1];
        }
      }
      PTO_UNROLL
      for (int s = 0; s < STEP; ++s) {
        PTO_UNROLL
        for (int i = 0; i < NR; ++i) {
          acc[i][j] = multiply_add(x[i][s], R(from_memory(pair[0][s])), acc[i][j]);
          acc[i][j + 1] = multiply_add(x[i][s], R(from_memory(pair[1][s])), acc[i][j + 1]);
        }
      }
    }
  }
}

// A row from global to shared memory. The threads must meet before and after.
template <class X, class T>
PTO_FUNCTION void copy_row(X* row, const T* at, int64_t stride, int columns) {
  const int threads = int(blockDim.x * blockDim.y);
  for (int k = int(threadIdx.y * blockDim.x + threadIdx.x); k < columns; k += threads) {
    row[k] = from_memory(at[k * stride]);
  }
}

// acc += row @ b for one row in shared memory and a matrix in global memory, `depth` x `columns` of it valid, whose columns
// lie side by side. A warp adds up a column at a time.
template <class Spread, int NC, class R, class X, class U>
PTO_FUNCTION void multiply_row_by_columns(R (&acc)[1][NC], const X* row, int depth, const U* b, int64_t column_stride,
                                          int columns) {
  constexpr int RUN = 16 / int(sizeof(U)), ACROSS = Spread::WARPS * Spread::LANES, WARPS = Spread::LINES * Spread::WARPS;
  const int warp = int(threadIdx.y) * Spread::WARPS + int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const bool runs = in_runs<RUN>(b, column_stride, 1, columns, depth) && reinterpret_cast<uintptr_t>(row) % 16 == 0;
  R* const sums = *exchanged_rows<1, NC * ACROSS, R>();
  Spread::synchronise();
  for (int column = warp; column < columns; column += WARPS) {
    const U* const from = b + column * column_stride;
    R sum{};
    if (runs) {
      PTO_UNROLL_BY_4
      for (int k = lane * RUN; k < depth; k += 32 * RUN) {
        U run[RUN];
        X x[RUN];
        load_run<RUN>(run, from + k);
        load_run<RUN>(x, row + k);
        PTO_UNROLL
        for (int s = 0; s < RUN; ++s) sum = multiply_add(R(x[s]), R(from_memory(run[s])), sum);
      }
    } else {
      PTO_UNROLL_BY_4
      for (int k = lane; k < depth; k += 32) sum = multiply_add(R(row[k]), R(from_memory(from[k])), sum);
    }
    sum = combined_over_lanes<Sum<R>, 1, 32>(sum);
    if (lane == 0) sums[column] = sum;
  }
  Spread::synchronise();
  PTO_UNROLL
  for (int j = 0; j < NC; ++j) {
    const int column = Spread::column(j);
    if (column < columns) acc[0][j] = Sum<R>::combine(acc[0][j], sums[column]);
  }
}

// acc += row @ b for one row in shared memory and a matrix in global memory, `depth` x `columns` of it valid. Threads
// that have the same columns take every SHARES-th row of the matrix.
template <class Spread, int NC, class R, class X, class U>
PTO_FUNCTION void multiply_row(R (&acc)[1][NC], const X* row, int depth, const U* b, int64_t row_stride,
                               int64_t column_stride, int columns) {
  if (row_stride == 1 && column_stride != 1) {
    multiply_row_by_columns<Spread>(acc, row, depth, b, column_stride, columns);
    return;
  }
  constexpr int RUN = Spread::RUN;
  R sums[NC] = {};
  constexpr int WIDTH = RUN * int(sizeof(U)), AHEAD = WIDTH >= 16 ? 4 : WIDTH >= 8 ? 8 : 16;  // loads under way
  const U* from = b + Spread::share() * row_stride;
  const int64_t step = Spread::SHARES * row_stride;
  if (in_runs<RUN>(b, row_stride, column_stride, depth, columns)) {
    PTO_UNROLL_BY(AHEAD)
    for (int k = Spread::share(); k < depth; k += Spread::SHARES) {
      const R x = R(row[k]);
      PTO_UNROLL
      for (int j = 0; j < NC; j += RUN) {
        const int column = Spread::column(j);
        if (column < columns) {
          U run[RUN];
          load_run<RUN>(run, from + column);
          PTO_UNROLL
          for (int s = 0; s < RUN; ++s) sums[j + s] = multiply_add(x, R(from_memory(run[s])), sums[j + s]);
        }
      }
      from += step;
    }
  } else {
    PTO_UNROLL_BY(AHEAD)
    for (int k = Spread::share(); k < depth; k += Spread::SHARES) {
      const R x = R(row[k]);
      PTO_UNROLL
      for (int j = 0; j < NC; ++j) {
        const int column = Spread::column(j);
        if (column < columns) {
          sums[j] = multiply_add(x, R(from_memory(from[column * column_stride])), sums[j]);
        }
      }
      from += step;
    }
  }
  Spread::template reduce_shares<Sum<R>>(sums);
  PTO_UNROLL
  for (int j = 0; j < NC; ++j) acc[0][j] = Sum<R>::combine(acc[0][j], sums[j]);
}

// One step of 16 on the tensor cores: `x` holds the left operand's fragments.
template <class Spread, int B_PITCH, bool B_TURNED, int NR, int NC, class T>
PTO_FUNCTION void multiply_step(float (&acc)[NR][NC], const uint32_t (&x)[NR / 2][4], const T* b, int k) {
  const int lane = Spread::lane();
  PTO_UNROLL
  for (int n = 0; n < NC / 2; n += 2) {
    // An odd last block is loaded twice rather than past the end.
    const int block = n + lane / 16 < NC / 2 ? n + lane / 16 : n;
    const int column = Spread::first_column(block);
    uint32_t y[4];
    if constexpr (B_TURNED) {
      load_matrices<false>(y, b + (column + lane % 8) * B_PITCH + k + lane / 8 % 2 * 8);
    } else {
      load_matrices<true>(y, b + (k + lane % 16) * B_PITCH + column);
    }
    PTO_UNROLL
    for (int m = 0; m < NR / 2; ++m) {
      PTO_UNROLL
      for (int s = 0; s < 2; ++s) {
        if (n + s < NC / 2) {
          const int j = 2 * (n + s);
          float d[4] = {acc[2 * m][j], acc[2 * m][j + 1], acc[2 * m + 1][j], acc[2 * m + 1][j + 1]};
          multiply_fragments(d, x[m], y[2 * s], y[2 * s + 1], T{});
          acc[2 * m][j] = d[0];
          acc[2 * m][j + 1] = d[1];
          acc[2 * m + 1][j] = d[2];
          acc[2 * m + 1][j + 1] = d[3];
        }
      }
    }
  }
}

// acc += a @ b for 16-bit floats, both in shared memory.
template <class Spread, int DEPTH, int A_PITCH, bool A_TURNED, int B_PITCH, bool B_TURNED, int NR, int NC, class T>
PTO_FUNCTION void multiply_on_tensor_cores(float (&acc)[NR][NC], const T* a, const T* b) {
  const int lane = Spread::lane();
  PTO_UNROLL
  for (int k = 0; k < DEPTH; k += 16) {
    uint32_t x[NR / 2][4];
    PTO_UNROLL
    for (int m = 0; m < NR / 2; ++m) {
      const int row = (m * Spread::DOWN_WARPS + Spread::warp_row()) * 16;
      if constexpr (A_TURNED) {
        load_matrices<true>(x[m], a + (k + lane / 16 * 8 + lane % 8) * A_PITCH + row + lane / 8 % 2 * 8);
      } else {
        load_matrices<false>(x[m], a + (row + lane % 16) * A_PITCH + k + lane / 16 * 8);
      }
    }
    multiply_step<Spread, B_PITCH, B_TURNED>(acc, x, b, k);
  }
}

#if defined(__CUDA_ARCH__)
PTO_FUNCTION uint32_t packed(float low, float high, half) {
  uint32_t out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
PTO_FUNCTION uint32_t packed(float low, float high, bfloat16) {
  uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
#else
template <class T>
PTO_FUNCTION uint32_t packed(float low, float high, T) {
  return uint32_t(to_memory<T>(low).raw) | uint32_t(to_memory<T>(high).raw) << 16;
}
#endif

// The fragments of a left operand in registers, 16 of its columns from k on; WHOLE: all are valid.
template <class Spread, class T, bool WHOLE, int NR, int NK, class R>
PTO_FUNCTION void pack_fragments(uint32_t (&x)[NR / 2][4], const R (&a)[NR][NK], int columns, int k) {
  PTO_UNROLL
  for (int m = 0; m < NR / 2; ++m) {
    PTO_UNROLL
    for (int part = 0; part < 4; ++part) {
      const int i = 2 * m + part % 2, j = k / 4 + part / 2 * 2;
      const int column = k + part / 2 * 8 + Spread::lane() % 4 * 2;
      const float low = WHOLE || column < columns ? a[i][j < NK ? j : 0] : 0;
      const float high = WHOLE || column + 1 < columns ? a[i][j + 1 < NK ? j + 1 : 0] : 0;
      x[m][part] = j + 1 < NK ? packed(low, high, T{}) : 0u;
    }
  }
}

// The fragments of all columns of a left operand, for products that read it again and again.
template <class Spread, class T, int STEPS, int NR, int NK, class R>
PTO_FUNCTION void pack_tile(uint32_t (&x)[STEPS][NR / 2][4], const R (&a)[NR][NK], int columns) {
  PTO_UNROLL
  for (int step = 0; step < STEPS; ++step) pack_fragments<Spread, T, false>(x[step], a, columns, 16 * step);
}

// acc += a @ b for fragments of a.
template <class Spread, int B_PITCH, bool B_TURNED, int STEPS, int NR, int NC, class T>
PTO_FUNCTION void multiply_packed(float (&acc)[NR][NC], const uint32_t (&x)[STEPS][NR / 2][4], const T* b) {
  static_assert(Spread::ACROSS_WARPS == 1, "each warp has whole rows");
  PTO_UNROLL
  for (int step = 0; step < STEPS; ++step) multiply_step<Spread, B_PITCH, B_TURNED>(acc, x[step], b, 16 * step);
}

template <class Spread, int DEPTH, int B_PITCH, bool B_TURNED, bool WHOLE, int NR, int NC, int NK, class R, class T>
PTO_FUNCTION void multiply_fragments_of(float (&acc)[NR][NC], const R (&a)[NR][NK], int columns, const T* b) {
  PTO_UNROLL
  for (int k = 0; k < DEPTH; k += 16) {
    uint32_t x[NR / 2][4];
    pack_fragments<Spread, T, WHOLE>(x, a, columns, k);
    multiply_step<Spread, B_PITCH, B_TURNED>(acc, x, b, k);
  }
}

// acc += a @ b for 16-bit floats, a in registers: where a warp has whole rows, the fragments of a result are those of a
// left operand. `columns`: how many of a are valid; tiles that are valid as a whole, as nearly all are, are packed without
// a look at each element.
template <class Spread, int DEPTH, int B_PITCH, bool B_TURNED, int NR, int NC, int NK, class R, class T>
PTO_FUNCTION void multiply_from_registers(float (&acc)[NR][NC], const R (&a)[NR][NK], int columns, const T* b) {
  static_assert(Spread::ACROSS_WARPS == 1, "each warp has whole rows");
  if (NK * 4 == DEPTH && columns == DEPTH) {
    multiply_fragments_of<Spread, DEPTH, B_PITCH, B_TURNED, true>(acc, a, columns, b);
  } else {
    multiply_fragments_of<Spread, DEPTH, B_PITCH, B_TURNED, false>(acc, a, columns, b);
  }
}

}  // namespace pto
