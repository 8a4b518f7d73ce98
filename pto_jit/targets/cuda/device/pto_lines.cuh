// SPDX-License-Identifier: MIT
// Rows of tiles in order, and running combinations along them.
//
// A row lies in registers of the threads that share it: column ((block * WARPS + warp) * LANES + lane) * RUN + k is
// slot block * RUN + k of a thread. Neighbours are in one thread, further ones a shuffle away, then in other warps,
// which shared memory connects, then in other blocks, in the same thread again.
#pragma once

#include "pto_cuda.cuh"

namespace pto {

// The value that a lane has.
template <class T>
PTO_FUNCTION T from_lane(T x, int lane) {
  constexpr int words = (int(sizeof(T)) + 3) / 4;
  int32_t raw[words] = {};
  memcpy(raw, &x, sizeof(T));
  PTO_UNROLL
  for (int k = 0; k < words; ++k) raw[k] = __shfl_sync(0xffffffffu, raw[k], lane);
  memcpy(&x, raw, sizeof(T));
  return x;
}

// Memory through which the warps that share rows exchange what they have; the threads meet before and after its use.
template <class Spread, int SIZE = 16>
struct Between {
  static constexpr int THREADS = Spread::LINES * Spread::WARPS * Spread::LANES;
  static constexpr int BYTES = THREADS * SIZE > 8192 ? THREADS * SIZE : 8192;
  static PTO_FUNCTION unsigned char* memory() { return room<BYTES>(); }
};

// -- running combinations ---------------------------------------------------------------------------------------------

// A state, or none: what changes nothing where a function has no such state.
template <class T>
struct Maybe {
  T value;
  bool some;
};
// The rule of a function that combines two states, the earlier one first.
template <class T, class Function>
struct Combined {
  const Function& function;
  PTO_FUNCTION Maybe<T> identity() const { return {T(), false}; }
  PTO_FUNCTION Maybe<T> combine(Maybe<T> x, Maybe<T> y) const {
    if (x.some && y.some) return {function(x.value, y.value), true};
    return x.some ? x : y;
  }
};
template <class T, class Function>
PTO_FUNCTION Combined<T, Function> combined_by(const Function& function) {
  return {function};
}

// What each run of a thread has before it in its row replaces what the run itself comes to; the row's result.
template <class Spread, bool REVERSE, int BLOCKS, class Rule, class T>
PTO_FUNCTION T prefixes(const Rule& rule, T (&runs)[BLOCKS]) {
  constexpr int LANES = Spread::LANES, WARPS = Spread::WARPS;
  const int lane = Spread::lane_of_line(), self = int(threadIdx.x) % 32;
  const int place = REVERSE ? LANES - 1 - lane : lane, back = REVERSE ? 1 : -1;
  T whole[BLOCKS];  // of a warp
  PTO_UNROLL
  for (int b = 0; b < BLOCKS; ++b) {
    T x = runs[b];
    PTO_UNROLL
    for (int d = 1; d < LANES; d *= 2) {
      const T before = from_lane(x, (self + back * d) & 31);
      if (place >= d) x = rule.combine(before, x);
    }
    const T before = from_lane(x, (self + back) & 31);
    runs[b] = place > 0 ? before : rule.identity();
    whole[b] = from_lane(x, self - lane + (REVERSE ? 0 : LANES - 1));
  }
  T so_far = rule.identity();
  if constexpr (WARPS == 1) {
    PTO_UNROLL
    for (int n = 0; n < BLOCKS; ++n) {
      const int b = REVERSE ? BLOCKS - 1 - n : n;
      runs[b] = rule.combine(so_far, runs[b]);
      so_far = rule.combine(so_far, whole[b]);
    }
  } else {
    T* const parts = reinterpret_cast<T*>(Between<Spread>::memory()) + Spread::line() * WARPS;
    const int warp = Spread::warp_of_line();
    PTO_UNROLL
    for (int n = 0; n < BLOCKS; ++n) {
      const int b = REVERSE ? BLOCKS - 1 - n : n;
      Spread::synchronise();
      if (lane == 0) parts[warp] = whole[b];
      Spread::synchronise();
      for (int k = 0; k < WARPS; ++k) {
        const int w = REVERSE ? WARPS - 1 - k : k;
        if (w == warp) runs[b] = rule.combine(so_far, runs[b]);
        so_far = rule.combine(so_far, parts[w]);
      }
    }
  }
  return so_far;
}

// What the first `count` lanes that share a row have, combined in their order, two neighbours at a time.
template <class Spread, class Rule, class T>
PTO_FUNCTION T combined_neighbours(const Rule& rule, T x, int count) {
  const int lane = Spread::lane_of_line(), self = int(threadIdx.x) % 32;
  PTO_UNROLL
  for (int d = 1; d < Spread::LANES; d *= 2) {
    if (d >= count) break;
    const T after = from_lane(x, (self + d) & 31);
    if (lane + d < count) x = rule.combine(x, after);
  }
  return from_lane(x, self - lane);
}

// What the runs of a row come to.
template <class Spread, int BLOCKS, class Rule, class T>
PTO_FUNCTION T whole_row(const Rule& rule, const T (&runs)[BLOCKS]) {
  constexpr int LANES = Spread::LANES, WARPS = Spread::WARPS;
  const int lane = Spread::lane_of_line();
  T so_far = rule.identity();
  PTO_UNROLL
  for (int b = 0; b < BLOCKS; ++b) {
    T x = combined_neighbours<Spread>(rule, runs[b], LANES);
    if constexpr (WARPS > 1) {
      T* const parts = reinterpret_cast<T*>(Between<Spread>::memory()) + Spread::line() * WARPS;
      Spread::synchronise();
      if (lane == 0) parts[Spread::warp_of_line()] = x;
      Spread::synchronise();
      if constexpr (WARPS <= LANES) {
        if (Spread::warp_of_line() == 0) {  // alone: a function may be long, and the others would be in its way
          x = combined_neighbours<Spread>(rule, lane < WARPS ? parts[lane] : rule.identity(), WARPS);
          if (lane == 0) parts[0] = x;
        }
        Spread::synchronise();
        x = parts[0];
      } else {
        x = parts[0];
        for (int w = 1; w < WARPS; ++w) x = rule.combine(x, parts[w]);
      }
    }
    so_far = rule.combine(so_far, x);
  }
  return so_far;
}

// What the threads of a block have, combined in the order of their numbers.
template <class Spread, class Rule, class T>
PTO_FUNCTION T combined_over_threads(const Rule& rule, T mine) {
  const T runs[1] = {mine};
  return whole_row<Spread>(rule, runs);
}
// How many iterations of a loop each of so many threads has, if they have equally many that follow each other.
template <int THREADS>
PTO_FUNCTION int64_t share_of(int64_t start, int64_t stop, int64_t step) {
  const int64_t count = stop > start ? (stop - start + step - 1) / step : 0;
  return (count + THREADS - 1) / THREADS;
}

// The slots of a row become what they and those before them come to; those from `columns` on count as nothing.
template <class Spread, bool REVERSE, int NC, class Rule, class T>
PTO_FUNCTION T scan_line(const Rule& rule, T (&x)[NC], int columns) {
  constexpr int RUN = Spread::RUN, BLOCKS = NC / RUN;
  T runs[BLOCKS];
  PTO_UNROLL
  for (int j = 0; j < NC; ++j) {
    if (Spread::column(j) >= columns) x[j] = rule.identity();
  }
  PTO_UNROLL
  for (int b = 0; b < BLOCKS; ++b) {
    PTO_UNROLL
    for (int k = 1; k < RUN; ++k) {
      const int here = b * RUN + (REVERSE ? RUN - 1 - k : k), before = here + (REVERSE ? 1 : -1);
      x[here] = rule.combine(x[before], x[here]);
    }
    runs[b] = x[b * RUN + (REVERSE ? 0 : RUN - 1)];
  }
  const T all = prefixes<Spread, REVERSE>(rule, runs);
  PTO_UNROLL
  for (int j = 0; j < NC; ++j) x[j] = rule.combine(runs[j / RUN], x[j]);
  return all;
}

// What a row comes to.
template <class Spread, int NC, class Rule, class T>
PTO_FUNCTION T fold_line(const Rule& rule, const T (&x)[NC], int columns) {
  constexpr int RUN = Spread::RUN, BLOCKS = NC / RUN;
  T runs[BLOCKS];
  PTO_UNROLL
  for (int b = 0; b < BLOCKS; ++b) {
    runs[b] = rule.identity();
    PTO_UNROLL
    for (int k = 0; k < RUN; ++k) {
      if (Spread::column(b * RUN + k) < columns) runs[b] = rule.combine(runs[b], x[b * RUN + k]);
    }
  }
  return whole_row<Spread>(rule, runs);
}

// The same by a rule for which the order makes no difference.
template <class Spread, int NC, class Rule, class T>
PTO_FUNCTION T fold_in_any_order(const Rule&, const T (&x)[NC], int columns) {
  T out = Rule::identity();
  PTO_UNROLL
  for (int j = 0; j < NC; ++j) out = Rule::combine(out, Spread::column(j) < columns ? x[j] : Rule::identity());
  return Spread::template reduce_columns<Rule>(out);
}

template <class Spread, bool REVERSE, class Rule, int NR, int NC, class T>
PTO_FUNCTION void scan_rows(const Rule& rule, T (&x)[NR][NC], int columns) {
  PTO_UNROLL
  for (int i = 0; i < NR; ++i) scan_line<Spread, REVERSE>(rule, x[i], columns);
}

// -- the same down columns, each of which teams of threads share (of `Rows` that are not teamed): every team has every
// TEAMS-th row, so that slot i of all of them is TEAMS rows.

template <class Spread, bool REVERSE, int NR, int NC, class Rule, class T>
PTO_FUNCTION void scan_down(const Rule& rule, T (&x)[NR][NC], T (&all)[NC], int rows) {
  constexpr int TEAMS = Spread::LINES, THREADS = Spread::WARPS * Spread::LANES;
  constexpr int SIZE = sizeof(T) > 16 ? int(sizeof(T)) : 16, ROOM = Between<Spread, SIZE>::BYTES / int(sizeof(T));
  constexpr int PIECE = ROOM / (TEAMS * THREADS) >= NC ? NC : 1;  // columns that are exchanged at a time
  T* const parts = reinterpret_cast<T*>(Between<Spread, SIZE>::memory());
  const int team = Spread::line(), at = int(threadIdx.x);
  PTO_UNROLL
  for (int j = 0; j < NC; ++j) all[j] = rule.identity();
  PTO_UNROLL
  for (int n = 0; n < NR; ++n) {
    const int i = REVERSE ? NR - 1 - n : n;
    PTO_UNROLL
    for (int j = 0; j < NC; ++j) {
      if (Spread::row(i) >= rows) x[i][j] = rule.identity();
    }
    if constexpr (TEAMS == 1) {
      PTO_UNROLL
      for (int j = 0; j < NC; ++j) all[j] = x[i][j] = rule.combine(all[j], x[i][j]);
    } else {
      PTO_UNROLL
      for (int j = 0; j < NC; j += PIECE) {
        __syncthreads();
        PTO_UNROLL
        for (int k = 0; k < PIECE; ++k) parts[(team * PIECE + k) * THREADS + at] = x[i][j + k];
        __syncthreads();
        PTO_UNROLL
        for (int k = 0; k < PIECE; ++k) {
          PTO_KEEP_LOOP
          for (int m = 0; m < TEAMS; ++m) {
            const int other = REVERSE ? TEAMS - 1 - m : m;
            if (other == team) x[i][j + k] = rule.combine(all[j + k], x[i][j + k]);
            all[j + k] = rule.combine(all[j + k], parts[(other * PIECE + k) * THREADS + at]);
          }
        }
      }
    }
  }
}

template <class Spread, bool REVERSE, int NR, int NC, class Rule, class T>
PTO_FUNCTION void scan_columns(const Rule& rule, T (&x)[NR][NC], int rows) {
  T all[NC];
  scan_down<Spread, REVERSE>(rule, x, all, rows);
}

// -- order ------------------------------------------------------------------------------------------------------------

// Numbers as unsigned ones in the same order: NaN last, zeros of both signs equal.
template <bool WIDE>
struct KeyOf {
  using type = uint32_t;
};
template <>
struct KeyOf<true> {
  using type = uint64_t;
};
template <class T>
struct Ordered {  // of integers and truth values
  using Key = typename KeyOf<sizeof(T) == 8>::type;
  static constexpr Key FLIP = T(-1) < T(0) ? Key(1) << (8 * sizeof(Key) - 1) : Key(0);
  static constexpr bool EXACT = true;  // equal keys are of one number
  static PTO_FUNCTION Key key(T x) { return Key(x) ^ FLIP; }
  static PTO_FUNCTION bool is_special(T) { return false; }
  static PTO_FUNCTION T value(Key key, bool) { return T(key ^ FLIP); }
};
template <class T, class Word>
struct OrderedFloat {  // of the bits of a number, those of the sign turned so that keys are in the order of numbers
  using Key = Word;
  static constexpr bool EXACT = false;
  static constexpr Key SIGN = Key(1) << (8 * sizeof(Key) - 1);
  static PTO_FUNCTION Key key(T x) {
    const Key raw = reinterpret<Key>(x == T(0) ? T(0) : x);
    return x != x ? ~Key(0) : raw & SIGN ? ~raw : raw | SIGN;
  }
  static PTO_FUNCTION bool is_special(T x) { return x == T(0) && reinterpret<Key>(x) != 0; }
  static PTO_FUNCTION T value(Key key, bool special) {
    if (special) return -T(0);
    return reinterpret<T>(key & SIGN ? key & ~SIGN : ~key);
  }
};
template <>
struct Ordered<float> : OrderedFloat<float, uint32_t> {};
template <>
struct Ordered<double> : OrderedFloat<double, uint64_t> {};

// A key and where it was: a word that is less where it belongs before another one. `tag`: the place, and in the lowest
// bit whether the number was one that its key does not tell (-0).
template <class Key>
struct Placed;
template <>
struct Placed<uint32_t> {
  uint64_t word;
  static PTO_FUNCTION Placed make(uint32_t key, uint32_t tag) { return {uint64_t(key) << 32 | tag}; }
  PTO_FUNCTION uint32_t key() const { return uint32_t(word >> 32); }
  PTO_FUNCTION uint32_t tag() const { return uint32_t(word); }
  PTO_FUNCTION bool before(Placed y) const { return word < y.word; }
};
template <>
struct Placed<uint64_t> {
  uint32_t low, high, place;
  static PTO_FUNCTION Placed make(uint64_t key, uint32_t tag) { return {uint32_t(key), uint32_t(key >> 32), tag}; }
  PTO_FUNCTION uint64_t key() const { return uint64_t(high) << 32 | low; }
  PTO_FUNCTION uint32_t tag() const { return place; }
  PTO_FUNCTION bool before(Placed y) const { return key() < y.key() || (key() == y.key() && place < y.place); }
};
template <class Key>
struct Alone {  // where places make no difference
  Key word;
  static PTO_FUNCTION Alone make(Key key, uint32_t) { return {key}; }
  PTO_FUNCTION Key key() const { return word; }
  PTO_FUNCTION uint32_t tag() const { return 0; }
  PTO_FUNCTION bool before(Alone y) const { return word < y.word; }
};

PTO_CONSTANT int next_power_of_two(int n) {
  int out = 1;
  while (out < n) out *= 2;
  return out;
}

// A row of words in order (bitonic merges of 2, 4, 8, ... of them): N slots of each thread, a power of two.
template <class Spread, int N, class Word>
struct Network {
  static constexpr int RUN = Spread::RUN, LANES = Spread::LANES, WARPS = Spread::WARPS, BLOCKS = N / RUN;
  static constexpr int OF_WARP = RUN * LANES, OF_BLOCK = OF_WARP * WARPS, SIZE = OF_BLOCK * BLOCKS;
  static constexpr int ROOM = Between<Spread>::BYTES / (Between<Spread>::THREADS * int(sizeof(Word)));
  static constexpr int PIECE = ROOM >= N ? N : next_power_of_two(ROOM + 1) / 2;  // slots that are exchanged at a time

