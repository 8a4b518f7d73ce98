// SPDX-License-Identifier: MIT
// The instructions of pto-isa that written kernels use, on the CPU, from their documented meaning.
//
// Instructions are queued per pipe, as on the device, and the queues are worked off in an order that a seed chooses:
// only flags hold a pipe back. A missing flag gives other numbers, a flag too many an error. Memory on chip is full of
// NaNs before a block runs, scratch memory is overwritten, and so is the rest of a block of 32 bytes behind what is loaded
// or copied. Stores write what is valid and nothing else.
#pragma once
#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
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
constexpr int SIZES[] = {192 * 1024, 512 * 1024, 64 * 1024, 64 * 1024, 128 * 1024};
struct Core {
  std::deque<Item> queues[7];
  std::map<Flag, bool> raised;
  std::vector<uint8_t> memories[5];
  int number = 0;  // in its group: 0 and 1 are vector cores, 2 is the cube core
};
inline thread_local Core *core;
inline uint32_t block, blocks, seed, state;

inline void fail(const std::string &what) { throw std::runtime_error(what); }

// The cores of a group are threads of which one runs at a time; a core that waits for another one lets the next run.
struct Group {
  std::mutex lock;
  std::condition_variable changed;
  int turn = 0, alive = 0, idle = 0, told[16][3] = {};
  bool over[3] = {};
  std::string problem;
};
inline Group *group;

inline void hand_over(bool finished) {
  std::unique_lock<std::mutex> hold(group->lock);
  if (finished) {
    group->over[core->number] = true;
    --group->alive;
    group->idle = 0;
  } else if (++group->idle > 3 * group->alive) {
    group->problem = "the cores of a group wait for each other";
  }
  do group->turn = (group->turn + 1) % 3;
  while (group->over[group->turn] && group->alive > 0);
  group->changed.notify_all();
  if (finished) return;
  group->changed.wait(hold, [] { return group->turn == core->number || !group->problem.empty(); });
  if (!group->problem.empty()) fail(group->problem);
}

inline bool step(int pipe) {
  auto &queue = core->queues[pipe];
  auto &raised = core->raised;
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
  for (auto &queue : core->queues) {
    if (!queue.empty()) fail("a pipe waits for a flag that nobody raises");
  }
}

// A core from its first instruction to its last.
template <typename Body>
void run(Core &own, Body body) {
  core = &own;
  for (int k = 0; k < 5; ++k) own.memories[k].assign(SIZES[k], 0xff);
  for (auto &queue : own.queues) queue.clear();
  own.raised.clear();
  body();
  drain();
  for (auto &flag : own.raised) {
    if (flag.second) fail("a flag is left over");
  }
}

template <typename Body>
const char *launch(uint32_t cores, Body body) {
  static Core own;
  blocks = cores;
  for (block = 0; block < cores; ++block) {
    state = seed;
    run(own, body);
  }
  return nullptr;
}

// A kernel of groups: each is a cube core and two vector cores.
template <typename Cube, typename Vector>
void launch_groups(uint32_t cores, Cube cube, Vector vector) {
  static Core own[3];
  blocks = cores;
  for (block = 0; block < cores; ++block) {
    state = seed;
    Group here;
    here.alive = 3;
    here.turn = int(seed % 3);
    group = &here;
    std::vector<std::thread> threads;
    for (int k = 0; k < 3; ++k) {
      own[k].number = k;
      threads.emplace_back([&, k] {
        core = &own[k];
        {
          std::unique_lock<std::mutex> hold(here.lock);
          here.changed.wait(hold, [&] { return here.turn == k || !here.problem.empty(); });
        }
        try {
          if (here.problem.empty()) {
            if (k == 2) run(own[k], cube);
            else run(own[k], vector);
          }
        } catch (const std::exception &error) {
          std::unique_lock<std::mutex> hold(here.lock);
          if (here.problem.empty()) here.problem = error.what();
        }
        hand_over(true);
      });
    }
    for (auto &thread : threads) thread.join();
    if (!here.problem.empty()) fail(here.problem);
    for (auto &counts : here.told)
      if (counts[0] != 0 || counts[1] != 0 || counts[2] != 0) fail("a flag between cores is left over");
  }
}
}  // namespace emulation

