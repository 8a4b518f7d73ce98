// SPDX-License-Identifier: MIT
// The instructions of pto-isa that written kernels use, on the CPU, from their documented meaning.
//
// Instructions are queued per pipe, as on the device, and the queues are worked off in an order that a seed chooses:
// only flags hold a pipe back. A missing flag gives other numbers, a flag too many an error. Memory on chip is full of
// NaNs before a block runs, transfers write what is valid and nothing else, and scratch memory is overwritten.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#define AICORE
#define __gm__
#define __global__

using half = _Float16;
struct bfloat16_t {
  uint16_t bits = 0;
  bfloat16_t() = default;
  bfloat16_t(float x) {
    uint32_t raw;
    std::memcpy(&raw, &x, 4);
    bits = x != x ? 0x7fc0 : uint16_t((raw + 0x7fff + (raw >> 16 & 1)) >> 16);
  }
  operator float() const {
    const uint32_t raw = uint32_t(bits) << 16;
    float x;
    std::memcpy(&x, &raw, 4);
    return x;
  }
};

enum pipe_t { PIPE_S, PIPE_V, PIPE_M, PIPE_MTE1, PIPE_MTE2, PIPE_MTE3, PIPE_FIX, PIPE_ALL };
enum event_t { EVENT_ID0, EVENT_ID1, EVENT_ID2, EVENT_ID3, EVENT_ID4, EVENT_ID5, EVENT_ID6, EVENT_ID7 };

namespace emulation {
using Flag = std::tuple<int, int, int>;
struct Item {
  enum { WORK, SET, WAIT } kind;
  std::function<void()> work;
  Flag flag;
};
inline std::deque<Item> queues[7];
inline std::map<Flag, bool> raised;
inline uint32_t block, blocks, seed, state;
constexpr int SIZES[] = {192 * 1024, 512 * 1024, 64 * 1024, 64 * 1024, 128 * 1024};
inline std::vector<uint8_t> memories[5];

inline void fail(const std::string &what) { throw std::runtime_error(what); }

inline bool step(int pipe) {
  auto &queue = queues[pipe];
  if (queue.empty()) return false;
  Item &item = queue.front();
  if (item.kind == Item::WAIT) {
    if (!raised[item.flag]) return false;
    raised[item.flag] = false;
  } else if (item.kind == Item::SET) {
    if (raised[item.flag]) fail("a flag is raised twice");
    raised[item.flag] = true;
  } else {
    item.work();
  }
  queue.pop_front();
  return true;
}

// Seed 0: transfers in first, as far as they can; 1: the other way round; others: any pipe.
inline bool any_step() {
  static const int orders[2][7] = {{4, 3, 1, 2, 5, 6, 0}, {6, 5, 2, 1, 3, 4, 0}};
  if (seed < 2) {
    for (int pipe : orders[seed]) {
      if (step(pipe)) return true;
    }
    return false;
  }
  state = state * 1664525u + 1013904223u;
  for (int k = 0; k < 7; ++k) {
    if (step(int((state >> 16) + k) % 7)) return true;
  }
  return false;
}

inline void drain() {
  while (any_step()) {}
  for (auto &queue : queues) {
    if (!queue.empty()) fail("a pipe waits for a flag that nobody raises");
  }
}

template <typename Body>
const char *launch(uint32_t cores, Body body) {
  static std::string message;
  blocks = cores;
  for (block = 0; block < cores; ++block) {
    state = seed;
    for (int k = 0; k < 5; ++k) memories[k].assign(SIZES[k], 0xff);
    for (auto &queue : queues) queue.clear();
    raised.clear();
    body();
    drain();
    for (auto &flag : raised) {
      if (flag.second) fail("a flag is left over");
    }
  }
  return nullptr;
}
}  // namespace emulation

inline int64_t get_block_idx() { return emulation::block; }
inline int64_t get_block_num() { return emulation::blocks; }
inline void set_mask_norm() {}
inline void set_vector_mask(uint64_t, uint64_t) {}
inline void trap() { emulation::fail("trap"); }
inline void set_flag(pipe_t from, pipe_t to, event_t event) {
  if (event > 7) emulation::fail("there is no such flag");
  emulation::queues[from].push_back({emulation::Item::SET, {}, {from, to, event}});
}
inline void wait_flag(pipe_t from, pipe_t to, event_t event) {
  const emulation::Flag flag{from, to, event};
  if (to != PIPE_S) {
    emulation::queues[to].push_back({emulation::Item::WAIT, {}, flag});
    return;
  }
  while (!emulation::raised[flag]) {
    if (!emulation::any_step()) emulation::fail("the scalar unit waits for a flag that nobody raises");
  }
  emulation::raised[flag] = false;
}
inline void pipe_barrier(pipe_t pipe) {  // a pipe works in order here: `ordering` judges barriers of one pipe
  if (pipe == PIPE_ALL) emulation::drain();
}

