// SPDX-License-Identifier: MIT
// Elements of tiles at places that are computed, counts, and random numbers.
#pragma once

#include "pto_cuda.cuh"

namespace pto {

// The valid slots of a tile by a function of the slot and of its row and column; the others are 0.
template <class Spread, bool UNIT_ROW, bool UNIT_COLUMN, int NR, int NC, class R, class At>
PTO_FUNCTION void place_tile(R (&tile)[NR][NC], int rows, int columns, const At& at) {
  PTO_UNROLL
  for (int i = 0; i < NR; ++i) {
    PTO_UNROLL
    for (int j = 0; j < NC; ++j) {
      const int row = row_of<Spread, UNIT_ROW>(i), column = column_of<Spread, UNIT_COLUMN>(j);
      tile[i][j] = row < rows && column < columns ? at(i, j, row, column) : R(0);
    }
  }
}

// The sum of so many numbers that a function gives.
template <class T, class Term>
PTO_FUNCTION T sum_of(int count, const Term& term) {
  T sum = T(0);
  PTO_UNROLL_BY_4
  for (int k = 0; k < count; ++k) sum += term(k);
  return sum;
}

// An index that must be less than `extent`; another one is a failure of the launch, and 0 takes its place.
PTO_FUNCTION int64_t inside(int64_t index, int64_t extent, Failure* failure, int site) {
  if (index >= 0 && index < extent) return index;
  fail(failure, site, index, extent);
  return 0;
}

template <int BYTES>
struct Unsigned;
template <>
struct Unsigned<1> {
  using type = uint8_t;
};
template <>
struct Unsigned<2> {
  using type = uint16_t;
};
template <>
struct Unsigned<4> {
  using type = uint32_t;
};
template <>
struct Unsigned<8> {
  using type = uint64_t;
};
// An element that others may update at the same time.
template <class T>
PTO_FUNCTION T looked_at(const T* at) {
  using Word = typename Unsigned<sizeof(T)>::type;
  return reinterpret<T>(Word(*reinterpret_cast<const volatile Word*>(at)));
}

// Updates of elements that others update at the same time: by the hardware where it has the operation, else by trying
// to exchange the word that has the element until nobody else has changed it.
// Whether the element was `seen` still, and is `value` now; `seen` becomes what it was.
template <class Word, class T>
PTO_FUNCTION bool replaced_word(T* at, T& seen, T value) {
  const Word was = reinterpret<Word>(seen);
  const Word found = atomicCAS(reinterpret_cast<Word*>(at), was, reinterpret<Word>(value));
  seen = reinterpret<T>(found);
  return found == was;
}
template <class T>
PTO_FUNCTION bool replaced(T* at, T& seen, T value) {
  if constexpr (sizeof(T) == 8) {
    return replaced_word<unsigned long long>(at, seen, value);
  } else if constexpr (sizeof(T) == 4) {
    return replaced_word<unsigned>(at, seen, value);
  } else {
    const uintptr_t place = reinterpret_cast<uintptr_t>(at);
    unsigned* const word = reinterpret_cast<unsigned*>(place & ~uintptr_t(3));
    const int shift = int(place & 3) * 8;
    const unsigned mask = (sizeof(T) == 1 ? 0xffu : 0xffffu) << shift;
    unsigned mine = 0, was = 0;
    memcpy(&mine, &value, sizeof(T));
    memcpy(&was, &seen, sizeof(T));
    unsigned around = looked_at(word);
    bool done = false;
    while (!done && (around & mask) == was << shift) {
      const unsigned before = atomicCAS(word, around, (around & ~mask) | mine << shift);
      done = before == around;
      around = before;
    }
    const unsigned found = (around & mask) >> shift;
    memcpy(&seen, &found, sizeof(T));
    return done;
  }
}
template <class Rule, class T, class R>
PTO_FUNCTION void update(T* at, R value) {
  T seen = looked_at(at);
  while (!replaced(at, seen, to_memory<T>(Rule::combine(from_memory(seen), value)))) continue;
}
template <class T>
constexpr bool is_native_integer = false;
template <>
constexpr bool is_native_integer<int32_t> = true;
template <>
constexpr bool is_native_integer<uint32_t> = true;
template <>
constexpr bool is_native_integer<int64_t> = true;
template <>
constexpr bool is_native_integer<uint64_t> = true;
template <class T>
struct NativeWord {  // what the hardware calls a number; sums of integers are the same with a sign and without
  using type = T;
  using sum = T;
};
template <>
struct NativeWord<int64_t> {
  using type = long long;
  using sum = unsigned long long;
};
template <>
struct NativeWord<uint64_t> {
  using type = unsigned long long;
  using sum = unsigned long long;
};
template <class T>
struct AtomicSum {
  static PTO_FUNCTION T nothing() { return T(-0.0); }  // which changes no number: -0 + -0 is -0
  template <class M>
  static PTO_FUNCTION void apply(M* at, T value) {
    if constexpr (sizeof(M) >= 4) {
      using Word = typename NativeWord<M>::sum;
      atomicAdd(reinterpret_cast<Word*>(at), Word(value));
    } else {
      update<Sum<T>>(at, value);
    }
  }
};
template <class T>
struct AtomicMaximum {
  static PTO_FUNCTION T nothing() { return Maximum<T>::identity(); }
  template <class M>
  static PTO_FUNCTION void apply(M* at, T value) {
    if constexpr (is_native_integer<M>) {
      using Word = typename NativeWord<M>::type;
      atomicMax(reinterpret_cast<Word*>(at), Word(value));
    } else {
      update<Maximum<T>>(at, value);
    }
  }
};
template <class T>
struct AtomicMinimum {
  static PTO_FUNCTION T nothing() { return Minimum<T>::identity(); }
  template <class M>
  static PTO_FUNCTION void apply(M* at, T value) {
    if constexpr (is_native_integer<M>) {
      using Word = typename NativeWord<M>::type;
      atomicMin(reinterpret_cast<Word*>(at), Word(value));
    } else {
      update<Minimum<T>>(at, value);
    }
  }
};

// Bins of a block for the elements of a tensor, in shared memory, where there is ROOM for them: they begin as what changes
// nothing, and are combined with the elements at the end, by all threads of the block.
template <class T, int N>
PTO_FUNCTION int elements_of(const Tensor<T, N>& x) {
  int count = 1;
  PTO_UNROLL
  for (int axis = 0; axis < N; ++axis) count *= int(x.shape[axis]);
  return count;
}
template <class T, int N>
PTO_FUNCTION T* element_at(const Tensor<T, N>& x, int number) {
  int64_t distance = 0;
  PTO_UNROLL
  for (int axis = N - 1; axis > 0; --axis) {
    distance += number % int(x.shape[axis]) * x.stride[axis];
    number /= int(x.shape[axis]);
  }
  return x.data + distance + number * x.stride[0];
}
template <template <class> class Atomic, int ROOM, class B, class T, int N>
PTO_FUNCTION void begin_bins(B* bins, const Tensor<T, N>& x) {
  if constexpr (ROOM > 0) {
    const int threads = int(blockDim.x * blockDim.y), self = int(threadIdx.x + threadIdx.y * blockDim.x);
    const int count = elements_of(x);
    for (int k = self; k < count; k += threads) bins[k] = Atomic<B>::nothing();
    __syncthreads();
  }
}
template <template <class> class Atomic, int ROOM, class B, class T, class R>
PTO_FUNCTION void update_bin(B* bin, T* at, R value) {
  if constexpr (ROOM > 0) Atomic<B>::apply(bin, B(value));
  else Atomic<R>::apply(at, value);
}
template <template <class> class Atomic, int ROOM, class B, class T, int N>
PTO_FUNCTION void end_bins(const B* bins, const Tensor<T, N>& x) {
  if constexpr (ROOM > 0) {
    using Word = typename Unsigned<sizeof(B)>::type;
    using R = decltype(from_memory(*x.data));
    __syncthreads();
    const int threads = int(blockDim.x * blockDim.y), self = int(threadIdx.x + threadIdx.y * blockDim.x);
    const int count = elements_of(x);
    for (int k = self; k < count; k += threads) {
      const B bin = bins[k];
      if (reinterpret<Word>(bin) != reinterpret<Word>(Atomic<B>::nothing())) {
        Atomic<R>::apply(element_at(x, k), R(bin));
      }
    }
  }
}

// Every valid element of a tile updates one of a tensor.
template <class Spread, bool UNIT_ROW, bool UNIT_COLUMN, template <class> class Atomic, int NR, int NC, class R, class T>
PTO_FUNCTION void update_tile(T* at, int64_t row_stride, int64_t column_stride, int rows, int columns,
                              const R (&tile)[NR][NC]) {
  if ((UNIT_ROW && !Spread::writes_unit_rows()) || (UNIT_COLUMN && !Spread::writes_unit_columns())) return;
  PTO_UNROLL
  for (int i = 0; i < NR; ++i) {
    PTO_UNROLL
    for (int j = 0; j < NC; ++j) {
      const int row = row_of<Spread, UNIT_ROW>(i), column = column_of<Spread, UNIT_COLUMN>(j);
      if (row < rows && column < columns) Atomic<R>::apply(at + row * row_stride + column * column_stride, tile[i][j]);
    }
  }
}

// Calls a function of slot, row and column for the valid slots that a thread writes.
template <class Spread, bool UNIT_ROW, bool UNIT_COLUMN, int NR, int NC, class Each>
PTO_FUNCTION void for_written(int rows, int columns, const Each& each) {
  if ((UNIT_ROW && !Spread::writes_unit_rows()) || (UNIT_COLUMN && !Spread::writes_unit_columns())) return;
  PTO_UNROLL
  for (int i = 0; i < NR; ++i) {
    PTO_UNROLL
    for (int j = 0; j < NC; ++j) {
      const int row = row_of<Spread, UNIT_ROW>(i), column = column_of<Spread, UNIT_COLUMN>(j);
      if (row < rows && column < columns) each(i, j, row, column);
    }
  }
}

// The valid slots of a tile, each written where a function of the slot and of its row and column says.
template <class Spread, bool UNIT_ROW, bool UNIT_COLUMN, int NR, int NC, class R, class T, class At>
PTO_FUNCTION void scatter_tile(T* to, const R (&tile)[NR][NC], int rows, int columns, const At& at) {
  for_written<Spread, UNIT_ROW, UNIT_COLUMN, NR, NC>(rows, columns, [&](int i, int j, int row, int column) {
    to[at(i, j, row, column)] = to_memory<T>(tile[i][j]);
  });
}

// The valid slots of a tile, each written at a place that its index says; of those with one index in one line the last.
// `owners`: a table of SIZE elements, at least twice those of the tile.  An entry is the last element found yet of its
// line and index, from a place on that both decide (linear probing, Knuth, The Art of Computer Programming 6.4).
template <class Spread, bool UNIT_ROW, bool UNIT_COLUMN, int SIZE, int NR, int NC, class R, class T, class Index,
          class Line, class To>
PTO_FUNCTION void scatter_last(T* to, const R (&tile)[NR][NC], int rows, int columns, int32_t* owners,
                               const Index& index, const Line& line, const To& place) {
  const int threads = int(blockDim.x * blockDim.y), self = int(threadIdx.x + threadIdx.y * blockDim.x);
  for (int k = self; k < SIZE; k += threads) owners[k] = -1;
  const auto first = [&](int64_t mine, int of_line) {
    uint64_t mixed = (uint64_t(mine) + uint64_t(of_line) * 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
    mixed ^= mixed >> 32;
    return int((mixed * 0xD6E8FEB86659FD93u >> 32) * SIZE >> 32);
  };
  const auto same = [&](int other, int64_t mine, int of_line) {
    const int row = other / columns, column = other % columns;
    return line(row, column) == of_line && index(row, column) == mine;
  };
  Spread::synchronise();
  for_written<Spread, UNIT_ROW, UNIT_COLUMN, NR, NC>(rows, columns, [&](int, int, int row, int column) {
    const int64_t mine = index(row, column);
    const int of_line = line(row, column), number = row * columns + column;
    int at = first(mine, of_line);
    int32_t other = atomicCAS(&owners[at], int32_t(-1), int32_t(number));
    while (other != -1 && !same(other, mine, of_line)) {
      at = at + 1 == SIZE ? 0 : at + 1;
      other = atomicCAS(&owners[at], int32_t(-1), int32_t(number));
    }
    if (other != -1) atomicMax(&owners[at], int32_t(number));
  });
  Spread::synchronise();
  for_written<Spread, UNIT_ROW, UNIT_COLUMN, NR, NC>(rows, columns, [&](int i, int j, int row, int column) {
    const int64_t mine = index(row, column);
    const int of_line = line(row, column), number = row * columns + column;
    int at = first(mine, of_line);
    while (!same(owners[at], mine, of_line)) at = at + 1 == SIZE ? 0 : at + 1;
    if (owners[at] == number) to[place(mine, row, column)] = to_memory<T>(tile[i][j]);
  });
}

// Lines of a tensor, each as far from its first element as a function of the slot and the row says; NO_LINE: the tensor
// has no such line.
constexpr int64_t NO_LINE = -0x7fffffffffffffff - 1;
template <class Spread>
struct EachRow : Spread {  // of which a thread writes those that it holds
  static PTO_FUNCTION bool writes_unit_rows() { return true; }
};

template <class Spread, bool UNIT_ROW, bool UNIT_COLUMN, int NR, int NC, class R, class T, class At>
PTO_FUNCTION void load_lines(R (&tile)[NR][NC], const T* from, int64_t column_stride, int rows, int columns, R pad,
                             const At& at) {
  PTO_UNROLL
  for (int i = 0; i < NR; ++i) {
    const int row = row_of<Spread, UNIT_ROW>(i);
    R(&line)[1][NC] = reinterpret_cast<R(&)[1][NC]>(tile[i]);
    const int64_t place = row < rows ? at(i, row) : NO_LINE;
    load_tile<Spread, true, UNIT_COLUMN>(line, from + (place == NO_LINE ? 0 : place), 0, column_stride,
                                         place == NO_LINE ? 0 : 1, columns, pad);
  }
}

template <class Spread, bool UNIT_COLUMN, int NR, int NC, class R, class T, class At>
PTO_FUNCTION void store_lines(T* to, int64_t column_stride, int rows, int columns, const R (&tile)[NR][NC],
                              const At& at) {
  PTO_UNROLL
  for (int i = 0; i < NR; ++i) {
    const int row = Spread::row(i);
    const R(&line)[1][NC] = reinterpret_cast<const R(&)[1][NC]>(tile[i]);
    const int64_t place = row < rows ? at(i, row) : NO_LINE;
    if (place != NO_LINE) store_tile<EachRow<Spread>, true, UNIT_COLUMN>(to + place, 0, column_stride, 1, columns, line);
  }
}

template <class Spread, bool UNIT_COLUMN, template <class> class Atomic, int NR, int NC, class R, class T, class At>
PTO_FUNCTION void update_lines(T* to, int64_t column_stride, int rows, int columns, const R (&tile)[NR][NC],
                               const At& at) {
  PTO_UNROLL
  for (int i = 0; i < NR; ++i) {
    const int row = Spread::row(i);
    const R(&line)[1][NC] = reinterpret_cast<const R(&)[1][NC]>(tile[i]);
    const int64_t place = row < rows ? at(i, row) : NO_LINE;
    if (place != NO_LINE) {
      update_tile<EachRow<Spread>, true, UNIT_COLUMN, Atomic>(to + place, 0, column_stride, 1, columns, line);
    }
  }
}

// How often each of the numbers from 0 on is in a row of a tile: counts in shared memory, `pitch` apart for rows.
template <class Spread, bool UNIT_ROW, bool UNIT_COLUMN, int NR, int NC, class R>
PTO_FUNCTION void count_tile(int32_t* counts, int pitch, int bins, const R (&tile)[NR][NC], int rows, int columns) {
  const int threads = int(blockDim.x * blockDim.y), self = int(threadIdx.x + threadIdx.y * blockDim.x);
  __syncthreads();
  for (int k = self; k < rows * pitch; k += threads) counts[k] = 0;
  __syncthreads();
  if (!(UNIT_ROW && !Spread::writes_unit_rows()) && !(UNIT_COLUMN && !Spread::writes_unit_columns())) {
    PTO_UNROLL
    for (int i = 0; i < NR; ++i) {
      PTO_UNROLL
      for (int j = 0; j < NC; ++j) {
        const int row = row_of<Spread, UNIT_ROW>(i), column = column_of<Spread, UNIT_COLUMN>(j);
        const R x = tile[i][j];
        if (row < rows && column < columns && x >= R(0) && uint64_t(x) < uint64_t(bins)) {
          atomicAdd(&counts[row * pitch + int(x)], 1);
        }
      }
    }
  }
  __syncthreads();
}

// Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011): words 0 and 1 for a 64-bit counter, as numbers in [0, 1).
struct Uniform {
  float first, second;
};
PTO_FUNCTION Uniform philox(int64_t seed, int64_t counter) {
  uint32_t c0 = uint32_t(counter), c1 = uint32_t(uint64_t(counter) >> 32), c2 = 0, c3 = 0;
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(uint64_t(seed) >> 32);
  PTO_UNROLL
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xD2511F53u) * c0, p1 = uint64_t(0xCD9E8D57u) * c2;
    c0 = uint32_t(p1 >> 32) ^ c1 ^ k0;
    c2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
    c1 = uint32_t(p1);
    c3 = uint32_t(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {float(c0 >> 8) * 0x1p-24f, float(c1 >> 8) * 0x1p-24f};
}
PTO_FUNCTION float uniform(int64_t seed, int64_t counter) { return philox(seed, counter).first; }
// Standard normal (Box and Muller, Ann. Math. Stat. 29, 1958), computed in f64 with these functions.
template <class Log1p, class Cos>
PTO_FUNCTION float normal(int64_t seed, int64_t counter, const Log1p& log1p_of, const Cos& cos_of) {
  const Uniform u = philox(seed, counter);
  return float(square_root(-2.0 * log1p_of(-double(u.first))) * cos_of(6.283185307179586 * double(u.second)));
}

}  // namespace pto