inline uint32_t get_block_idx() { return emulation::block; }
inline uint32_t get_block_num() { return emulation::blocks; }
inline uint32_t get_subblockid() { return uint32_t(emulation::core->number); }
inline void set_mask_norm() {}
inline void set_vector_mask(uint64_t, uint64_t) {}
struct cache_line_t {
  enum { ENTIRE_DATA_CACHE };
};
enum mem_dsb_t { DSB_DDR };
inline void dcci(void *, int) {}  // `legality` judges whether the cache of the scalar unit is written back
inline void dsb(mem_dsb_t) {}
inline void trap() { emulation::fail("trap"); }
inline void set_flag(pipe_t from, pipe_t to, event_t event) {
  if (event > 7) emulation::fail("there is no such flag");
  emulation::core->queues[from].push_back({emulation::Item::SET, {}, {from, to, event}});
}
inline void wait_flag(pipe_t from, pipe_t to, event_t event) {
  const emulation::Flag flag{from, to, event};
  if (to != PIPE_S) {
    emulation::core->queues[to].push_back({emulation::Item::WAIT, {}, flag});
    return;
  }
  auto &raised = emulation::core->raised;
  while (!raised[flag]) {
    if (!emulation::any_step()) emulation::fail("the scalar unit waits for a flag that nobody raises");
  }
  raised[flag] = false;
}
// Mode 2: the cube core tells both vector cores, and hears of a flag when both have told it.
inline void ffts_cross_core_sync(pipe_t pipe, uint64_t config) {
  if ((config & 0xff) != 0x21) emulation::fail("a flag of another mode");
  const int flag = int(config >> 8), who = emulation::core->number;
  emulation::core->queues[pipe].push_back({emulation::Item::WORK, [=] {
    auto &told = emulation::group->told[flag];
    for (int k = 0; k < 3; ++k)
      if (who == 2 ? k < 2 : k == 2) told[k] += who == 2 ? 1 : who == 0 ? 1 : 0x100;
    for (int k = 0; k < 3; ++k)
      if ((told[k] & 0xff) > 15 || told[k] >> 8 > 15) emulation::fail("a flag between cores counts beyond 15");
  }, {}});
}
inline void set_ffts_base_addr(uint64_t) {}
inline void wait_flag_dev(int flag) {
  const int who = emulation::core->number, one = who == 2 ? 0x101 : 1;
  auto &told = emulation::group->told[flag][who];
  while ((told & 0xff) == 0 || (who == 2 && told >> 8 == 0)) {
    if (!emulation::any_step()) emulation::hand_over(false);
    else emulation::group->idle = 0;
  }
  told -= one;
  emulation::group->idle = 0;
}
inline void pipe_barrier(pipe_t pipe) {  // a pipe works in order here: `ordering` judges barriers of one pipe
  if (pipe == PIPE_ALL) emulation::drain();
}

// What the scalar unit tells the transfers that it gives out from then on.
namespace emulation {
inline thread_local char atomic = 0, atomic_type = 0;
template <typename T>
constexpr char type_of = std::is_same_v<T, float> ? 'f' : std::is_same_v<T, half> ? 'h' : std::is_same_v<T, bfloat16_t> ? 'b'
    : std::is_same_v<T, int32_t> ? 'i' : std::is_same_v<T, int16_t> ? 's' : std::is_same_v<T, int8_t> ? 'c' : '?';
}  // namespace emulation
inline void set_atomic_f32() { emulation::atomic_type = 'f'; }
inline void set_atomic_f16() { emulation::atomic_type = 'h'; }
inline void set_atomic_bf16() { emulation::atomic_type = 'b'; }
inline void set_atomic_s32() { emulation::atomic_type = 'i'; }
inline void set_atomic_s16() { emulation::atomic_type = 's'; }
inline void set_atomic_s8() { emulation::atomic_type = 'c'; }
inline void set_atomic_max() { emulation::atomic = '>'; }
inline void set_atomic_min() { emulation::atomic = '<'; }
inline void set_atomic_none() { emulation::atomic = emulation::atomic_type = 0; }

