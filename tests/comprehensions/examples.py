# SPDX-License-Identifier: MIT
"""More operators: the worked examples of the literature in one comprehension each, and small ones together."""
# ruff: noqa: F821, UP037, E741  (indices are names that nothing defines; sizes are text)

from __future__ import annotations

import pto_jit.language as pl
from tests.comprehensions.operators import OPERATORS, ints, operator


@operator("""def worked(float(I) B, float(I) C, float(T) K, float(J) D, float(L) E, int32(P) at, float c)
        -> (shifted, reverted, halves, pooled, summed, stencil, table, looked, filled) {
    shifted(i) = B(i) + C(i - 2)
    reverted(i) = B(10 - i)
    halves(i) = B(2*i)
    pooled(i) = B(2*i) + B(2*i + 1)
    summed(i) +=! B(2*i + k) where k in 0:2
    stencil(i) +=! B(i + t) * K(t)
    table(i, j) = K(i) * E(i + j) * D(j)
    looked(i) = B(max(min(at(i), I - 1), 0))
    filled(i) = c where exists B(i)
}""", B=(9,), C=(9,), K=(3,), D=(4,), E=(6,), at=ints(12, 5), c=2.5)  # fmt: skip
def worked(B: pl.f32["I"], C: pl.f32["I"], K: pl.f32["T"], D: pl.f32["J"], E: pl.f32["L"], at: pl.i32["P"], c: pl.f32):
    shifted[i] = B[i] + C[i - 2]
    reverted[i] = B[10 - i]
    halves[i] = B[2 * i]
    pooled[i] = B[2 * i] + B[2 * i + 1]
    k = pl.axis(0, 2)
    summed[i] = pl.sum(B[2 * i + k])
    stencil[i] = pl.sum(B[i + t] * K[t])
    table[i, j] = K[i] * E[i + j] * D[j]
    looked[i] = B[max(min(at[i], I - 1), 0)]
    with pl.exists(B[i]):
        filled[i] = c
    return shifted, reverted, halves, pooled, summed, stencil, table, looked, filled


@operator("""def small(float(N) X, float(N, M) Y, float(A, B, C) Z, float(A, B, C, D) W, float s, float r)
        -> (relu_, tanh_, abs_, cos_, scaled, one, two, three, four, zero, total, squares, plain) {
    relu_(i) = fmax(X(i), 0)
    tanh_(i) = tanh(X(i))
    abs_(i) = fabs(X(i))
    cos_(i) = cos(X(i))
    scaled(i, j) = Y(i, j) * s
    one(i) = X(i)
    two(i, j) = Y(i, j)
    three(a, b, c) = Z(a, b, c)
    four(a, b, c, d) = W(a, b, c, d)
    zero = r
    total(i) +=! Y(i, j)
    squares(i) +=! Y(i, j) * Y(i, j)
    plain(i) +=! X(i) * 2
}""", X=(11,), Y=(11, 5), Z=(2, 3, 4), W=(2, 3, 4, 3), s=0.5, r=3.0)  # fmt: skip
def small(X: pl.f32["N"], Y: pl.f32["N", "M"], Z: pl.f32["A", "B", "C"], W: pl.f32["A", "B", "C", "D"], s: pl.f32,
          r: pl.f32):  # fmt: skip
    relu_[i] = pl.maximum(X[i], 0)
    tanh_[i] = pl.tanh(X[i])
    abs_[i] = abs(X[i])
    cos_[i] = pl.cos(X[i])
    scaled[i, j] = Y[i, j] * s
    one[i] = X[i]
    two[i, j] = Y[i, j]
    three[a, b, c] = Z[a, b, c]
    four[a, b, c, d] = W[a, b, c, d]
    zero[()] = r
    total[i] = pl.sum(Y[i, j])
    squares[i] = pl.sum(Y[i, j] * Y[i, j])
    plain[i] = pl.sum(X[i] * 2)
    return relu_, tanh_, abs_, cos_, scaled, one, two, three, four, zero, total, squares, plain


