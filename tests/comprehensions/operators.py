# SPDX-License-Identifier: MIT
"""Operators of machine learning in both forms: `(name, text, Python form, argument shapes or values)`."""
# ruff: noqa: F821, UP037, E741  (indices are names that nothing defines; sizes are text)

from __future__ import annotations

from typing import Any

import pto_jit as pto
import pto_jit.language as pl

OPERATORS: list[tuple[str, str, Any, dict[str, Any]]] = []


def operator(text: str, **arguments: Any) -> Any:
    """Put a Python form into the list, with the text of the same and what to try it on."""

    def add(fn: Any) -> Any:
        OPERATORS.append((fn.__name__, text, fn, arguments))
        return fn

    return add


def ints(high: int, *shape: int) -> tuple[str, int, tuple[int, ...]]:
    """Whole numbers from 0 to high."""
    return ("ints", high, shape)


@operator("def matmul(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, r) * B(r, n) }", A=(5, 7), B=(7, 6))
def matmul(A: pl.f32["M", "K"], B: pl.f32["K", "N"]):
    C[m, n] = pl.sum(A[m, r] * B[r, n])
    return C


@operator("def tmm(float(M, K) A, float(N, K) B) -> (C) { C(m, n) +=! A(m, r) * B(n, r) }", A=(5, 7), B=(6, 7))
def tmm(A: pl.f32["M", "K"], B: pl.f32["N", "K"]):
    C[m, n] = pl.sum(A[m, r] * B[n, r])
    return C


@operator("def lefttmm(double(K, M) A, double(K, N) B) -> (C) { C(m, n) +=! A(r, m) * B(r, n) }", A=(7, 5), B=(7, 6))
def lefttmm(A: pl.f64["K", "M"], B: pl.f64["K", "N"]):
    C[m, n] = pl.sum(A[r, m] * B[r, n])
    return C


@operator("def bmm(float(B, N, M) X, float(B, M, K) Y) -> (Z) { Z(b, n, k) +=! X(b, n, r) * Y(b, r, k) }",
          X=(3, 4, 5), Y=(3, 5, 6))  # fmt: skip
def bmm(X: pl.f32["B", "N", "M"], Y: pl.f32["B", "M", "K"]):
    Z[b, n, k] = pl.sum(X[b, n, r] * Y[b, r, k])
    return Z


@operator("def tmv(float(M, N) A, float(M) x) -> (y) { y(n) +=! A(r, n) * x(r) }", A=(5, 7), x=(5,))
def tmv(A: pl.f32["M", "N"], x: pl.f32["M"]):
    y[n] = pl.sum(A[r, n] * x[r])
    return y


@operator("def mv(float(M, N) A, float(N) x) -> (y) { y(m) +=! A(m, r) * x(r) }", A=(5, 7), x=(7,))
def mv(A: pl.f32["M", "N"], x: pl.f32["N"]):
    y[m] = pl.sum(A[m, r] * x[r])
    return y


@operator("def dot(float(N) x, float(N) y) -> (s) { s +=! x(i) * y(i) }", x=(300,), y=(300,))
def dot(x: pl.f32["N"], y: pl.f32["N"]):
    s[()] = pl.sum(x[i] * y[i])
    return s


@operator("""def tensordot(float(N, C1, C2, H, W) I0, float(N, C2, C3, H, W) I1) -> (O) {
    O(n, c1, c3, h, w) +=! I0(n, c1, r, h, w) * I1(n, r, c3, h, w)
}""", I0=(2, 3, 4, 5, 6), I1=(2, 4, 2, 5, 6))  # fmt: skip
def tensordot(I0: pl.f32["N", "C1", "C2", "H", "W"], I1: pl.f32["N", "C2", "C3", "H", "W"]):
    O[n, c1, c3, h, w] = pl.sum(I0[n, c1, r, h, w] * I1[n, r, c3, h, w])
    return O