namespace pto {
constexpr int DYNAMIC = -1;
enum class TileType { Vec, Mat, Left, Right, Acc };
enum class BLayout { RowMajor, ColMajor };
enum class SLayout { NoneBox, RowMajor, ColMajor };
enum class Layout { ND, DN };
enum class CmpMode { EQ, NE, LT, LE, GT, GE };
enum class RoundMode { CAST_RINT, CAST_FLOOR, CAST_CEIL, CAST_TRUNC };

template <int A, int B, int C, int D, int E>
struct Shape {
  int64_t rows, columns;
};
template <int A, int B, int C, int D, int E>
struct Stride {
  int64_t step;
};

template <typename T, typename S, typename P, Layout L>
struct GlobalTensor {
  T *data;
  int64_t rows, columns, step;
  GlobalTensor(T *data, S shape, P stride)
      : data(data), rows(shape.rows), columns(shape.columns), step(stride.step) {}
  T &at(int64_t r, int64_t c) const { return L == Layout::ND ? data[r * step + c] : data[c * step + r]; }
};

template <TileType Loc, typename T, int R, int C, BLayout B, int VR, int VC, SLayout S = SLayout::NoneBox, int F = 512>
struct Tile {
  using DType = T;
  static constexpr TileType loc = Loc;
  static constexpr int Rows = R, Cols = C;
  static constexpr bool rowMajor = B == BLayout::RowMajor && S == SLayout::NoneBox, boxed = S != SLayout::NoneBox;
  static_assert(VR <= R && VC <= C, "valid extents");
  static_assert(boxed || (B == BLayout::RowMajor ? C : R) * sizeof(T) % 32 == 0, "whole blocks");
  static_assert(!boxed || (R % 16 == 0 && C % 16 == 0), "whole fractals");
  int64_t address = -1, rows = VR, columns = VC;
  Tile() { static_assert(VR > 0 && VC > 0); }
  explicit Tile(int64_t one) : rows(VR < 0 ? one : VR), columns(VR < 0 ? VC : one) {
    static_assert((VR < 0) != (VC < 0));
    check();
  }
  Tile(int64_t rows, int64_t columns) : rows(rows), columns(columns) {
    static_assert(VR < 0 && VC < 0);
    check();
  }
  void check() const {
    if (rows < 1 || rows > R || columns < 1 || columns > C) emulation::fail("valid extents of a tile");
  }
  T *data() const { return reinterpret_cast<T *>(emulation::memories[int(Loc)].data() + address); }
  T &at(int64_t r, int64_t c) const { return data()[B == BLayout::RowMajor || boxed ? r * C + c : c * R + r]; }
  T GetValue(int64_t k) const { return data()[k]; }
  void ruin() const { std::memset(static_cast<void *>(data()), 0xff, sizeof(T) * R * C); }
};
template <typename T, int R, int C, int VR, int VC>
using TileLeftCompact = Tile<TileType::Left, T, R, C, BLayout::RowMajor, VR, VC, SLayout::RowMajor>;
template <typename T, int R, int C, int VR, int VC>
using TileRightCompact = Tile<TileType::Right, T, R, C, BLayout::RowMajor, VR, VC, SLayout::ColMajor>;
template <typename T, int R, int C, int VR, int VC>
using TileAccCompact = Tile<TileType::Acc, T, R, C, BLayout::ColMajor, VR, VC, SLayout::RowMajor>;

template <typename D>
void TASSIGN(D &tile, int64_t address) {
  const int64_t size = int64_t(sizeof(typename D::DType)) * D::Rows * D::Cols;
  const int64_t limit = D::loc == TileType::Vec ? 184 * 1024 : emulation::SIZES[int(D::loc)];
  if (address % 32 != 0 || address < 0 || address + size > limit) emulation::fail("an address of a tile");
  tile.address = address;
}

template <typename F>
void queue(pipe_t pipe, F work) {
  emulation::queues[pipe].push_back({emulation::Item::WORK, work, {}});
}
template <typename A, typename B>
void same_shape(const A &a, const B &b) {
  if (a.rows != b.rows || a.columns != b.columns) emulation::fail("tiles of different valid extents");
}
template <typename D>
constexpr bool row_tile = D::loc == TileType::Vec && D::rowMajor;

template <typename D, typename G>
void TLOAD(D d, G g) {
  if (d.rows != g.rows || d.columns != g.columns) emulation::fail("a transfer of different extents");
  if (D::loc == TileType::Vec && D::Rows > 4095) emulation::fail("too many rows");
  queue(PIPE_MTE2, [=] {
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c) d.at(r, c) = g.at(r, c);
  });
}
template <typename G, typename S>
void TSTORE(G g, S s) {
  if (s.rows != g.rows || s.columns != g.columns) emulation::fail("a transfer of different extents");
  queue(S::loc == TileType::Acc ? PIPE_FIX : PIPE_MTE3, [=] {
    for (int64_t r = 0; r < s.rows; ++r)
      for (int64_t c = 0; c < s.columns; ++c)
        g.at(r, c) = static_cast<std::decay_t<decltype(g.at(0, 0))>>(s.at(r, c));
  });
}