@operator("""def mlp4(float(B, M) I, float(N, M) W1, float(O, N) W2, float(P, O) W3, float(Q, P) W4, float(Q) b4) -> (O4) {
    O1(b, n) +=! I(b, m) * W1(n, m)
    O1(b, n) = fmax(O1(b, n), 0)
    O2(b, o) +=! O1(b, n) * W2(o, n)
    O2(b, o) = fmax(O2(b, o), 0)
    O3(b, p) +=! O2(b, o) * W3(p, o)
    O3(b, p) = fmax(O3(b, p), 0)
    O4(b, q) +=! O3(b, p) * W4(q, p)
    O4(b, q) = O4(b, q) + b4(q)
}""", I=(4, 7), W1=(6, 7), W2=(5, 6), W3=(4, 5), W4=(2, 4), b4=(2,))  # fmt: skip
def mlp4(I: pl.f32["B", "M"], W1: pl.f32["N", "M"], W2: pl.f32["O", "N"], W3: pl.f32["P", "O"], W4: pl.f32["Q", "P"],
         b4: pl.f32["Q"]):  # fmt: skip
    O1[b, n] = pl.sum(I[b, m] * W1[n, m])
    O1[b, n] = pl.maximum(O1[b, n], 0)
    O2[b, o] = pl.sum(O1[b, n] * W2[o, n])
    O2[b, o] = pl.maximum(O2[b, o], 0)
    O3[b, p] = pl.sum(O2[b, o] * W3[p, o])
    O3[b, p] = pl.maximum(O3[b, p], 0)
    O4[b, q] = pl.sum(O3[b, p] * W4[q, p])
    O4[b, q] = O4[b, q] + b4[q]
    return O4


@operator("""def lut_fc(float(E, D) LUT, int32(B, L) at, float(B, M) X, float(N, M) W) -> (looked, made, both) {
    looked(b, d) +=! LUT(at(b, r_l), d)
    made(b, n) +=! X(b, r_m) * W(n, r_m)
    both(m, j) = (j < D) ? looked(m, j) : made(m, j - D) where m in 0:B, j in 0:D + N
}""", LUT=(10, 6), at=ints(9, 4, 5), X=(4, 7), W=(3, 7))  # fmt: skip
def lut_fc(LUT: pl.f32["E", "D"], at: pl.i32["B", "L"], X: pl.f32["B", "M"], W: pl.f32["N", "M"]):
    looked[b, d] = pl.sum(LUT[at[b, r_l], d])
    made[b, n] = pl.sum(X[b, r_m] * W[n, r_m])
    m, j = pl.axis(0, B), pl.axis(0, D + N)
    both[m, j] = looked[m, j] if j < D else made[m, j - D]
    return looked, made, both


@operator("""def normalised(float(N, G, D, H, W) I, float(G, D) gamma, float(G, D) beta, float(N, G) mean, float(N, G) var)
        -> (O) {
    O(n, g, d, h, w) = gamma(g, d) * (I(n, g, d, h, w) - mean(n, g)) * rsqrt(var(n, g) + 0.00001) + beta(g, d)
}""", I=(2, 2, 3, 4, 5), gamma=(2, 3), beta=(2, 3), mean=(2, 2), var=(2, 2))  # fmt: skip
def normalised(I: pl.f32["N", "G", "D", "H", "W"], gamma: pl.f32["G", "D"], beta: pl.f32["G", "D"],
               mean: pl.f32["N", "G"], var: pl.f32["N", "G"]):  # fmt: skip
    O[n, g, d, h, w] = gamma[g, d] * (I[n, g, d, h, w] - mean[n, g]) * pl.rsqrt(var[n, g] + 0.00001) + beta[g, d]
    return O


@operator("""def perforated2(float(N, C, H, W) I, int32(N, L) idx, float(O, C, KH, KW) K) -> (R) {
    R(n, o, l) +=! I(n, r_c, idx(n, l) + r_kh, idx(n, l) + r_kw) * K(o, r_c, r_kh, r_kw)
}""", I=(2, 3, 9, 8), idx=ints(5, 2, 4), K=(3, 3, 3, 2))  # fmt: skip
def perforated2(I: pl.f32["N", "C", "H", "W"], idx: pl.i32["N", "L"], K: pl.f32["O", "C", "KH", "KW"]):
    R[n, o, l] = pl.sum(I[n, r_c, idx[n, l] + r_kh, idx[n, l] + r_kw] * K[o, r_c, r_kh, r_kw])
    return R


__all__ = ["OPERATORS"]