@operator("""def fcrelu(float(B, M) I, float(N, M) W, float(N) bias) -> (O) {
    O(b, n) +=! I(b, r) * W(n, r)
    O(b, n) = O(b, n) + bias(n)
    O(b, n) = fmax(O(b, n), 0)
}""", I=(4, 6), W=(5, 6), bias=(5,))  # fmt: skip
def fcrelu(I: pl.f32["B", "M"], W: pl.f32["N", "M"], bias: pl.f32["N"]):
    O[b, n] = pl.sum(I[b, r] * W[n, r])
    O[b, n] = O[b, n] + bias[n]
    O[b, n] = pl.maximum(O[b, n], 0)
    return O


@operator("""def mlp3(float(B, M) I, float(N, M) W1, float(N) b1, float(P, N) W2, float(P) b2, float(Q, P) W3,
                      float(Q) b3) -> (O1, O2, O3) {
    O1(b, n) +=! I(b, m) * W1(n, m)
    O1(b, n) = fmax(O1(b, n) + b1(n), 0)
    O2(b, p) +=! O1(b, n) * W2(p, n)
    O2(b, p) = fmax(O2(b, p) + b2(p), 0)
    O3(b, q) +=! O2(b, p) * W3(q, p)
    O3(b, q) = fmax(O3(b, q) + b3(q), 0)
}""", I=(4, 7), W1=(6, 7), b1=(6,), W2=(5, 6), b2=(5,), W3=(3, 5), b3=(3,))  # fmt: skip
def mlp3(I: pl.f32["B", "M"], W1: pl.f32["N", "M"], b1: pl.f32["N"], W2: pl.f32["P", "N"], b2: pl.f32["P"],
         W3: pl.f32["Q", "P"], b3: pl.f32["Q"]):  # fmt: skip
    O1[b, n] = pl.sum(I[b, m] * W1[n, m])
    O1[b, n] = pl.maximum(O1[b, n] + b1[n], 0)
    O2[b, p] = pl.sum(O1[b, n] * W2[p, n])
    O2[b, p] = pl.maximum(O2[b, p] + b2[p], 0)
    O3[b, q] = pl.sum(O2[b, p] * W3[q, p])
    O3[b, q] = pl.maximum(O3[b, q] + b3[q], 0)
    return O1, O2, O3


@operator("def conv1d(float(N) B, float(T) K) -> (A) { A(i) +=! B(i + k) * K(k) }", B=(20,), K=(4,))
def conv1d(B: pl.f32["N"], K: pl.f32["T"]):
    A[i] = pl.sum(B[i + k] * K[k])
    return A


@operator("""def conv2d(float(N, C, H, W) I, float(O, C, KH, KW) K, float(O) B) -> (R) {
    R(n, o, h, w) +=! I(n, r_c, h + r_kh, w + r_kw) * K(o, r_c, r_kh, r_kw)
    R(n, o, h, w) = R(n, o, h, w) + B(o)
}""", I=(2, 3, 7, 8), K=(4, 3, 3, 2), B=(4,))  # fmt: skip
def conv2d(I: pl.f32["N", "C", "H", "W"], K: pl.f32["O", "C", "KH", "KW"], B: pl.f32["O"]):
    R[n, o, h, w] = pl.sum(I[n, r_c, h + r_kh, w + r_kw] * K[o, r_c, r_kh, r_kw])
    R[n, o, h, w] = R[n, o, h, w] + B[o]
    return R


@operator("""def conv2d_last(float(N, H, W, C) I, float(KH, KW, C, O) K) -> (R) {
    R(n, h, w, o) +=! I(n, h + r_kh, w + r_kw, r_c) * K(r_kh, r_kw, r_c, o)
}""", I=(2, 7, 8, 3), K=(3, 3, 3, 4))  # fmt: skip
def conv2d_last(I: pl.f32["N", "H", "W", "C"], K: pl.f32["KH", "KW", "C", "O"]):
    R[n, h, w, o] = pl.sum(I[n, h + r_kh, w + r_kw, r_c] * K[r_kh, r_kw, r_c, o])
    return R