template <typename D, typename A, typename F>
void each(D d, A a, F f) {
  static_assert(row_tile<D> && row_tile<A>, "row-major tiles");
  same_shape(d, a);
  queue(PIPE_V, [=] {
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c) d.at(r, c) = static_cast<typename D::DType>(f(a.at(r, c)));
  });
}
template <typename D, typename A, typename B, typename F>
void pairs(D d, A a, B b, F f) {
  static_assert(row_tile<D> && row_tile<A> && row_tile<B>, "row-major tiles");
  static_assert(std::is_same_v<typename A::DType, typename B::DType>, "one type");
  same_shape(d, a);
  same_shape(d, b);
  queue(PIPE_V, [=] {
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c) d.at(r, c) = static_cast<typename D::DType>(f(a.at(r, c), b.at(r, c)));
  });
}
template <typename D, typename A, typename B, typename F>
void with_column(D d, A a, B b, F f) {
  static_assert(row_tile<D> && row_tile<A> && !B::rowMajor && B::Cols == 1, "a tile and a column");
  same_shape(d, a);
  if (b.rows != d.rows) emulation::fail("a column of other rows");
  queue(PIPE_V, [=] {
    std::vector<typename B::DType> column(d.rows);
    for (int64_t r = 0; r < d.rows; ++r) column[r] = b.at(r, 0);
    std::memset(emulation::memories[0].data() + 184 * 1024, 0xff, 8 * 1024);
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c) d.at(r, c) = f(a.at(r, c), column[r]);
  });
}
template <typename D, typename A, typename B, typename F>
void with_row(D d, A a, B b, F f) {
  static_assert(row_tile<D> && row_tile<A> && row_tile<B>, "row-major tiles");
  same_shape(d, a);
  if (b.columns != d.columns) emulation::fail("a row of other columns");
  queue(PIPE_V, [=] {
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c) d.at(r, c) = f(a.at(r, c), b.at(0, c));
  });
}
template <typename T>
T larger(T a, T b) { return a > b || a != a ? a : b; }
template <typename T>
T lesser(T a, T b) { return a < b || a != a ? a : b; }

#define PTO_BINARY(NAME, EXPRESSION)                                                         \
  template <typename D, typename A, typename B>                                              \
  void T##NAME(D d, A x, B y) { pairs(d, x, y, [](auto a, auto b) { return EXPRESSION; }); } \
  template <typename D, typename A>                                                          \
  void T##NAME##S(D d, A x, typename A::DType b) { each(d, x, [=](auto a) { return EXPRESSION; }); } \
  template <typename D, typename A, typename B>                                              \
  void TROWEXPAND##NAME(D d, A x, B y) { with_column(d, x, y, [](auto a, auto b) { return EXPRESSION; }); } \
  template <typename D, typename A, typename B>                                              \
  void TCOLEXPAND##NAME(D d, A x, B y) { with_row(d, x, y, [](auto a, auto b) { return EXPRESSION; }); }