namespace pto {
constexpr int DYNAMIC = -1;
enum class TileType { Vec, Mat, Left, Right, Acc };
enum class BLayout { RowMajor, ColMajor };
enum class SLayout { NoneBox, RowMajor, ColMajor };
enum class Layout { ND, DN };
enum class CmpMode { EQ, NE, LT, LE, GT, GE };
enum class RoundMode { CAST_RINT, CAST_FLOOR, CAST_CEIL, CAST_TRUNC };
enum class SaturationMode { OFF, ON };
enum class AtomicType { AtomicNone, AtomicAdd };

template <int A, int B, int C, int D, int E>
struct Shape {
  int64_t rows, columns;
};
template <int A, int B, int C, int D, int E>
struct Stride {
  int64_t step;
};

// A tile or a rectangle of global memory without its type: so that each instruction is compiled once per element type.
template <typename T>
struct View {
  T *memory;  // null: on chip
  int space;
  int64_t address, rows, columns, down, right, size;
  T *data() const {
    return memory ? memory : reinterpret_cast<T *>(emulation::core->memories[space].data() + address);
  }
  T &at(int64_t r, int64_t c) const { return data()[r * down + c * right]; }
  void ruin() const { std::memset(static_cast<void *>(data()), 0xff, sizeof(T) * size); }
};

template <typename T>
View<T> view_of(T *data, int64_t rows, int64_t columns, int64_t down, int64_t right) {
  return {data, 0, 0, rows, columns, down, right, 0};
}
template <typename T, typename S, typename P, Layout L>
struct GlobalTensor {
  T *data;
  int64_t rows, columns, step;
  GlobalTensor(T *data, S shape, P stride)
      : data(data), rows(shape.rows), columns(shape.columns), step(stride.step) {}
  auto view() const { return view_of(data, rows, columns, L == Layout::ND ? step : 1, L == Layout::ND ? 1 : step); }
};

template <TileType Loc, typename T, int R, int C, BLayout B, int VR, int VC, SLayout S = SLayout::NoneBox, int F = 512>
struct Tile {
  using DType = T;
  static constexpr TileType loc = Loc;
  static constexpr int Rows = R, Cols = C, ValidCol = VC;
  static constexpr bool rowMajor = B == BLayout::RowMajor && S == SLayout::NoneBox, boxed = S != SLayout::NoneBox;
  static constexpr bool turned = B == BLayout::RowMajor && S == SLayout::ColMajor;
  static_assert(VR <= R && VC <= C, "valid extents");
  static_assert(boxed || (B == BLayout::RowMajor ? C : R) * sizeof(T) % 32 == 0, "whole blocks");
  static_assert(!boxed || (R % 16 == 0 && C % 16 == 0), "whole fractals");
  int64_t address = -1, rows = VR, columns = VC;
  bool aligned = false;
  void SetKAligned(bool is) { aligned = is; }
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
  View<T> view() const {
    const bool by_rows = B == BLayout::RowMajor || boxed;
    return {nullptr, int(Loc), address, rows, columns, by_rows ? C : 1, by_rows ? 1 : R, int64_t(R) * C};
  }
  T GetValue(int64_t k) const { return view().data()[k]; }
  void SetValue(int64_t k, T value) { view().data()[k] = value; }  // the scalar unit, at once
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
  emulation::core->queues[pipe].push_back({emulation::Item::WORK, work, {}});
}
template <typename T, typename U>
void same_shape(const View<T> &a, const View<U> &b) {
  if (a.rows != b.rows || a.columns != b.columns) emulation::fail("tiles of different valid extents");
}
template <typename D>
constexpr bool row_tile = D::loc == TileType::Vec && D::rowMajor;

template <typename T, typename U>
void copy(pipe_t pipe, View<T> to, View<U> from) {
  if (to.rows != from.rows || to.columns != from.columns) emulation::fail("a transfer of different extents");
  queue(pipe, [=] {
    for (int64_t r = 0; r < to.rows; ++r)
      for (int64_t c = 0; c < to.columns; ++c) to.at(r, c) = static_cast<T>(from.at(r, c));
  });
}
template <typename D, typename G>
void TLOAD(D d, G g) {
  if (D::loc == TileType::Vec && D::Rows > 4095) emulation::fail("too many rows");
  copy(PIPE_MTE2, d.view(), g.view());
  if constexpr (row_tile<D>) queue(PIPE_MTE2, [to = d.view()] {  // whole blocks
    constexpr int64_t block = 32 / sizeof(typename D::DType);
    const int64_t rest = (to.columns + block - 1) / block * block - to.columns;
    for (int64_t r = 0; r < to.rows && rest; ++r)
      std::memset(static_cast<void *>(&to.at(r, to.columns)), 0xff, rest * sizeof(typename D::DType));
  });
}
template <typename G, typename S>
void TSTORE(G g, S s) {
  auto to = g.view();
  auto from = s.view();
  const char atomic = emulation::atomic;
  if (!atomic) return copy(S::loc == TileType::Acc ? PIPE_FIX : PIPE_MTE3, to, from);
  using T = std::remove_reference_t<decltype(to.at(0, 0))>;
  if (emulation::atomic_type != emulation::type_of<T>) emulation::fail("an atomic transfer of another type");
  if (to.rows != from.rows || to.columns != from.columns) emulation::fail("a transfer of different extents");
  queue(PIPE_MTE3, [=] {
    for (int64_t r = 0; r < to.rows; ++r)
      for (int64_t c = 0; c < to.columns; ++c) {
        const T more = static_cast<T>(from.at(r, c)), old = to.at(r, c);
        if (atomic == '>' ? old < more : more < old) to.at(r, c) = more;
      }
  });
}
template <typename S, typename G, AtomicType A>
void TSTORE(G g, S s) {
  static_assert(A == AtomicType::AtomicAdd);
  auto to = g.view();
  auto from = s.view();
  using T = std::remove_reference_t<decltype(to.at(0, 0))>;
  static_assert(std::is_same_v<T, half> || std::is_same_v<T, float> || std::is_same_v<T, bfloat16_t> ||
                std::is_same_v<T, int8_t> || std::is_same_v<T, int16_t> || std::is_same_v<T, int32_t>);
  if (to.rows != from.rows || to.columns != from.columns) emulation::fail("a transfer of different extents");
  queue(S::loc == TileType::Acc ? PIPE_FIX : PIPE_MTE3, [=] {
    for (int64_t r = 0; r < to.rows; ++r)
      for (int64_t c = 0; c < to.columns; ++c) {
        const T more = static_cast<T>(from.at(r, c));
        if constexpr (std::is_integral_v<T>) to.at(r, c) = T(uint32_t(to.at(r, c)) + uint32_t(more));  // wraps
        else to.at(r, c) = T(float(to.at(r, c)) + float(more));
      }
  });
}

// F::of(element, number) for each element.
template <typename F, typename T, typename U, typename N = float>
void each(View<T> d, View<U> a, N number = {}) {
  same_shape(d, a);
  queue(PIPE_V, [=] {
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c) d.at(r, c) = static_cast<T>(F::of(a.at(r, c), number));
  });
}
template <typename F, typename T>
void pairs(View<T> d, View<T> a, View<T> b) {
  same_shape(d, a);
  same_shape(d, b);
  queue(PIPE_V, [=] {
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c) d.at(r, c) = static_cast<T>(F::of(a.at(r, c), b.at(r, c)));
  });
}
template <typename F, typename T>
void with_column(View<T> d, View<T> a, View<T> b) {
  same_shape(d, a);
  if (b.rows != d.rows) emulation::fail("a column of other rows");
  queue(PIPE_V, [=] {
    std::vector<T> column(d.rows);
    for (int64_t r = 0; r < d.rows; ++r) column[r] = b.at(r, 0);
    std::memset(emulation::core->memories[0].data() + 184 * 1024, 0xff, 8 * 1024);
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c) d.at(r, c) = F::of(a.at(r, c), column[r]);
  });
}
template <typename F, typename T>
void with_row(View<T> d, View<T> a, View<T> b) {
  same_shape(d, a);
  if (b.columns != d.columns) emulation::fail("a row of other columns");
  queue(PIPE_V, [=] {
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c) d.at(r, c) = F::of(a.at(r, c), b.at(0, c));
  });
}
// Nothing says whether an extreme is NaN where one of two elements is: with one of the seeds it is the other element.
template <typename T>
bool first_of_nan(T a) { return (a != a) == (emulation::seed != 1); }
template <typename T>
T larger(T a, T b) { return a != a || b != b ? first_of_nan(a) ? a : b : a > b ? a : b; }
template <typename T>
T lesser(T a, T b) { return a != a || b != b ? first_of_nan(a) ? a : b : a < b ? a : b; }