@operator("""def conv2d_strided(float(N, C, H, W) I, float(O, C, KH, KW) K) -> (R) {
    R(n, o, h, w) +=! I(n, r_c, 2*h + r_kh, 3*w + 2*r_kw) * K(o, r_c, r_kh, r_kw)
}""", I=(2, 5, 9, 11), K=(4, 5, 3, 2))  # fmt: skip
def conv2d_strided(I: pl.f32["N", "C", "H", "W"], K: pl.f32["O", "C", "KH", "KW"]):
    R[n, o, h, w] = pl.sum(I[n, r_c, 2 * h + r_kh, 3 * w + 2 * r_kw] * K[o, r_c, r_kh, r_kw])
    return R


@operator("""def conv2d_grouped(float(N, G, C, H, W) I, float(G, F, C, KH, KW) K, float(G, F) B) -> (R) {
    R(n, g, f, h, w) +=! I(n, g, r_c, h + r_kh, w + r_kw) * K(g, f, r_c, r_kh, r_kw)
    R(n, g, f, h, w) = R(n, g, f, h, w) + B(g, f)
}""", I=(2, 2, 5, 6, 7), K=(2, 3, 5, 3, 3), B=(2, 3))  # fmt: skip
def conv2d_grouped(I: pl.f32["N", "G", "C", "H", "W"], K: pl.f32["G", "F", "C", "KH", "KW"], B: pl.f32["G", "F"]):
    R[n, g, f, h, w] = pl.sum(I[n, g, r_c, h + r_kh, w + r_kw] * K[g, f, r_c, r_kh, r_kw])
    R[n, g, f, h, w] = R[n, g, f, h, w] + B[g, f]
    return R


@operator("""def conv2d_grad_kernel(float(N, C, H, W) I, float(N, O, P, Q) d_R) -> (d_K) {
    d_K(o, c, kh, kw) +=! I(r_n, c, r_h + kh, r_w + kw) * d_R(r_n, o, r_h, r_w)
}""", I=(2, 3, 7, 8), d_R=(2, 4, 5, 6))  # fmt: skip
def conv2d_grad_kernel(I: pl.f32["N", "C", "H", "W"], d_R: pl.f32["N", "O", "P", "Q"]):
    d_K[o, c, kh, kw] = pl.sum(I[r_n, c, r_h + kh, r_w + kw] * d_R[r_n, o, r_h, r_w])
    return d_K


@operator("""def conv2d_grad_input(float(O, C, KH, KW) K, float(N, O, P, Q) d_R) -> (d_I) {
    d_I(n, c, h, w) +=! d_R(n, r_o, h - r_kh, w - r_kw) * K(r_o, c, r_kh, r_kw)
}""", K=(4, 5, 2, 3), d_R=(2, 4, 6, 7))  # fmt: skip
def conv2d_grad_input(K: pl.f32["O", "C", "KH", "KW"], d_R: pl.f32["N", "O", "P", "Q"]):
    d_I[n, c, h, w] = pl.sum(d_R[n, r_o, h - r_kh, w - r_kw] * K[r_o, c, r_kh, r_kw])
    return d_I


@operator("""def padded_conv(float(H, W) I, float(KH, KW) K) -> (R) {
    R(h, w) +=! pad(I(h + kh - 1, w + kw - 1), 0.0) * K(kh, kw) where exists I(h, w)
}""", I=(7, 8), K=(3, 3))  # fmt: skip
def padded_conv(I: pl.f32["H", "W"], K: pl.f32["KH", "KW"]):
    with pl.exists(I[h, w]):
        R[h, w] = pl.sum(pl.pad(I[h + kh - 1, w + kw - 1], 0.0) * K[kh, kw])
    return R


