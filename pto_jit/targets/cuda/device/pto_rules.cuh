// SPDX-License-Identifier: MIT
// Rules of reductions: how two values become one, and what changes nothing.
#pragma once

#include "pto_common.cuh"

namespace pto {

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

}  // namespace pto