#define PTO_FUNCTION(NAME, EXPRESSION) \
  struct NAME {                        \
    template <typename T, typename N>  \
    static auto of(T a, N b) {         \
      (void)b;                         \
      return EXPRESSION;               \
    }                                  \
  };
#define PTO_TILES(NAME, EXPRESSION)                                                         \
  PTO_FUNCTION(Of##NAME, EXPRESSION)                                                        \
  template <typename D, typename A, typename B>                                             \
  void T##NAME(D d, A x, B y) {                                                             \
    static_assert(row_tile<D> && row_tile<A> && row_tile<B>, "row-major tiles");            \
    pairs<Of##NAME>(d.view(), x.view(), y.view());                                          \
  }                                                                                         \
  template <typename D, typename A, typename B>                                             \
  void TROWEXPAND##NAME(D d, A x, B y) {                                                    \
    static_assert(row_tile<D> && row_tile<A> && !B::rowMajor && B::Cols == 1, "a tile and a column"); \
    with_column<Of##NAME>(d.view(), x.view(), y.view());                                    \
  }                                                                                         \
  template <typename D, typename A, typename B>                                             \
  void TCOLEXPAND##NAME(D d, A x, B y) {                                                    \
    static_assert(row_tile<D> && row_tile<A> && row_tile<B>, "row-major tiles");            \
    with_row<Of##NAME>(d.view(), x.view(), y.view());                                       \
  }
#define PTO_BINARY(NAME, EXPRESSION)                              \
  PTO_TILES(NAME, EXPRESSION)                                     \
  template <typename D, typename A>                               \
  void T##NAME##S(D d, A x, typename A::DType b) {                \
    static_assert(row_tile<D> && row_tile<A>, "row-major tiles"); \
    each<Of##NAME>(d.view(), x.view(), b);                        \
  }
PTO_TILES(DIV, T(a / b))
PTO_BINARY(ADD, T(a + b))
PTO_BINARY(SUB, T(a - b))
PTO_BINARY(MUL, T(a * b))
PTO_BINARY(MAX, larger<T>(a, b))
PTO_BINARY(MIN, lesser<T>(a, b))
PTO_FUNCTION(Second, b)
// The number is written where the result goes, and is then divided by; in place, a tile is multiplied by its reciprocal.
template <typename T>
void quotient(View<T> d, View<T> x, T number, bool over) {
  same_shape(d, x);
  queue(PIPE_V, [=] {
    const bool scaled = !over && d.data() == x.data();
    const T factor = T(1.0f / float(number));
    for (int64_t r = 0; r < d.rows && !scaled; ++r)
      for (int64_t c = 0; c < d.columns; ++c) d.at(r, c) = number;
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c) {
        const T a = x.at(r, c);
        d.at(r, c) = scaled ? T(a * factor) : over ? T(d.at(r, c) / a) : T(a / d.at(r, c));
      }
  });
}
template <typename D, typename A>
void TDIVS(D d, A x, typename A::DType number) {
  static_assert(row_tile<D> && row_tile<A>, "row-major tiles");
  quotient(d.view(), x.view(), number, false);
}
template <typename D, typename A>
void TDIVS(D d, typename A::DType number, A x) {
  static_assert(row_tile<D> && row_tile<A>, "row-major tiles");
  quotient(d.view(), x.view(), number, true);
}
#define PTO_WORDS(NAME, EXPRESSION)               \
  PTO_FUNCTION(Of##NAME, EXPRESSION)              \
  template <typename D, typename A, typename B>   \
  void T##NAME(D d, A x, B y) {                   \
    static_assert(row_tile<D> && row_tile<A> && row_tile<B>, "row-major tiles"); \
    pairs<Of##NAME>(d.view(), x.view(), y.view()); \
  }