@operator("""def mobilenet(float(C, H, W) I, float(C, KH, KW) W1, float(C) B1, float(O, C) W2) -> (O1, O2) {
    O1(c, h, w) +=! I(c, h + r_kh, w + r_kw) * W1(c, r_kh, r_kw)
    O1(c, h, w) = fmax(O1(c, h, w) + B1(c), 0)
    O2(o, h, w) +=! O1(r_c, h, w) * W2(o, r_c)
}""", I=(5, 7, 8), W1=(5, 3, 3), B1=(5,), W2=(4, 5))  # fmt: skip
def mobilenet(I: pl.f32["C", "H", "W"], W1: pl.f32["C", "KH", "KW"], B1: pl.f32["C"], W2: pl.f32["O", "C"]):
    O1[c, h, w] = pl.sum(I[c, h + r_kh, w + r_kw] * W1[c, r_kh, r_kw])
    O1[c, h, w] = pl.maximum(O1[c, h, w] + B1[c], 0)
    O2[o, h, w] = pl.sum(O1[r_c, h, w] * W2[o, r_c])
    return O1, O2


@operator("""def maxpool(float(B, C, H, W) X) -> (O) {
    O(b, c, h, w) max=! X(b, c, 2*h + kh, 2*w + kw) where kh in 0:2, kw in 0:2
}""", X=(2, 3, 7, 8))  # fmt: skip
def maxpool(X: pl.f32["B", "C", "H", "W"]):
    kh, kw = pl.axis(0, 2), pl.axis(0, 2)
    O[b, c, h, w] = pl.max(X[b, c, 2 * h + kh, 2 * w + kw])
    return O


@operator("""def avgpool(float(B, C, H, W) X) -> (O) {
    O(b, c, h, w) +=! X(b, c, 2*h + kh, 2*w + kw) where kh in 0:2, kw in 0:3
    O(b, c, h, w) = O(b, c, h, w) / (2 * 3)
}""", X=(2, 3, 7, 9))  # fmt: skip
def avgpool(X: pl.f32["B", "C", "H", "W"]):
    kh, kw = pl.axis(0, 2), pl.axis(0, 3)
    O[b, c, h, w] = pl.sum(X[b, c, 2 * h + kh, 2 * w + kw])
    O[b, c, h, w] = O[b, c, h, w] / (2 * 3)
    return O


@operator("def prodconv(float(H, W) I) -> (O) { O(h, w) *=! I(h + kh, w + kw) where kh in 0:2, kw in 0:2 }", I=(5, 6))
def prodconv(I: pl.f32["H", "W"]):
    kh, kw = pl.axis(0, 2), pl.axis(0, 2)
    O[h, w] = pl.prod(I[h + kh, w + kw])
    return O


@operator("""def softmax(float(N, D) I) -> (O, mx, s) {
    mx(n) max=! I(n, d)
    s(n) +=! exp(I(n, d) - mx(n))
    O(n, d) = exp(I(n, d) - mx(n)) / s(n)
}""", I=(5, 37))  # fmt: skip
def softmax(I: pl.f32["N", "D"]):
    mx[n] = pl.max(I[n, d])
    s[n] = pl.sum(pl.exp(I[n, d] - mx[n]))
    O[n, d] = pl.exp(I[n, d] - mx[n]) / s[n]
    return O, mx, s


@operator("""def moments(float(N, K) I) -> (mean, var) {
    mean(n) +=! I(n, r)
    mean(n) = mean(n) / K
    var(n) +=! I(n, r) * I(n, r)
    var(n) = var(n) / K - mean(n) * mean(n)
}""", I=(5, 33))  # fmt: skip
def moments(I: pl.f32["N", "K"]):
    mean[n] = pl.sum(I[n, r])
    mean[n] = mean[n] / K
    var[n] = pl.sum(I[n, r] * I[n, r])
    var[n] = var[n] / K - mean[n] * mean[n]
    return mean, var


@operator("""def layernorm(float(N, D) I, float(D) g, float(D) b) -> (O) {
    mean(n) +=! I(n, d)
    mean(n) = mean(n) / D
    centred(n, d) = I(n, d) - mean(n)
    var(n) +=! centred(n, d) * centred(n, d)
    var(n) = var(n) / D
    O(n, d) = centred(n, d) * rsqrt(var(n) + 0.00001) * g(d) + b(d)
}""", I=(5, 33), g=(33,), b=(33,))  # fmt: skip
def layernorm(I: pl.f32["N", "D"], g: pl.f32["D"], b: pl.f32["D"]):
    mean[n] = pl.sum(I[n, d])
    mean[n] = mean[n] / D
    centred[n, d] = I[n, d] - mean[n]
    var[n] = pl.sum(centred[n, d] * centred[n, d])
    var[n] = var[n] / D
    O[n, d] = centred[n, d] * pl.rsqrt(var[n] + 0.00001) * g[d] + b[d]
    return O