PTO_BINARY(ADD, decltype(a)(a + b))
PTO_BINARY(SUB, decltype(a)(a - b))
PTO_BINARY(MUL, decltype(a)(a * b))
PTO_BINARY(DIV, decltype(a)(a / b))
PTO_BINARY(MAX, larger<decltype(a)>(a, b))
PTO_BINARY(MIN, lesser<decltype(a)>(a, b))
#undef PTO_BINARY
template <typename D, typename B>
void TDIVS(D d, typename B::DType a, B y) { each(d, y, [=](auto b) { return a / b; }); }
template <typename D, typename A, typename B>
void TMULADDDST(D d, A x, B y) {
  static_assert(row_tile<D> && row_tile<A> && row_tile<B>, "row-major tiles");
  same_shape(d, x);
  same_shape(d, y);
  queue(PIPE_V, [=] {
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c)
        d.at(r, c) = std::fma(float(x.at(r, c)), float(y.at(r, c)), float(d.at(r, c)));
  });
}
template <typename D, typename A, typename B>
void TFUSEDMULADD(D d, A x, B y) {
  static_assert(row_tile<D> && row_tile<A> && row_tile<B>, "row-major tiles");
  same_shape(d, x);
  same_shape(d, y);
  queue(PIPE_V, [=] {
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c)
        d.at(r, c) = std::fma(float(d.at(r, c)), float(x.at(r, c)), float(y.at(r, c)));
  });
}
template <typename D, typename A>
void TAXPY(D d, A x, typename A::DType factor) {
  pairs(d, x, d, [=](auto a, auto b) { return std::fma(float(factor), float(a), float(b)); });
}
template <typename D, typename A, typename B>
void TAND(D d, A x, B y) { pairs(d, x, y, [](auto a, auto b) { return a & b; }); }
template <typename D, typename A, typename B>
void TOR(D d, A x, B y) { pairs(d, x, y, [](auto a, auto b) { return a | b; }); }
template <typename D, typename A>
void TSHLS(D d, A x, int b) { each(d, x, [=](auto a) { return a << b; }); }
template <typename D, typename A>
void TSHRS(D d, A x, int b) { each(d, x, [=](auto a) { return a >> b; }); }
template <typename D, typename A>
void TNOT(D d, A x) { each(d, x, [](auto a) { return ~a; }); }
template <typename D, typename A>
void TMOV(D d, A x) { each(d, x, [](auto a) { return a; }); }
template <typename D, typename A>
void TEXP(D d, A x) { each(d, x, [](auto a) { return std::exp(float(a)); }); }
template <typename D, typename A>
void TLOG(D d, A x) { each(d, x, [](auto a) { return std::log(float(a)); }); }
template <typename D, typename A>
void TSQRT(D d, A x) { each(d, x, [](auto a) { return std::sqrt(float(a)); }); }
template <typename D, typename A>
void TABS(D d, A x) { each(d, x, [](auto a) { return std::fabs(float(a)); }); }
template <typename D, typename A>
void TRELU(D d, A x) { each(d, x, [](auto a) { return a < 0 ? decltype(a)(0) : a; }); }
template <typename D, typename A>
void TCVT(D d, A x, RoundMode mode) {
  each(d, x, [=](auto a) {
    if constexpr (std::is_integral_v<typename D::DType> || std::is_same_v<typename D::DType, typename A::DType>) {
      const double v = mode == RoundMode::CAST_TRUNC ? std::trunc(double(a)) : mode == RoundMode::CAST_FLOOR
          ? std::floor(double(a)) : mode == RoundMode::CAST_CEIL ? std::ceil(double(a)) : std::nearbyint(double(a));
      return static_cast<typename D::DType>(v);
    } else {
      return static_cast<typename D::DType>(static_cast<float>(a));
    }
  });
}
template <typename D>
void TEXPANDS(D d, typename D::DType value) {
  static_assert(row_tile<D>, "row-major tiles");
  queue(PIPE_V, [=] {
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c) d.at(r, c) = value;
  });
}
template <typename D, typename S>
void TROWEXPAND(D d, S s) { with_column(d, d, s, [](auto, auto b) { return b; }); }
template <typename D, typename S>
void TCOLEXPAND(D d, S s) { with_row(d, d, s, [](auto, auto b) { return b; }); }

// Masks: one bit per element, and 64 elements at a time.
template <typename D, typename A, typename B>
void TCMP(D d, A x, B y, CmpMode mode) {
  static_assert(std::is_same_v<typename D::DType, uint8_t> && row_tile<D> && row_tile<A> && row_tile<B>, "a mask");
  static_assert(D::Cols * 8 >= A::Cols, "room for a row of bits");
  if (std::is_same_v<typename A::DType, int32_t> && mode != CmpMode::EQ && mode != CmpMode::NE)
    emulation::fail("integers are compared for equality only");
  same_shape(x, y);
  queue(PIPE_V, [=] {
    for (int64_t r = 0; r < x.rows; ++r) {
      for (int64_t c = 0; c < (x.columns + 63) / 64 * 8; ++c) d.at(r, c) = 0;
      for (int64_t c = 0; c < x.columns; ++c) {
        const auto a = x.at(r, c), b = y.at(r, c);
        const bool holds = mode == CmpMode::EQ ? a == b : mode == CmpMode::NE ? a != b : mode == CmpMode::LT ? a < b
            : mode == CmpMode::LE ? a <= b : mode == CmpMode::GT ? a > b : a >= b;
        d.at(r, c / 8) |= uint8_t(holds << c % 8);
      }
    }
  });
}
template <typename D, typename M, typename A, typename B, typename S>
void TSEL(D d, M mask, A x, B y, S scratch) {
  same_shape(d, x);
  same_shape(d, y);
  queue(PIPE_V, [=] {
    scratch.ruin();
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c)
        d.at(r, c) = mask.at(r, c / 8) >> c % 8 & 1 ? x.at(r, c) : y.at(r, c);
  });
}