PTO_WORDS(AND, T(a & b))
PTO_WORDS(OR, T(a | b))
template <typename T>
void fused(View<T> d, View<T> a, View<T> b, bool onto) {  // d + a * b, or d * a + b
  same_shape(d, a);
  same_shape(d, b);
  queue(PIPE_V, [=] {
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c) {
        const float x = a.at(r, c), y = b.at(r, c), old = d.at(r, c);
        d.at(r, c) = T(onto ? std::fma(x, y, old) : std::fma(old, x, y));
      }
  });
}
template <typename D, typename A, typename B>
void TMULADDDST(D d, A x, B y) {
  static_assert(row_tile<D> && row_tile<A> && row_tile<B>, "row-major tiles");
  fused(d.view(), x.view(), y.view(), true);
}
template <typename D, typename A, typename B>
void TFUSEDMULADD(D d, A x, B y) {
  static_assert(row_tile<D> && row_tile<A> && row_tile<B>, "row-major tiles");
  fused(d.view(), x.view(), y.view(), false);
}
template <typename T>
void axpy(View<T> d, View<T> a, T factor) {
  same_shape(d, a);
  queue(PIPE_V, [=] {
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c) d.at(r, c) = T(std::fma(float(factor), float(a.at(r, c)), float(d.at(r, c))));
  });
}
template <typename D, typename A>
void TAXPY(D d, A x, typename A::DType factor) {
  static_assert(row_tile<D> && row_tile<A>, "row-major tiles");
  axpy(d.view(), x.view(), factor);
}
template <typename T>
void move(View<T> d, View<T> a) {
  same_shape(d, a);
  constexpr int64_t block = 32 / sizeof(T);
  queue(PIPE_V, [=] {
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < (d.columns + block - 1) / block * block; ++c) d.at(r, c) = a.at(r, c);
  });
}
#define PTO_UNARY(NAME, EXPRESSION)    \
  PTO_FUNCTION(Of##NAME, EXPRESSION)   \
  template <typename D, typename A>    \
  void T##NAME(D d, A x) {             \
    static_assert(row_tile<D> && row_tile<A>, "row-major tiles"); \
    each<Of##NAME>(d.view(), x.view()); \
  }
PTO_UNARY(NOT, T(~a))
template <typename D, typename A>
void TMOV(D d, A x) {  // whole blocks of 32 bytes
  static_assert(row_tile<D> && row_tile<A> && D::Cols == A::Cols, "row-major tiles of one width");
  move(d.view(), x.view());
}
PTO_UNARY(EXP, std::exp(float(a)))
PTO_UNARY(LOG, std::log(float(a)))
PTO_UNARY(SQRT, std::sqrt(float(a)))
PTO_UNARY(ABS, std::fabs(float(a)))
PTO_UNARY(RELU, a < 0 ? T(0) : a)
PTO_FUNCTION(Left, T(a << b))
PTO_FUNCTION(Right, T(a >> b))
template <typename D, typename A>
void TSHLS(D d, A x, int b) { each<Left>(d.view(), x.view(), b); }
template <typename D, typename A>
void TSHRS(D d, A x, int b) { each<Right>(d.view(), x.view(), b); }
struct Rounded {
  static double of(double a, RoundMode mode) {
    return mode == RoundMode::CAST_TRUNC ? std::trunc(a) : mode == RoundMode::CAST_FLOOR ? std::floor(a)
        : mode == RoundMode::CAST_CEIL ? std::ceil(a) : std::nearbyint(a);
  }
};
struct Nearest {
  static float of(float a, RoundMode) { return a; }
};
template <typename T>
struct Clamped {  // NaN becomes 0
  static T of(double a, RoundMode mode) {
    using Limits = std::numeric_limits<T>;
    const double whole = Rounded::of(a, mode);
    if (whole >= double(Limits::max())) return Limits::max();
    if (whole <= double(Limits::min())) return Limits::min();
    return whole == whole ? T(whole) : T(0);
  }
};
template <typename T>
struct Low {
  static T of(int64_t a, RoundMode) { return T(uint64_t(a)); }
};
template <typename T, typename U>
constexpr bool narrowing = std::is_integral_v<T> && (std::is_integral_v<U> ? sizeof(T) < sizeof(U) : sizeof(T) <= 2);
template <typename D, typename A>
void TCVT(D d, A x, RoundMode mode, SaturationMode saturation) {
  static_assert(row_tile<D> && row_tile<A>, "row-major tiles");
  using T = typename D::DType;
  using U = typename A::DType;
  static_assert(narrowing<T, U>, "of other conversions nobody asks");
  if (saturation != (std::is_integral_v<U> ? SaturationMode::OFF : SaturationMode::ON)) throw std::runtime_error("TCVT");
  if constexpr (std::is_integral_v<U>) each<Low<T>>(d.view(), x.view(), mode);
  else each<Clamped<T>>(d.view(), x.view(), mode);
}
template <typename D, typename A>
void TCVT(D d, A x, RoundMode mode) {
  static_assert(row_tile<D> && row_tile<A>, "row-major tiles");
  using T = typename D::DType;
  using U = typename A::DType;
  static_assert(!narrowing<T, U>, "numbers that are too large: SaturationMode");
  if constexpr (std::is_integral_v<T> && !std::is_integral_v<U>) each<Clamped<T>>(d.view(), x.view(), mode);
  else if constexpr (std::is_integral_v<T> || std::is_same_v<T, U>) each<Rounded>(d.view(), x.view(), mode);
  else each<Nearest>(d.view(), x.view(), mode);
}
template <typename D>
void TEXPANDS(D d, typename D::DType value) {
  if constexpr (D::loc == TileType::Mat) {  // all of it
    queue(PIPE_MTE2, [d = d.view(), value] {
      for (int64_t k = 0; k < D::Rows * D::Cols; ++k) d.data()[k] = value;
    });
  } else {
    static_assert(row_tile<D>, "row-major tiles");
    static_assert(D::Rows == 1 || D::ValidCol < 0 || D::ValidCol == D::Cols, "rows as if one lay after the other");
    each<Second>(d.view(), d.view(), value);
  }
}
template <typename D, typename S>
void TROWEXPAND(D d, S s) {
  static_assert(row_tile<D> && !S::rowMajor && S::Cols == 1, "a tile and a column");
  with_column<Second>(d.view(), d.view(), s.view());
}
template <typename D, typename S>
void TCOLEXPAND(D d, S s) {
  static_assert(row_tile<D> && row_tile<S>, "row-major tiles");
  with_row<Second>(d.view(), d.view(), s.view());
}