@operator("""def groupnorm(float(N, G, D, H, W) I, float(G, D) gamma, float(G, D) beta) -> (O, mean, var) {
    mean(n, g) +=! I(n, g, r_d, r_h, r_w)
    var(n, g) +=! I(n, g, r_d, r_h, r_w) * I(n, g, r_d, r_h, r_w)
    mean(n, g) = mean(n, g) / (D * H * W)
    var(n, g) = var(n, g) / (D * H * W) - mean(n, g) * mean(n, g)
    O(n, g, d, h, w) = gamma(g, d) * (I(n, g, d, h, w) - mean(n, g)) * rsqrt(var(n, g) + 0.00001) + beta(g, d)
}""", I=(2, 2, 3, 4, 5), gamma=(2, 3), beta=(2, 3))  # fmt: skip
def groupnorm(I: pl.f32["N", "G", "D", "H", "W"], gamma: pl.f32["G", "D"], beta: pl.f32["G", "D"]):
    mean[n, g] = pl.sum(I[n, g, r_d, r_h, r_w])
    var[n, g] = pl.sum(I[n, g, r_d, r_h, r_w] * I[n, g, r_d, r_h, r_w])
    mean[n, g] = mean[n, g] / (D * H * W)
    var[n, g] = var[n, g] / (D * H * W) - mean[n, g] * mean[n, g]
    O[n, g, d, h, w] = gamma[g, d] * (I[n, g, d, h, w] - mean[n, g]) * pl.rsqrt(var[n, g] + 0.00001) + beta[g, d]
    return O, mean, var


@operator("""def batchnorm(float momentum, float eps, float(N, C, H, W) I, float(C) rMeanIn, float(C) rVarIn)
        -> (O, rMeanOut, rVarOut, mean, centred, variance) {
    mean(c) +=! I(nn, c, hh, ww)
    mean(c) = mean(c) / (N * H * W)
    rMeanOut(c) = (1.0 - momentum) * rMeanIn(c) + momentum * mean(c)
    centred(n, c, h, w) = I(n, c, h, w) - mean(c)
    variance(c) +=! centred(nn, c, hh, ww) * centred(nn, c, hh, ww)
    variance(c) = variance(c) / (N * H * W)
    rVarOut(c) = (1.0 - momentum) * rVarIn(c) + momentum * variance(c)
    O(n, c, h, w) = centred(n, c, h, w) * rsqrt(variance(c) + eps)
}""", momentum=0.1, eps=1e-5, I=(2, 3, 4, 5), rMeanIn=(3,), rVarIn=(3,))  # fmt: skip
def batchnorm(momentum: pl.f32, eps: pl.f32, I: pl.f32["N", "C", "H", "W"], rMeanIn: pl.f32["C"],
              rVarIn: pl.f32["C"]):  # fmt: skip
    mean[c] = pl.sum(I[nn, c, hh, ww])
    mean[c] = mean[c] / (N * H * W)
    rMeanOut[c] = (1.0 - momentum) * rMeanIn[c] + momentum * mean[c]
    centred[n, c, h, w] = I[n, c, h, w] - mean[c]
    variance[c] = pl.sum(centred[nn, c, hh, ww] * centred[nn, c, hh, ww])
    variance[c] = variance[c] / (N * H * W)
    rVarOut[c] = (1.0 - momentum) * rVarIn[c] + momentum * variance[c]
    O[n, c, h, w] = centred[n, c, h, w] * pl.rsqrt(variance[c] + eps)
    return O, rMeanOut, rVarOut, mean, centred, variance


