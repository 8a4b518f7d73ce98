// SPDX-License-Identifier: MIT
// Instructions that compute values from values, each lane for itself.
#include <cfenv>
#include <cmath>

#include "machine.h"

namespace ptx {

int64_t integer(uint64_t bits, Type type) {
  switch (type) {
    case Type::pred: return bits & 1;
    case Type::u8: return uint8_t(bits);
    case Type::s8: return int8_t(bits);
    case Type::s16: return int16_t(bits);
    case Type::s32: return int32_t(bits);
    case Type::u64:
    case Type::s64:
    case Type::f64: return int64_t(bits);
    default: return bytes_of(type) == 2 ? uint16_t(bits) : uint32_t(bits);
  }
}

uint64_t truncated(uint64_t value, Type type) {
  if (type == Type::pred) return value & 1;
  const int bits = 8 * bytes_of(type);
  return bits == 64 ? value : value & ((uint64_t(1) << bits) - 1);
}

namespace {

// f16, for which not every compiler has a type.
double of_half(uint64_t bits) {
  const int exponent = int(bits >> 10 & 31), fraction = int(bits & 1023);
  const double size = exponent == 31 ? (fraction == 0 ? INFINITY : NAN)
                      : exponent == 0 ? std::ldexp(fraction, -24)
                                      : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -size : size;
}
uint64_t to_half(double value) {
  const uint64_t sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::fabs(value);
  if (size >= 65520) return sign | 0x7C00;
  const int exponent = size < std::ldexp(1.0, -14) ? -14 : std::ilogb(size);  // smaller ones have one place for all
  const uint64_t places = uint64_t(std::nearbyint(std::ldexp(size, 10 - exponent)));
  return sign | (places < 1024 ? places : (uint64_t(exponent + 15) << 10) + (places - 1024));
}

}  // namespace

double number_of(uint64_t bits, Type type) {
  switch (type) {
    case Type::f16: return of_half(bits);
    case Type::bf16: return as<float>(bits << 16);
    case Type::f32: return as<float>(bits);
    case Type::f64: return as<double>(bits);
    default: throw Fault{"no float"};
  }
}

uint64_t rounded(double value, Type type) {
  if (type == Type::f64) return bits_of(value);
  if (std::isnan(value)) return type == Type::f32 ? 0x7FFFFFFF : 0x7FFF;  // the only one that is made
  if (type == Type::f32) return bits_of(float(value));
  if (type == Type::f16) return to_half(value);
  // bf16 is what is written of f32; to odd first, so that a number is rounded once.
  float near = float(value);
  if (double(near) != value && std::isfinite(near)) {
    if (std::fabs(double(near)) > std::fabs(value)) near = as<float>(bits_of(near) - 1);
    near = as<float>(bits_of(near) | 1);
  }
  const uint64_t bits = bits_of(near);
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF;
}

namespace {

// Sets how the processor rounds, while it lives.
class Rounded {
 public:
  explicit Rounded(Rounding rounding) {
    std::fesetround(rounding == Rounding::zero   ? FE_TOWARDZERO
                    : rounding == Rounding::down ? FE_DOWNWARD
                    : rounding == Rounding::up   ? FE_UPWARD
                                                 : FE_TONEAREST);
  }
  Rounded(const Rounded&) = delete;
  ~Rounded() { std::fesetround(FE_TONEAREST); }
};

double to_integer(double value, Rounding rounding, const Instruction& i) {
  switch (rounding) {
    case Rounding::nearest_integer: return std::nearbyint(value);
    case Rounding::zero_integer: return std::trunc(value);
    case Rounding::down_integer: return std::floor(value);
    case Rounding::up_integer: return std::ceil(value);
    default: fault(i, "not simulated");
  }
}

float flushed(float value) { return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value; }

// min and max by IEEE 754: a NaN is passed over, or kept (".NaN"), and -0 is less than +0.
template <class T>
T extreme(T x, T y, bool least, bool keeps) {
  if (std::isnan(x) || std::isnan(y)) return keeps ? T(NAN) : std::isnan(x) ? y : x;
  if (x == y) return std::signbit(x) == least ? x : y;
  return (x < y) == least ? x : y;
}

enum Operation { ADD, SUB, MUL, DIV, MIN, MAX, REM };

template <class T>
T computed(Operation operation, volatile T x, volatile T y, const Instruction& i) {
  switch (operation) {
    case ADD: return x + y;
    case SUB: return x - y;
    case MUL: return x * y;
    case DIV: return x / y;
    case MIN:
    case MAX: return extreme<T>(x, y, operation == MIN, i.has("NaN"));
    default: fault(i, "not simulated");
  }
}

uint64_t high(uint64_t x, uint64_t y, Type type) {
  if (type == Type::s64) return uint64_t(__int128(int64_t(x)) * int64_t(y) >> 64);
  if (type == Type::u64) return uint64_t((unsigned __int128)(x)*y >> 64);
  return is_signed(type) ? uint64_t(int64_t(x) * int64_t(y) >> 8 * bytes_of(type)) : x * y >> 8 * bytes_of(type);
}

uint64_t computed(Operation operation, uint64_t x, uint64_t y, const Instruction& i) {
  const bool with_sign = is_signed(i.type());
  const bool less = with_sign ? int64_t(x) < int64_t(y) : x < y;
  switch (operation) {
    case ADD: return x + y;
    case SUB: return x - y;
    case MUL: return i.has("hi") ? high(x, y, i.type()) : x * y;
    case MIN: return less ? x : y;
    case MAX: return less ? y : x;
    default: break;
  }
  // Nothing is said of division by zero; it gives ones, and the dividend as the rest.
  if (y == 0) return operation == DIV ? ~uint64_t(0) : x;
  if (!with_sign) return operation == DIV ? x / y : x % y;
  if (int64_t(y) == -1) return operation == DIV ? 0 - x : 0;  // of the least number, too
  return operation == DIV ? uint64_t(int64_t(x) / int64_t(y)) : uint64_t(int64_t(x) % int64_t(y));
}

float finished(float value, const Instruction& i) {
  if (i.has("sat")) value = std::isnan(value) ? 0.0f : std::fmin(1.0f, std::fmax(0.0f, value));
  return i.has("ftz") ? flushed(value) : value;
}
uint64_t bits_of_f32(float value) { return std::isnan(value) ? 0x7FFFFFFF : bits_of(value); }
float f32(uint64_t bits, bool flush) { return flush ? flushed(as<float>(bits)) : as<float>(bits); }

// Products in twice the width: the register has all of it.
uint64_t width(uint64_t value, const Instruction& i) {
  return i.has("wide") ? bytes_of(i.type()) == 2 ? uint32_t(value) : value : truncated(value, i.type());
}

template <Operation operation>
void compute(Warp& warp, const Instruction& i, Lanes lanes) {
  const Type type = i.type();
  const bool flush = i.has("ftz");
  const Rounded mode(i.rounding);
  for_each(lanes, [&](int lane) {
    const uint64_t x = warp.operand(i, 0, lane), y = warp.operand(i, 1, lane);
    if (type == Type::f32)
      warp.set(i, lane, bits_of_f32(finished(computed<float>(operation, f32(x, flush), f32(y, flush), i), i)));
    else if (type == Type::f64)
      warp.set(i, lane, rounded(computed<double>(operation, as<double>(x), as<double>(y), i), type));
    else if (is_float(type))
      fault(i, "not simulated");
    else
      warp.set(i, lane, width(computed(operation, uint64_t(integer(x, type)), uint64_t(integer(y, type)), i), i));
  });
}

void multiply_add(Warp& warp, const Instruction& i, Lanes lanes) {
  const Type type = i.type();
  const bool flush = i.has("ftz");
  const Rounded mode(i.rounding);
  for_each(lanes, [&](int lane) {
    const uint64_t x = warp.operand(i, 0, lane), y = warp.operand(i, 1, lane), z = warp.operand(i, 2, lane);
    if (type == Type::f32) {
      const volatile float a = f32(x, flush), b = f32(y, flush), c = f32(z, flush);
      warp.set(i, lane, bits_of_f32(finished(std::fma(a, b, c), i)));
    } else if (type == Type::f64) {
      const volatile double a = as<double>(x), b = as<double>(y), c = as<double>(z);
      warp.set(i, lane, rounded(std::fma(a, b, c), type));
    } else if (is_float(type)) {
      fault(i, "not simulated");
    } else {
      const uint64_t product = computed(MUL, uint64_t(integer(x, type)), uint64_t(integer(y, type)), i);
      warp.set(i, lane, width(product + z, i));
    }
  });
}

template <class Body>
void each(Warp& warp, const Instruction& i, Lanes lanes, Body body) {  // of one operand, or two
  for_each(lanes, [&](int lane) {
    const uint64_t y = i.operands.size() > 1 ? warp.operand(i, 1, lane) : 0;
    warp.set(i, lane, truncated(body(warp.operand(i, 0, lane), y), i.type()));
  });
}

uint64_t sign_of(Type type) { return uint64_t(1) << (8 * bytes_of(type) - 1); }

void negate(Warp& warp, const Instruction& i, Lanes lanes) {
  const Type type = i.type();
  each(warp, i, lanes, [&](uint64_t x, uint64_t) { return is_float(type) ? x ^ sign_of(type) : 0 - x; });
}
void absolute(Warp& warp, const Instruction& i, Lanes lanes) {
  const Type type = i.type();
  each(warp, i, lanes, [&](uint64_t x, uint64_t) {
    return is_float(type) ? x & ~sign_of(type) : integer(x, type) < 0 ? 0 - x : x;
  });
}
void copy_sign(Warp& warp, const Instruction& i, Lanes lanes) {
  const uint64_t sign = sign_of(i.type());
  each(warp, i, lanes, [&](uint64_t x, uint64_t y) { return (x & sign) | (y & ~sign); });
}
void bitwise_and(Warp& warp, const Instruction& i, Lanes lanes) {
  each(warp, i, lanes, [](uint64_t x, uint64_t y) { return x & y; });
}
void bitwise_or(Warp& warp, const Instruction& i, Lanes lanes) {
  each(warp, i, lanes, [](uint64_t x, uint64_t y) { return x | y; });
}
void bitwise_xor(Warp& warp, const Instruction& i, Lanes lanes) {
  each(warp, i, lanes, [](uint64_t x, uint64_t y) { return x ^ y; });
}
void bitwise_not(Warp& warp, const Instruction& i, Lanes lanes) {
  each(warp, i, lanes, [](uint64_t x, uint64_t) { return ~x; });
}
void shift_left(Warp& warp, const Instruction& i, Lanes lanes) {
  const uint32_t bits = 8 * bytes_of(i.type());
  each(warp, i, lanes, [&](uint64_t x, uint64_t y) { return uint32_t(y) < bits ? x << uint32_t(y) : 0; });
}
void shift_right(Warp& warp, const Instruction& i, Lanes lanes) {
  const Type type = i.type();
  const uint32_t bits = 8 * bytes_of(type);
  each(warp, i, lanes, [&](uint64_t x, uint64_t y) {
    const uint32_t by = uint32_t(y);
    if (is_signed(type)) return uint64_t(integer(x, type) >> (by < bits ? by : bits - 1));
    return by < bits ? truncated(x, type) >> by : 0;
  });
}
void population(Warp& warp, const Instruction& i, Lanes lanes) {
  for_each(lanes, [&](int lane) { warp.set(i, lane, __builtin_popcountll(truncated(warp.operand(i, 0, lane), i.type()))); });
}
void leading_zeros(Warp& warp, const Instruction& i, Lanes lanes) {
  const int bits = 8 * bytes_of(i.type());
  for_each(lanes, [&](int lane) {
    const uint64_t x = truncated(warp.operand(i, 0, lane), i.type());
    warp.set(i, lane, x == 0 ? bits : __builtin_clzll(x) - (64 - bits));
  });
}
void reverse_bits(Warp& warp, const Instruction& i, Lanes lanes) {
  const int bits = 8 * bytes_of(i.type());
  each(warp, i, lanes, [&](uint64_t x, uint64_t) {
    uint64_t out = 0;
    for (int k = 0; k < bits; ++k) out |= (x >> k & 1) << (bits - 1 - k);
    return out;
  });
}

// 1/x and the like, some of which PTX lets be wrong by a few units in the last place; here they are rounded to nearest.
enum Function { RECIPROCAL, ROOT, EXP2 };
template <Function function>
void evaluate(Warp& warp, const Instruction& i, Lanes lanes) {
  const auto exactly = [](double x) {
    return function == RECIPROCAL ? 1 / x : function == ROOT ? std::sqrt(x) : std::exp2(x);
  };
  if (i.type() == Type::f64 && i.has("approx")) fault(i, "not simulated");
  for_each(lanes, [&](int lane) {
    const uint64_t x = warp.operand(i, 0, lane);
    if (i.type() == Type::f64)
      warp.set(i, lane, rounded(exactly(as<double>(x)), Type::f64));
    else
      warp.set(i, lane, bits_of_f32(finished(float(exactly(f32(x, i.has("ftz")))), i)));
  });
}

template <class T>
bool compared(const std::string& how, T x, T y, const Instruction& i) {
  if (how == "eq") return x == y;
  if (how == "ne") return x != y;
  if (how == "lt" || how == "lo") return x < y;
  if (how == "le" || how == "ls") return x <= y;
  if (how == "gt" || how == "hi") return x > y;
  if (how == "ge" || how == "hs") return x >= y;
  fault(i, "not simulated");
}
bool compared(const Instruction& i, uint64_t x, uint64_t y) {
  const Type type = i.type();
  const std::string& how = i.words[0];
  if (!is_float(type))
    return is_signed(type) ? compared<int64_t>(how, integer(x, type), integer(y, type), i)
                           : compared<uint64_t>(how, truncated(x, type), truncated(y, type), i);
  const double a = number_of(x, type), b = number_of(y, type);
  const bool unordered = std::isnan(a) || std::isnan(b);
  if (how == "num" || how == "nan") return unordered == (how == "nan");
  if (how.size() == 3 && how[2] == 'u') return unordered || compared<double>(how.substr(0, 2), a, b, i);
  return !unordered && compared<double>(how, a, b, i);
}
void compare(Warp& warp, const Instruction& i, Lanes lanes) {
  const auto joined = [&i](bool x, bool y) { return i.has("and") ? x && y : i.has("or") ? x || y : i.has("xor") ? x != y : x; };
  for_each(lanes, [&](int lane) {
    const bool is = compared(i, warp.operand(i, 0, lane), warp.operand(i, 1, lane));
    const bool with = i.operands.size() > 2 && warp.operand(i, 2, lane) & 1;
    warp.set(i, lane, joined(is, with));
    if (i.also >= 0) warp.value(i.also, lane) = joined(!is, with);
  });
}
void select(Warp& warp, const Instruction& i, Lanes lanes) {
  for_each(lanes, [&](int lane) {
    warp.set(i, lane, truncated(warp.operand(i, warp.operand(i, 2, lane) & 1 ? 0 : 1, lane), i.type()));
  });
}

void move(Warp& warp, const Instruction& i, Lanes lanes) {
  const std::vector<int>& from = i.operands[0];
  const int bits = 8 * bytes_of(i.type()) / int(std::max(i.to.size(), from.size()));
  const uint64_t part = bits == 64 ? ~uint64_t(0) : (uint64_t(1) << bits) - 1;
  for_each(lanes, [&](int lane) {
    uint64_t value = from.size() == 1 ? warp.value(from[0], lane) : 0;
    for (size_t k = 0; from.size() > 1 && k < from.size(); ++k) value |= (warp.value(from[k], lane) & part) << bits * k;
    for (size_t k = 0; i.to.size() > 1 && k < i.to.size(); ++k) warp.value(i.to[k], lane) = value >> bits * k & part;
    if (i.to.size() == 1) warp.set(i, lane, truncated(value, i.type()));
  });
}

uint64_t to_float(double value, Type from, Type to, const Instruction& i) {
  if (i.rounding >= Rounding::nearest_integer) value = to_integer(value, i.rounding, i);
  if (to != Type::f32) return rounded(value, to);
  const Rounded mode(i.rounding);
  const volatile double exact = from == Type::f32 && i.has("ftz") ? flushed(float(value)) : value;
  return bits_of_f32(finished(float(exact), i));
}
uint64_t to_integer(double value, Type to, const Instruction& i) {
  const int bits = 8 * bytes_of(to);
  if (std::isnan(value)) return bits == 64 ? uint64_t(1) << 63 : 0;
  value = to_integer(value, i.rounding, i);
  const double most = std::ldexp(1.0, is_signed(to) ? bits - 1 : bits), least = is_signed(to) ? -most : 0;
  const uint64_t greatest = is_signed(to) ? sign_of(to) - 1 : truncated(~uint64_t(0), to);
  if (value >= most) return greatest;
  if (value < least) return is_signed(to) ? sign_of(to) : 0;
  return truncated(is_signed(to) ? uint64_t(int64_t(value)) : uint64_t(value), to);
}
void convert(Warp& warp, const Instruction& i, Lanes lanes) {
  const Type from = i.type(), to = i.types[i.types.size() - 2];
  for_each(lanes, [&](int lane) {
    const uint64_t x = warp.operand(i, 0, lane);
    uint64_t out;
    if (to == Type::f16x2 || to == Type::bf16x2) {  // the first operand becomes the upper half
      const Type half = to == Type::f16x2 ? Type::f16 : Type::bf16;
      out = rounded(as<float>(x), half) << 16 | rounded(as<float>(warp.operand(i, 1, lane)), half);
    } else if (is_float(from)) {
      const double value = number_of(x, from);
      out = from == to && i.rounding == Rounding::none && !i.has("sat") && !i.has("ftz") ? truncated(x, to)
            : is_float(to) ? to_float(value, from, to, i) : to_integer(value, to, i);
    } else if (is_float(to)) {
      const int64_t value = integer(x, from);
      if (i.rounding != Rounding::nearest) fault(i, "not simulated");
      if (to == Type::f32)
        out = bits_of(from == Type::u64 ? float(uint64_t(value)) : float(value));
      else
        out = rounded(from == Type::u64 ? double(uint64_t(value)) : double(value), to);
    } else if (i.has("sat")) {
      fault(i, "not simulated");
    } else {
      out = truncated(uint64_t(integer(x, from)), to);
      // A wider register has the sign of what is narrower.
      if (is_signed(to) && bytes_of(to) < 4) out = truncated(uint64_t(integer(out, to)), Type::u32);
    }
    warp.set(i, lane, out);
  });
}

void permute(Warp& warp, const Instruction& i, Lanes lanes) {
  if (!i.words.empty()) fault(i, "not simulated");
  for_each(lanes, [&](int lane) {
    const uint64_t bytes = uint32_t(warp.operand(i, 0, lane)) | warp.operand(i, 1, lane) << 32;
    uint32_t out = 0;
    for (int k = 0; k < 4; ++k) {
      const uint32_t choice = uint32_t(warp.operand(i, 2, lane)) >> 4 * k & 15;
      const uint8_t byte = uint8_t(bytes >> 8 * (choice & 7));
      out |= uint32_t(choice & 8 ? (byte & 0x80 ? 0xFF : 0) : byte) << 8 * k;
    }
    warp.set(i, lane, out);
  });
}
uint64_t field(uint32_t at, uint32_t length, uint32_t bits) {
  uint64_t out = 0;
  for (uint32_t k = at; k < at + length && k < bits; ++k) out |= uint64_t(1) << k;
  return out;
}
void insert(Warp& warp, const Instruction& i, Lanes lanes) {
  for_each(lanes, [&](int lane) {
    const uint32_t at = warp.operand(i, 2, lane) & 255, length = warp.operand(i, 3, lane) & 255;
    const uint64_t mask = field(at, length, 8 * bytes_of(i.type()));
    const uint64_t moved = at < 64 ? warp.operand(i, 0, lane) << at : 0;
    warp.set(i, lane, truncated((warp.operand(i, 1, lane) & ~mask) | (moved & mask), i.type()));
  });
}
void funnel_shift(Warp& warp, const Instruction& i, Lanes lanes) {
  for_each(lanes, [&](int lane) {
    const uint32_t y = uint32_t(warp.operand(i, 2, lane)), by = i.has("clamp") ? std::min(y, 32u) : y & 31;
    const uint64_t both = uint32_t(warp.operand(i, 0, lane)) | warp.operand(i, 1, lane) << 32;
    warp.set(i, lane, uint32_t(i.has("l") ? both << by >> 32 : both >> by));
  });
}
void dot_of_bytes(Warp& warp, const Instruction& i, Lanes lanes) {
  const auto byte = [](uint64_t x, int k, Type type) { return int(integer(x >> 8 * k, type == Type::s32 ? Type::s8 : Type::u8)); };
  for_each(lanes, [&](int lane) {
    uint32_t sum = uint32_t(warp.operand(i, 2, lane));
    for (int k = 0; k < 4; ++k)
      sum += uint32_t(byte(warp.operand(i, 0, lane), k, i.types[0]) * byte(warp.operand(i, 1, lane), k, i.types[1]));
    warp.set(i, lane, sum);
  });
}

}  // namespace

const std::map<std::string, Opcode> VALUES = {
    {"add", {compute<ADD>}}, {"sub", {compute<SUB>}}, {"mul", {compute<MUL>}}, {"div", {compute<DIV>}},
    {"min", {compute<MIN>}}, {"max", {compute<MAX>}}, {"rem", {compute<REM>}}, {"fma", {multiply_add}},
    {"mad", {multiply_add}}, {"neg", {negate}}, {"abs", {absolute}}, {"copysign", {copy_sign}},
    {"and", {bitwise_and}}, {"or", {bitwise_or}}, {"xor", {bitwise_xor}}, {"not", {bitwise_not}},
    {"shl", {shift_left}}, {"shr", {shift_right}}, {"popc", {population}}, {"clz", {leading_zeros}},
    {"brev", {reverse_bits}}, {"rcp", {evaluate<RECIPROCAL>}}, {"sqrt", {evaluate<ROOT>}},
    {"ex2", {evaluate<EXP2>}}, {"setp", {compare}}, {"selp", {select}}, {"mov", {move}}, {"cvt", {convert}},
    {"prmt", {permute}}, {"bfi", {insert}}, {"shf", {funnel_shift}}, {"dp4a", {dot_of_bytes}},
};

}  // namespace ptx