// Masks: one bit per element, and 64 elements at a time.
template <typename T>
void compare(View<uint8_t> d, View<T> x, View<T> y, CmpMode mode) {
  if (std::is_same_v<T, int32_t> && mode != CmpMode::EQ && mode != CmpMode::NE)
    emulation::fail("integers are compared for equality only");
  same_shape(x, y);
  queue(PIPE_V, [=] {
    for (int64_t r = 0; r < x.rows; ++r) {
      for (int64_t c = 0; c < (x.columns + 63) / 64 * 8; ++c) d.at(r, c) = 0;
      for (int64_t c = 0; c < x.columns; ++c) {
        const T a = x.at(r, c), b = y.at(r, c);
        const bool holds = mode == CmpMode::EQ ? a == b : mode == CmpMode::NE ? a != b : mode == CmpMode::LT ? a < b
            : mode == CmpMode::LE ? a <= b : mode == CmpMode::GT ? a > b : a >= b;
        d.at(r, c / 8) |= uint8_t(holds << c % 8);
      }
    }
  });
}
template <typename D, typename A, typename B>
void TCMP(D d, A x, B y, CmpMode mode) {
  static_assert(std::is_same_v<typename D::DType, uint8_t> && row_tile<D> && row_tile<A> && row_tile<B>, "a mask");
  static_assert(D::Cols * 8 >= A::Cols, "room for a row of bits");
  compare(d.view(), x.view(), y.view(), mode);
}
template <typename T>
void compare_number(View<uint8_t> d, View<T> x, T number, CmpMode mode) {
  if (std::is_same_v<T, int32_t> && mode != CmpMode::EQ && mode != CmpMode::NE)
    emulation::fail("integers are compared for equality only");
  queue(PIPE_V, [=] {
    for (int64_t r = 0; r < x.rows; ++r) {
      for (int64_t c = 0; c < (x.columns + 63) / 64 * 8; ++c) d.at(r, c) = 0;
      for (int64_t c = 0; c < x.columns; ++c) {
        const T a = x.at(r, c);
        const bool holds = mode == CmpMode::EQ ? a == number : mode == CmpMode::NE ? a != number
            : mode == CmpMode::LT ? a < number : mode == CmpMode::LE ? a <= number
            : mode == CmpMode::GT ? a > number : a >= number;
        d.at(r, c / 8) |= uint8_t(holds << c % 8);
      }
    }
  });
}
template <typename D, typename A>
void TCMPS(D d, A x, typename A::DType number, CmpMode mode) {
  static_assert(std::is_same_v<typename D::DType, uint8_t> && row_tile<D> && row_tile<A>, "a mask");
  static_assert(D::Cols * 8 >= A::Cols, "room for a row of bits");
  compare_number(d.view(), x.view(), number, mode);
}
template <typename T>
void choose(View<T> d, View<uint8_t> mask, View<T> x, View<T> y, View<T> scratch) {
  same_shape(d, x);
  same_shape(d, y);
  queue(PIPE_V, [=] {
    scratch.ruin();
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c)
        d.at(r, c) = mask.at(r, c / 8) >> c % 8 & 1 ? x.at(r, c) : y.at(r, c);
  });
}
template <typename D, typename M, typename A, typename B, typename S>
void TSEL(D d, M mask, A x, B y, S scratch) {
  static_assert(row_tile<D> && row_tile<M> && row_tile<A> && row_tile<B>, "row-major tiles");
  choose(d.view(), mask.view(), x.view(), y.view(), scratch.view());
}