@operator("""def kronecker3(float(D0, N0) W0, float(D1, N1) W1, float(D2, N2) W2, float(M, N0, N1, N2) X)
        -> (Y, XW1, XW2) {
    XW2(m, n0, n1, d2) +=! X(m, n0, n1, r_n2) * W2(d2, r_n2)
    XW1(m, n0, d1, d2) +=! XW2(m, n0, r_n1, d2) * W1(d1, r_n1)
    Y(m, d0, d1, d2) +=! XW1(m, r_n0, d1, d2) * W0(d0, r_n0)
}""", W0=(3, 4), W1=(5, 6), W2=(2, 7), X=(3, 4, 6, 7))  # fmt: skip
def kronecker3(W0: pl.f32["D0", "N0"], W1: pl.f32["D1", "N1"], W2: pl.f32["D2", "N2"], X: pl.f32["M", "N0", "N1", "N2"]):
    XW2[m, n0, n1, d2] = pl.sum(X[m, n0, n1, r_n2] * W2[d2, r_n2])
    XW1[m, n0, d1, d2] = pl.sum(XW2[m, n0, r_n1, d2] * W1[d1, r_n1])
    Y[m, d0, d1, d2] = pl.sum(XW1[m, r_n0, d1, d2] * W0[d0, r_n0])
    return Y, XW1, XW2


@operator("def lut(float(E, D) LUT, int32(B, L) I) -> (O) { O(b, d) +=! LUT(I(b, r_l), d) }", LUT=(10, 6), I=ints(9, 4, 5))
def lut(LUT: pl.f32["E", "D"], I: pl.i32["B", "L"]):
    O[b, d] = pl.sum(LUT[I[b, r_l], d])
    return O


@operator("""def lut2(float(E1, D) L1, int32(B, S1) I1, float(E2, D) L2, int32(B, S2) I2) -> (O1, O2) {
    O1(b, d) +=! L1(I1(b, r), d)
    O2(b, d) +=! L2(I2(b, r), d)
}""", L1=(10, 6), I1=ints(9, 4, 5), L2=(7, 6), I2=ints(6, 4, 3))  # fmt: skip
def lut2(L1: pl.f32["E1", "D"], I1: pl.i32["B", "S1"], L2: pl.f32["E2", "D"], I2: pl.i32["B", "S2"]):
    O1[b, d] = pl.sum(L1[I1[b, r], d])
    O2[b, d] = pl.sum(L2[I2[b, r], d])
    return O1, O2


@operator("def clamped(float(J) B, int32(I) C) -> (A) { A(i) = B(max(min(C(i), J - 1), 0)) }", B=(5,), C=ints(12, 9))
def clamped(B: pl.f32["J"], C: pl.i32["I"]):
    A[i] = B[max(min(C[i], J - 1), 0)]
    return A


@operator("""def cosine(float(M, N) A, float(M, N) B) -> (O) {
    ab(m) +=! A(m, n) * B(m, n)
    aa(m) +=! A(m, n) * A(m, n)
    bb(m) +=! B(m, n) * B(m, n)
    O(m) = ab(m) / (sqrt(aa(m)) * sqrt(bb(m)))
}""", A=(4, 30), B=(4, 30))  # fmt: skip
def cosine(A: pl.f32["M", "N"], B: pl.f32["M", "N"]):
    ab[m] = pl.sum(A[m, n] * B[m, n])
    aa[m] = pl.sum(A[m, n] * A[m, n])
    bb[m] = pl.sum(B[m, n] * B[m, n])
    O[m] = ab[m] / (pl.sqrt(aa[m]) * pl.sqrt(bb[m]))
    return O


@operator("""def argmin(float(N) S) -> (v, idx) {
    v min=! S(r)
    idx min=! (S(r) == v) ? r : N
}""", S=(300,))  # fmt: skip
def argmin(S: pl.f32["N"]):
    v[()] = pl.min(S[r])
    idx[()] = pl.min(r if S[r] == v[()] else N)
    return v, idx