template <typename D, typename A, typename S, typename F>
void rows(D d, A x, S scratch, F f) {
  static_assert(row_tile<A> && D::Rows == A::Rows && (!D::rowMajor || D::Rows == 1), "a column from rows");
  if (d.rows != x.rows) emulation::fail("a column of other rows");
  queue(PIPE_V, [=] {
    std::vector<typename D::DType> out(x.rows);
    for (int64_t r = 0; r < x.rows; ++r) {
      auto sum = x.at(r, 0);
      for (int64_t c = 1; c < x.columns; ++c) sum = f(sum, x.at(r, c));
      out[r] = sum;
    }
    scratch.ruin();
    for (int64_t r = 0; r < x.rows; ++r) d.at(r, 0) = out[r];
  });
}
template <typename D, typename A, typename F>
void columns(D d, A x, F f) {
  static_assert(row_tile<A> && row_tile<D> && D::Cols == A::Cols, "a row from columns");
  if (d.columns != x.columns) emulation::fail("a row of other columns");
  queue(PIPE_V, [=] {
    for (int64_t c = 0; c < x.columns; ++c) {
      auto sum = x.at(0, c);
      for (int64_t r = 1; r < x.rows; ++r) sum = f(sum, x.at(r, c));
      d.at(0, c) = sum;
    }
  });
}
#define PTO_REDUCTION(NAME, EXPRESSION)                                                                 \
  template <typename D, typename A, typename S>                                                         \
  void TROW##NAME(D d, A x, S scratch) { rows(d, x, scratch, [](auto a, auto b) { return EXPRESSION; }); } \
  template <typename D, typename A>                                                                     \
  void TCOL##NAME(D d, A x) { columns(d, x, [](auto a, auto b) { return EXPRESSION; }); }
PTO_REDUCTION(SUM, decltype(a)(a + b))
PTO_REDUCTION(PROD, decltype(a)(a * b))
PTO_REDUCTION(MAX, larger<decltype(a)>(a, b))
PTO_REDUCTION(MIN, lesser<decltype(a)>(a, b))
#undef PTO_REDUCTION

template <typename D, typename T, int Descending>
void TCI(D d, T start) {  // the scalar unit writes at once
  static_assert(Descending == 0 && std::is_same_v<T, typename D::DType>, "upwards, in the tile's type");
  static_assert(D::Rows == 1, "one row");
  for (int64_t c = 0; c < d.columns; ++c) d.at(0, c) = start + typename D::DType(c);
}
template <typename D, typename A, typename S>
void TTRANS(D d, A x, S scratch) {
  queue(PIPE_V, [=] {
    scratch.ruin();
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c) d.at(r, c) = x.at(c, r);
  });
}

template <typename D, typename S>
void TEXTRACT(D d, S s, int64_t row, int64_t column) {
  static_assert(S::loc == TileType::Mat && (D::loc == TileType::Left || D::loc == TileType::Right), "from L1 to L0");
  if (row + d.rows > S::Rows || column + d.columns > S::Cols) emulation::fail("a part of a tile");
  queue(PIPE_MTE1, [=] {
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c) d.at(r, c) = s.at(row + r, column + c);
  });
}
template <typename D, typename A, typename B>
void product(D d, A a, B b, bool add) {
  static_assert(A::Rows == D::Rows && A::Cols == B::Rows && B::Cols == D::Cols, "a product of matrices");
  if (a.columns != b.rows || d.rows != a.rows || d.columns != b.columns) emulation::fail("valid extents of a product");
  queue(PIPE_M, [=] {
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c) {
        auto sum = add ? d.at(r, c) : typename D::DType(0);
        for (int64_t k = 0; k < a.columns; ++k) sum += typename D::DType(a.at(r, k)) * typename D::DType(b.at(k, c));
        d.at(r, c) = sum;
      }
  });
}
template <typename D, typename A, typename B>
void TMATMUL(D d, A a, B b) { product(d, a, b, false); }
template <typename D, typename A, typename B>
void TMATMUL_ACC(D d, D, A a, B b) { product(d, a, b, true); }
}  // namespace pto