// Pairs of a key and a number, largest keys first; equal keys stay in order. NaNs have no place.
struct MrgSortExecutedNumList {};
enum class MaskPattern { P0101, P1010 };
struct Pair {
  float key, number;
};
inline void sort_pairs(Pair *first, Pair *last) {
  for (Pair *p = first; p < last; ++p)
    if (p->key != p->key) emulation::fail("a NaN is sorted");
  std::stable_sort(first, last, [](const Pair &a, const Pair &b) { return a.key > b.key; });
}
inline Pair *pairs_of(const View<float> &view) { return reinterpret_cast<Pair *>(view.data()); }
inline void check_sorted(const Pair *first, const Pair *last) {
  for (const Pair *p = first; p + 1 < last; ++p)
    if (!(p[0].key >= p[1].key)) emulation::fail("what is merged is not sorted");
}
template <typename D, typename K, typename N>
void TSORT32(D d, K keys, N numbers) {
  static_assert(row_tile<D> && K::Cols % 32 == 0 && D::Cols == 2 * K::Cols && N::Cols == K::Cols, "runs of 32");
  static_assert(std::is_same_v<typename D::DType, float> && std::is_same_v<typename N::DType, uint32_t>, "types");
  queue(PIPE_V, [to = d.view(), from = keys.view(), with = numbers.view()] {
    Pair *out = pairs_of(to);
    for (int64_t c = 0; c < from.columns; ++c) {
      out[c].key = from.at(0, c);
      std::memcpy(&out[c].number, &with.at(0, c), 4);
    }
    for (int64_t c = 0; c < from.columns; c += 32) sort_pairs(out + c, out + c + 32);
  });
}
template <typename D, typename S>
void TMRGSORT(D d, S s, uint32_t length) {
  static_assert(D::Rows == 1 && D::Cols == S::Cols, "one row");
  if (length % 64 || D::Cols % (4 * length)) emulation::fail("runs that are merged");
  queue(PIPE_V, [to = d.view(), from = s.view(), length] {
    const int64_t run = length / 2, count = from.columns / 2;
    for (int64_t c = 0; c < count; c += run) check_sorted(pairs_of(from) + c, pairs_of(from) + c + run);
    std::memcpy(to.data(), from.data(), count * sizeof(Pair));
    for (int64_t c = 0; c < count; c += 4 * run) sort_pairs(pairs_of(to) + c, pairs_of(to) + c + 4 * run);
  });
}
template <typename D, typename T, typename... S>
void merge(D d, T scratch, S... lists) {
  static_assert(D::Rows == 1 && T::Cols >= D::Cols && (S::Cols + ...) == D::Cols, "lists");
  queue(PIPE_V, [to = d.view(), work = scratch.view(), from = std::vector<View<float>>{lists.view()...}] {
    work.ruin();
    Pair *out = pairs_of(to);
    for (const View<float> &one : from) {
      check_sorted(pairs_of(one), pairs_of(one) + one.columns / 2);
      out = std::copy(pairs_of(one), pairs_of(one) + one.columns / 2, out);
    }
    sort_pairs(pairs_of(to), out);
  });
}
template <typename D, typename T, typename A, typename B, bool E>
void TMRGSORT(D &d, MrgSortExecutedNumList &, T &t, A &a, B &b) { merge(d, t, a, b); }
template <typename D, typename T, typename A, typename B, typename C, bool E>
void TMRGSORT(D &d, MrgSortExecutedNumList &, T &t, A &a, B &b, C &c) { merge(d, t, a, b, c); }
template <typename D, typename T, typename A, typename B, typename C, typename F, bool E>
void TMRGSORT(D &d, MrgSortExecutedNumList &, T &t, A &a, B &b, C &c, F &f) {
  merge(d, t, a, b, c, f);
}
template <typename D, typename S, typename I, typename T>
void TGATHER(D d, S s, I places, T scratch) {
  static_assert(D::Rows == 1 && std::is_same_v<typename I::DType, typename T::DType>, "a row");
  queue(PIPE_V, [to = d.view(), from = s.view(), at = places.view(), work = scratch.view()] {
    work.ruin();
    for (int64_t c = 0; c < to.columns; ++c) {
      if (at.at(0, c) < 0 || at.at(0, c) >= from.size) emulation::fail("a place outside");
      to.at(0, c) = from.at(0, at.at(0, c));
    }
  });
}
template <typename D, typename S, MaskPattern P>
void TGATHER(D d, S s) {
  static_assert(P == MaskPattern::P1010 && D::Rows == 1 && 2 * D::Cols == S::Cols && D::ValidCol == D::Cols, "odd ones");
  queue(PIPE_V, [to = d.view(), from = s.view()] {
    for (int64_t c = 0; c < to.columns; ++c) std::memcpy(&to.at(0, c), &from.at(0, 2 * c + 1), 4);
  });
}