@operator("def pq_distance(float(M, K) L, uint8(N, M) Codes) -> (S) { S(n) +=! L(r_m, int32(Codes(n, r_m))) }",
          L=(6, 16), Codes=ints(15, 9, 6))  # fmt: skip
def pq_distance(L: pl.f32["M", "K"], Codes: pl.u8["N", "M"]):
    S[n] = pl.sum(L[r_m, pl.i32(Codes[n, r_m])])
    return S


@operator("""def wavenet(float(B, R, F) Data, float(S, R) Fw, float(S, R) Gw, float(R, S) Rw, float(K, S) Sw)
        -> (Res, Skip, F1, G1, Z) {
    F1(b, s, rf) +=! Data(b, r, rf) * Fw(s, r) + ((rf - 2 >= 0) ? Data(b, r, rf - 2) : float(0)) where rf in 0:F
    G1(b, s, rf) +=! Data(b, r, rf) * Gw(s, r)
    Z(b, s, rf) = tanh(F1(b, s, rf)) * (1 / (1 + exp(0 - G1(b, s, rf))))
    Res(b, r, rf) +=! Z(b, s, rf) * Rw(r, s)
    Res(b, r, rf) = Res(b, r, rf) + Data(b, r, rf)
    Skip(b, k, rf) +=! Z(b, s, rf) * Sw(k, s)
}""", Data=(2, 4, 9), Fw=(5, 4), Gw=(5, 4), Rw=(4, 5), Sw=(3, 5))  # fmt: skip
def wavenet(Data: pl.f32["B", "R", "F"], Fw: pl.f32["S", "R"], Gw: pl.f32["S", "R"], Rw: pl.f32["R", "S"],
            Sw: pl.f32["K", "S"]):  # fmt: skip
    t = pl.axis(0, F)
    F1[b, s, t] = pl.sum(Data[b, r, t] * Fw[s, r] + (Data[b, r, t - 2] if t - 2 >= 0 else pl.f32(0)))
    G1[b, s, rf] = pl.sum(Data[b, r, rf] * Gw[s, r])
    Z[b, s, rf] = pl.tanh(F1[b, s, rf]) * (1 / (1 + pl.exp(0 - G1[b, s, rf])))
    Res[b, r, rf] = pl.sum(Z[b, s, rf] * Rw[r, s])
    Res[b, r, rf] = Res[b, r, rf] + Data[b, r, rf]
    Skip[b, k, rf] = pl.sum(Z[b, s, rf] * Sw[k, s])
    return Res, Skip, F1, G1, Z


@operator("def prefix_sum(float(N) X) -> (S) { S(i) +=! (k <= i) ? X(k) : 0.0 where i in 0:N }", X=(50,))
def prefix_sum(X: pl.f32["N"]):
    i = pl.axis(0, N)
    S[i] = pl.sum(X[k] if k <= i else 0.0)
    return S


@operator("def transpose(float(A, B, C) X) -> (O) { O(c, a, b) = X(a, b, c) }", X=(3, 4, 5))
def transpose(X: pl.f32["A", "B", "C"]):
    O[c, a, b] = X[a, b, c]
    return O


@operator("""def concat(float(M, N) A, float(M, K) B) -> (O) {
    O(m, j) = (j < N) ? A(m, j) : B(m, j - N) where m in 0:M, j in 0:N + K
}""", A=(3, 4), B=(3, 5))  # fmt: skip
def concat(A: pl.f32["M", "N"], B: pl.f32["M", "K"]):
    m, j = pl.axis(0, M), pl.axis(0, N + K)
    O[m, j] = A[m, j] if j < N else B[m, j - N]
    return O


@operator("def cast(float(M, N) A, int32 four) -> (O) { O(m, n) = int32(A(m, n)) + four }", A=(4, 5), four=4)
def cast(A: pl.f32["M", "N"], four: pl.i32):
    O[m, n] = pl.i32(A[m, n]) + four
    return O


@operator("def gather(float(N, W) I, int32(L) idx) -> (O) { O(l, w) = I(idx(l), w) where l in 0:L }",
          I=(8, 5), idx=ints(7, 6))  # fmt: skip