  // Where a slot is, but for what all slots of a thread have in common.
  static PTO_CONSTANT int offset(int j) { return j / RUN * OF_BLOCK + j % RUN; }

  // Slots j and j + distance of this thread, for those that are `distance` slots apart.
  template <int DISTANCE>
  static PTO_FUNCTION void within(Word (&x)[N], int at, int size) {
    PTO_UNROLL
    for (int j = 0; j < N; ++j) {
      if (j & DISTANCE) continue;
      const bool up = ((at + offset(j)) & size) == 0;
      const Word first = x[j], second = x[j + DISTANCE];
      const bool exchange = second.before(first) == up;
      x[j] = exchange ? second : first;
      x[j + DISTANCE] = exchange ? first : second;
    }
  }
  static PTO_FUNCTION Word chosen(Word mine, Word other, bool lower, bool up) {
    return other.before(mine) == (lower == up) ? other : mine;
  }
  static PTO_FUNCTION void between_lanes(Word (&x)[N], int at, int size, int lanes) {
    const bool lower = (Spread::lane_of_line() & lanes) == 0;
    PTO_UNROLL
    for (int j = 0; j < N; ++j) {
      x[j] = chosen(x[j], exchanged(x[j], lanes), lower, ((at + offset(j)) & size) == 0);
    }
  }
  static PTO_FUNCTION void between_warps(Word (&x)[N], int at, int size, int warps) {
    constexpr int WIDTH = LANES * WARPS;
    Word* const room = reinterpret_cast<Word*>(Between<Spread>::memory()) + Spread::line() * PIECE * WIDTH;
    const int here = Spread::warp_of_line() * LANES + Spread::lane_of_line(), there = here ^ warps * LANES;
    const bool lower = (Spread::warp_of_line() & warps) == 0;
    PTO_UNROLL
    for (int j = 0; j < N; j += PIECE) {
      Spread::synchronise();
      PTO_UNROLL
      for (int k = 0; k < PIECE; ++k) room[k * WIDTH + here] = x[j + k];
      Spread::synchronise();
      PTO_UNROLL
      for (int k = 0; k < PIECE; ++k) {
        x[j + k] = chosen(x[j + k], room[k * WIDTH + there], lower, ((at + offset(j + k)) & size) == 0);
      }
    }
  }
  template <int BLOCK>
  static PTO_FUNCTION void between_blocks(Word (&x)[N], int at, int size) {
    if constexpr (BLOCK > 0) {
      if (size > BLOCK * OF_BLOCK) within<BLOCK * RUN>(x, at, size);
      between_blocks<BLOCK / 2>(x, at, size);
    }
  }
  template <int K>
  static PTO_FUNCTION void between_neighbours(Word (&x)[N], int at, int size) {
    if constexpr (K > 0) {
      if (size > K) within<K>(x, at, size);
      between_neighbours<K / 2>(x, at, size);
    }
  }
  static PTO_FUNCTION void sort(Word (&x)[N]) {
    const int at = (Spread::warp_of_line() * LANES + Spread::lane_of_line()) * RUN;
    PTO_KEEP_LOOP
    for (int size = 2; size <= SIZE; size *= 2) {
      between_blocks<BLOCKS / 2>(x, at, size);
      PTO_KEEP_LOOP
      for (int warps = smaller(size / 2 / OF_WARP, WARPS / 2); warps > 0; warps /= 2) between_warps(x, at, size, warps);
      PTO_KEEP_LOOP
      for (int lanes = smaller(size / 2 / RUN, LANES / 2); lanes > 0; lanes /= 2) between_lanes(x, at, size, lanes);
      between_neighbours<RUN / 2>(x, at, size);
    }
  }
};

// The words of a row, from `columns` on such that belong behind all others.
template <class Spread, bool DESCENDING, int N, int NC, class Word, class T>
PTO_FUNCTION void words_of_row(Word (&words)[N], const T (&row)[NC], int columns) {
  using Key = typename Ordered<T>::Key;
  PTO_UNROLL
  for (int j = 0; j < N; ++j) {
    const int column = Spread::column(j);
    const T x = row[j < NC ? j : 0];
    const Key key = Ordered<T>::key(x);
    const bool inside = j < NC && column < columns;
    words[j] = Word::make(inside ? DESCENDING ? Key(~key) : key : Key(~Key(0)),
                          uint32_t(column) << 1 | (inside && Ordered<T>::is_special(x) ? 1u : 0u));
  }
}

// The rows of a tile in order: `take(i, j, word)` gets the word of each slot.
template <class Word, class Spread, bool DESCENDING, int NR, int NC, class T, class Take>
PTO_FUNCTION void sort_words(const T (&tile)[NR][NC], int columns, const Take& take) {
  constexpr int N = next_power_of_two(NC / Spread::RUN) * Spread::RUN;
  PTO_UNROLL
  for (int i = 0; i < NR; ++i) {
    Word words[N];
    words_of_row<Spread, DESCENDING>(words, tile[i], columns);
    Network<Spread, N, Word>::sort(words);
    PTO_UNROLL
    for (int j = 0; j < NC; ++j) take(i, j, words[j]);
  }
}

template <class T, bool DESCENDING, class Word>
PTO_FUNCTION T value_of(Word word) {
  using Key = typename Ordered<T>::Key;
  return Ordered<T>::value(DESCENDING ? Key(~word.key()) : word.key(), word.tag() & 1);
}

template <bool EXACT, class Key>
struct WordOf {
  using type = Placed<Key>;
};
template <class Key>
struct WordOf<true, Key> {
  using type = Alone<Key>;
};

template <class Spread, bool DESCENDING, int NR, int NC, class T>
PTO_FUNCTION void sort_tile(T (&values)[NR][NC], const T (&tile)[NR][NC], int columns) {
  using Word = typename WordOf<Ordered<T>::EXACT, typename Ordered<T>::Key>::type;
  sort_words<Word, Spread, DESCENDING>(tile, columns, [&](int i, int j, Word word) {
    values[i][j] = value_of<T, DESCENDING>(word);
  });
}

template <class Spread, bool DESCENDING, int NR, int NC, class T>
PTO_FUNCTION void sort_places(int32_t (&places)[NR][NC], const T (&tile)[NR][NC], int columns) {
  using Word = Placed<typename Ordered<T>::Key>;
  sort_words<Word, Spread, DESCENDING>(tile, columns, [&](int i, int j, Word word) {
    places[i][j] = int32_t(word.tag() >> 1);
  });
}

// The first slots of rows in descending order, and where they were.
template <class Spread, int NR, int NC, int MC, class T>
PTO_FUNCTION void largest_of_tile(T (&values)[NR][MC], int32_t (&places)[NR][MC], const T (&tile)[NR][NC],
                                  int columns) {
  using Word = Placed<typename Ordered<T>::Key>;
  sort_words<Word, Spread, true>(tile, columns, [&](int i, int j, Word word) {
    if (j < MC) {
      values[i][j] = value_of<T, true>(word);
      places[i][j] = int32_t(word.tag() >> 1);
    }
  });
}

// The same of at most a few: each the first of the words that belong behind the one found before.
template <class Word>
struct First {
  static PTO_FUNCTION Word identity() { return Word::make(decltype(Word().key())(~uint64_t(0)), ~0u); }
  static PTO_FUNCTION Word combine(Word x, Word y) { return y.before(x) ? y : x; }
};

template <class Spread, int COUNT, int NR, int NC, int MC, class T>
PTO_FUNCTION void few_largest_of_tile(T (&values)[NR][MC], int32_t (&places)[NR][MC], const T (&tile)[NR][NC],
                                      int columns) {
  using Word = Placed<typename Ordered<T>::Key>;
  PTO_UNROLL
  for (int i = 0; i < NR; ++i) {
    Word words[NC], found = First<Word>::identity();
    words_of_row<Spread, true>(words, tile[i], columns);
    PTO_KEEP_LOOP
    for (int k = 0; k < COUNT; ++k) {
      Word next = First<Word>::identity();
      PTO_UNROLL
      for (int j = 0; j < NC; ++j) {
        if ((k == 0 || found.before(words[j])) && words[j].before(next)) next = words[j];
      }
      found = Spread::template reduce_columns<First<Word>>(next);
      PTO_UNROLL
      for (int j = 0; j < MC; ++j) {
        if (Spread::column(j) != k) continue;
        values[i][j] = value_of<T, true>(found);
        places[i][j] = int32_t(found.tag() >> 1);
      }
    }
  }
}

}  // namespace pto