template <typename F, typename T>
void reduce_rows(View<T> d, View<T> x, View<T> scratch) {
  if (d.rows != x.rows) emulation::fail("a column of other rows");
  queue(PIPE_V, [=] {
    std::vector<T> out(x.rows);
    for (int64_t r = 0; r < x.rows; ++r) {
      T sum = x.at(r, 0);
      for (int64_t c = 1; c < x.columns; ++c) sum = F::of(sum, x.at(r, c));
      out[r] = sum;
    }
    scratch.ruin();
    for (int64_t r = 0; r < x.rows; ++r) d.at(r, 0) = out[r];
  });
}
template <typename F, typename T>
void reduce_columns(View<T> d, View<T> x) {
  if (d.columns != x.columns) emulation::fail("a row of other columns");
  queue(PIPE_V, [=] {
    for (int64_t c = 0; c < x.columns; ++c) {
      T sum = x.at(0, c);
      for (int64_t r = 1; r < x.rows; ++r) sum = F::of(sum, x.at(r, c));
      d.at(0, c) = sum;
    }
  });
}
#define PTO_REDUCTION(NAME, FUNCTION)                                                                              \
  template <typename D, typename A, typename S>                                                                    \
  void TROW##NAME(D d, A x, S scratch) {                                                                           \
    static_assert(row_tile<A> && D::Rows == A::Rows && (!D::rowMajor || D::Rows == 1), "a column from rows");      \
    static_assert(S::Rows >= A::Rows && S::Cols >= (A::Cols < 64 ? A::Cols : A::Cols < 128 ? 64 : A::Cols / 128 * 64), \
                  "room for sums of pairs of 64 elements");                                                        \
    reduce_rows<FUNCTION>(d.view(), x.view(), scratch.view());                                                     \
  }                                                                                                                \
  template <typename D, typename A>                                                                                \
  void TCOL##NAME(D d, A x) {                                                                                      \
    static_assert(row_tile<A> && row_tile<D> && D::Cols == A::Cols, "a row from columns");                         \
    reduce_columns<FUNCTION>(d.view(), x.view());                                                                  \
  }
PTO_REDUCTION(SUM, OfADD)
PTO_REDUCTION(PROD, OfMUL)
PTO_REDUCTION(MAX, OfMAX)
PTO_REDUCTION(MIN, OfMIN)

template <typename D, typename T, int Descending>
void TCI(D d, T start) {  // the scalar unit writes at once
  static_assert(Descending == 0 && std::is_same_v<T, typename D::DType>, "upwards, in the tile's type");
  static_assert(D::Rows == 1, "one row");
  for (int64_t c = 0; c < d.columns; ++c) d.view().at(0, c) = start + typename D::DType(c);
}
template <typename T>
void turn(View<T> d, View<T> x, View<T> scratch) {
  queue(PIPE_V, [=] {
    scratch.ruin();
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c) d.at(r, c) = x.at(c, r);
  });
}
template <typename D, typename A, typename S>
void TTRANS(D d, A x, S scratch) { turn(d.view(), x.view(), scratch.view()); }

// A tile in L0A: fractals of 16 rows and one block of 32 bytes, as many in a row as its valid columns take. Columns of f32
// that are loaded as rows come two blocks at a time, and the multiplier has to be told so.
template <typename T>
int64_t blocks_of_row(const View<T> &a, bool in_pairs) {
  constexpr int64_t block = 32 / sizeof(T);
  return sizeof(T) == 4 && in_pairs ? (a.columns + 15) / 16 * 2 : (a.columns + block - 1) / block;
}
template <typename T>
T &left_at(const View<T> &a, int64_t blocks, int64_t r, int64_t c) {
  constexpr int64_t block = 32 / sizeof(T);
  return a.data()[((r / 16 * blocks + c / block) * 16 + r % 16) * block + c % block];
}
template <bool Left, typename T>
void part(View<T> d, View<T> s, int64_t row, int64_t column, bool in_pairs) {
  queue(PIPE_MTE1, [=] {
    const int64_t blocks = blocks_of_row(d, in_pairs);
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c)
        (Left ? left_at(d, blocks, r, c) : d.at(r, c)) = s.at(row + r, column + c);
  });
}
template <typename D, typename S>
void TEXTRACT(D d, S s, int64_t row, int64_t column) {
  static_assert(S::loc == TileType::Mat && (D::loc == TileType::Left || D::loc == TileType::Right), "from L1 to L0");
  if (row + d.rows > S::Rows || column + d.columns > S::Cols) emulation::fail("a part of a tile");
  part<D::loc == TileType::Left>(d.view(), s.view(), row, column, d.aligned || S::turned);
}
template <typename T, typename U>
void product(View<T> d, View<U> a, View<U> b, bool in_pairs, bool add) {
  if (a.columns != b.rows || d.rows != a.rows || d.columns != b.columns) emulation::fail("valid extents of a product");
  queue(PIPE_M, [=] {
    const int64_t blocks = blocks_of_row(a, in_pairs);
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c) {
        T sum = add ? d.at(r, c) : T(0);
        for (int64_t k = 0; k < a.columns; ++k) sum += T(left_at(a, blocks, r, k)) * T(b.at(k, c));
        d.at(r, c) = sum;
      }
  });
}
template <typename D, typename A, typename B>
void TMATMUL(D d, A a, B b) {
  static_assert(A::Rows == D::Rows && A::Cols == B::Rows && B::Cols == D::Cols, "a product of matrices");
  product(d.view(), a.view(), b.view(), a.aligned || b.aligned, false);
}
template <typename D, typename A, typename B>
void TMATMUL_ACC(D d, D, A a, B b) {
  static_assert(A::Rows == D::Rows && A::Cols == B::Rows && B::Cols == D::Cols, "a product of matrices");
  product(d.view(), a.view(), b.view(), a.aligned || b.aligned, true);
}
}  // namespace pto