def gather(I: pl.f32["N", "W"], idx: pl.i32["L"]):
    l = pl.axis(0, L)
    O[l, w] = I[idx[l], w]
    return O


@operator("def permute(float(B, N) I, int32(N) Idx) -> (O) { O(b, n) = I(b, Idx(n)) }", I=(3, 6), Idx=ints(5, 6))
def permute(I: pl.f32["B", "N"], Idx: pl.i32["N"]):
    O[b, n] = I[b, Idx[n]]
    return O


@operator("""def masked(float(H, W) I, uint8(P, Q) mask, float(KH, KW) K) -> (O) {
    O(h, w) +=! (mask(h, w) == 0) ? float(0) : I(h + kh, w + kw) * K(kh, kw)
}""", I=(7, 8), mask=ints(1, 5, 6), K=(3, 3))  # fmt: skip
def masked(I: pl.f32["H", "W"], mask: pl.u8["P", "Q"], K: pl.f32["KH", "KW"]):
    O[h, w] = pl.sum(pl.f32(0) if mask[h, w] == 0 else I[h + kh, w + kw] * K[kh, kw])
    return O


@operator("def sigmoid(float(N) X) -> (Y) { Y(n) = 1 / (1 + exp(-X(n))) }", X=(40,))
def sigmoid(X: pl.f32["N"]):
    Y[n] = 1 / (1 + pl.exp(-X[n]))
    return Y


@operator("def hadamard(float(A, B) X, float(A, B) Y, float(A, B) Z) -> (O) { O(a, b) = X(a, b) * Y(a, b) * Z(a, b) }",
          X=(4, 5), Y=(4, 5), Z=(4, 5))  # fmt: skip
def hadamard(X: pl.f32["A", "B"], Y: pl.f32["A", "B"], Z: pl.f32["A", "B"]):
    O[a, b] = X[a, b] * Y[a, b] * Z[a, b]
    return O


@operator("def reverted(float(I) B) -> A { A(i) = B(10 - i) }", B=(7,))
def reverted(B: pl.f32["I"]):
    A[i] = B[10 - i]
    return A


@operator("def average_pool_2(float(I) B) -> A { A(i) = B(2*i) + B(2*i + 1) }", B=(9,))
def average_pool_2(B: pl.f32["I"]):
    A[i] = B[2 * i] + B[2 * i + 1]
    return A


@operator("def constant_fill(float(N) A, float c) -> B { B(i) = c where exists A(i) }", A=(4,), c=2.5)
def constant_fill(A: pl.f32["N"], c: pl.f32):
    with pl.exists(A[i]):
        B[i] = c
    return B


@operator("def colsum(float(M, N) A) -> (S, T) { S(n) +=! A(m, n) T +=! A(m, n) }", A=(30, 17))
def colsum(A: pl.f32["M", "N"]):
    S[n] = pl.sum(A[m, n])
    T[()] = pl.sum(A[m, n])
    return S, T


@operator("""def attention(float(L, D) Q, float(P, D) K, float(P, E) V) -> (O) {
    S(l, p) +=! Q(l, d) * K(p, d)
    mx(l) max=! S(l, p)
    W(l, p) = exp(S(l, p) - mx(l))
    z(l) +=! W(l, p)
    O(l, e) +=! W(l, p) * V(p, e)
    O(l, e) = O(l, e) / z(l)
}""", Q=(5, 8), K=(6, 8), V=(6, 7))  # fmt: skip
def attention(Q: pl.f32["L", "D"], K: pl.f32["P", "D"], V: pl.f32["P", "E"]):
    S[l, p] = pl.sum(Q[l, d] * K[p, d])
    mx[l] = pl.max(S[l, p])
    W[l, p] = pl.exp(S[l, p] - mx[l])
    z[l] = pl.sum(W[l, p])
    O[l, e] = pl.sum(W[l, p] * V[p, e])
    O[l, e] = O[l, e] / z[l]
    return O


__all__ = ["OPERATORS", "pto"]
