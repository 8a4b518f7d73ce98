# SPDX-License-Identifier: MIT
"""Written from the table of instructions by `python -m pto_jit.builder.stubs`."""

from typing import Any, Self

from pto_jit.ir.isa import Instruction

Number = int | float | bool

class Methods:
    def _instruction(self, row: Instruction, arguments: dict[str, Any]) -> Self: ...
    def add(self, dst: str, a: str, b: str) -> Self:
        """dst = a + b."""
    def adds(self, dst: str, a: str, b: str | Number) -> Self:
        """dst = a + b, b a scalar."""
    def sub(self, dst: str, a: str, b: str) -> Self:
        """dst = a - b."""
    def subs(self, dst: str, a: str | Number, b: str | Number) -> Self:
        """dst = a - b, one of them a scalar."""
    def mul(self, dst: str, a: str, b: str) -> Self:
        """dst = a * b."""
    def muls(self, dst: str, a: str, b: str | Number) -> Self:
        """dst = a * b, b a scalar."""
    def div(self, dst: str, a: str, b: str) -> Self:
        """dst = a / b; of integers rounded towards zero."""
    def divs(self, dst: str, a: str | Number, b: str | Number) -> Self:
        """dst = a / b; of integers rounded towards zero, one of them a scalar."""
    def max(self, dst: str, a: str, b: str) -> Self:
        """dst = the larger of a and b, NaN if one is NaN."""
    def maxs(self, dst: str, a: str, b: str | Number) -> Self:
        """dst = the larger of a and b, NaN if one is NaN, b a scalar."""
    def min(self, dst: str, a: str, b: str) -> Self:
        """dst = the smaller of a and b, NaN if one is NaN."""
    def mins(self, dst: str, a: str, b: str | Number) -> Self:
        """dst = the smaller of a and b, NaN if one is NaN, b a scalar."""
    def rem(self, dst: str, a: str, b: str) -> Self:
        """dst = a % b with the sign of b."""
    def rems(self, dst: str, a: str, b: str | Number) -> Self:
        """dst = a % b with the sign of b, b a scalar."""
    def fmod(self, dst: str, a: str, b: str) -> Self:
        """dst = the remainder of a / b with the sign of a."""
    def fmods(self, dst: str, a: str, b: str | Number) -> Self:
        """dst = the remainder of a / b with the sign of a, b a scalar."""
    def pow(self, dst: str, a: str, b: str) -> Self:
        """dst = a ** b."""
    def pows(self, dst: str, a: str, b: str | Number) -> Self:
        """dst = a ** b, b a scalar."""
    def and_(self, dst: str, a: str, b: str) -> Self:
        """dst = bitwise a and b."""
    def ands(self, dst: str, a: str, b: str | Number) -> Self:
        """dst = bitwise a and b, b a scalar."""
    def or_(self, dst: str, a: str, b: str) -> Self:
        """dst = bitwise a or b."""
    def ors(self, dst: str, a: str, b: str | Number) -> Self:
        """dst = bitwise a or b, b a scalar."""
    def xor(self, dst: str, a: str, b: str) -> Self:
        """dst = bitwise a exclusive or b."""
    def xors(self, dst: str, a: str, b: str | Number) -> Self:
        """dst = bitwise a exclusive or b, b a scalar."""
    def shl(self, dst: str, a: str, b: str) -> Self:
        """dst = a shifted left by b."""
    def shls(self, dst: str, a: str, b: str | Number) -> Self:
        """dst = a shifted left by b, b a scalar."""
    def shr(self, dst: str, a: str, b: str) -> Self:
        """dst = a shifted right by b, arithmetic on signed integers."""
    def shrs(self, dst: str, a: str, b: str | Number) -> Self:
        """dst = a shifted right by b, arithmetic on signed integers, b a scalar."""
    def abs(self, dst: str, x: str) -> Self:
        """dst = |x|."""
    def neg(self, dst: str, x: str) -> Self:
        """dst = -x."""
    def not_(self, dst: str, x: str) -> Self:
        """dst = the bitwise complement of x."""
    def sign(self, dst: str, x: str) -> Self:
        """dst = -1, 0 or 1."""
    def square(self, dst: str, x: str) -> Self:
        """dst = x * x."""
    def exp(self, dst: str, x: str) -> Self:
        """dst = e to the x."""
    def exp2(self, dst: str, x: str) -> Self:
        """dst = 2 to the x."""
    def expm1(self, dst: str, x: str) -> Self:
        """dst = exp(x) - 1, accurate near 0."""
    def log(self, dst: str, x: str) -> Self:
        """dst = the natural logarithm of x."""
    def log2(self, dst: str, x: str) -> Self:
        """dst = the logarithm of x to base 2."""
    def log1p(self, dst: str, x: str) -> Self:
        """dst = log(1 + x), accurate near 0."""
    def sqrt(self, dst: str, x: str) -> Self:
        """dst = the square root of x."""
    def rsqrt(self, dst: str, x: str) -> Self:
        """dst = 1 / sqrt(x)."""
    def recip(self, dst: str, x: str) -> Self:
        """dst = 1 / x."""
    def sin(self, dst: str, x: str) -> Self:
        """dst = the sine of x."""
    def cos(self, dst: str, x: str) -> Self:
        """dst = the cosine of x."""
    def tan(self, dst: str, x: str) -> Self:
        """dst = the tangent of x."""
    def tanh(self, dst: str, x: str) -> Self:
        """dst = the hyperbolic tangent of x."""
    def erf(self, dst: str, x: str) -> Self:
        """dst = the error function of x."""
    def relu(self, dst: str, x: str) -> Self:
        """dst = max(x, 0)."""
    def sigmoid(self, dst: str, x: str) -> Self:
        """dst = 1 / (1 + exp(-x))."""
    def silu(self, dst: str, x: str) -> Self:
        """dst = x * sigmoid(x)."""
    def floor(self, dst: str, x: str) -> Self:
        """dst = x rounded down."""
    def ceil(self, dst: str, x: str) -> Self:
        """dst = x rounded up."""
    def round(self, dst: str, x: str) -> Self:
        """dst = x rounded to the nearest whole number, halves to even."""
    def trunc(self, dst: str, x: str) -> Self:
        """dst = x rounded towards zero."""
    def gelu(self, dst: str, x: str, approximate: str = "none") -> Self:
        """dst = x times the normal distribution function of x; approximate: 'none' or 'tanh'."""
    def lrelu(self, dst: str, x: str, slope: str | Number) -> Self:
        """dst = x where x > 0, else x * slope."""
    def prelu(self, dst: str, x: str, slope: str) -> Self:
        """dst = x where x > 0, else x * slope, elementwise."""
    def addc(self, dst: str, a: str, b: str, c: str) -> Self:
        """dst = a + b + c."""
    def subc(self, dst: str, a: str, b: str, c: str) -> Self:
        """dst = a - b + c."""
    def addsc(self, dst: str, a: str, s: str | Number, b: str) -> Self:
        """dst = a + s + b."""
    def subsc(self, dst: str, a: str, s: str | Number, b: str) -> Self:
        """dst = a - s + b."""
    def axpy(self, dst: str, x: str, s: str | Number) -> Self:
        """dst = dst + s * x."""
    def fusedmuladd(self, dst: str, a: str, b: str) -> Self:
        """dst = dst * a + b."""
    def fusedmuladdrelu(self, dst: str, a: str, b: str) -> Self:
        """dst = max(dst * a + b, 0)."""
    def muladddst(self, dst: str, a: str, b: str) -> Self:
        """dst = a * b + dst."""
    def addrelu(self, dst: str, a: str, b: str) -> Self:
        """dst = max(a + b, 0)."""
    def subrelu(self, dst: str, a: str, b: str) -> Self:
        """dst = max(a - b, 0)."""
    def addreluconv(self, dst: str, a: str, b: str) -> Self:
        """dst = max(a + b, 0) in the dtype of dst."""
    def subreluconv(self, dst: str, a: str, b: str) -> Self:
        """dst = max(a - b, 0) in the dtype of dst."""
    def cmp(self, dst: str, a: str, b: str, mode: str = "eq") -> Self:
        """dst = whether a and b compare so: eq ne lt le gt ge."""
    def cmps(self, dst: str, a: str, b: str | Number, mode: str = "eq") -> Self:
        """dst = whether a and the scalar b compare so: eq ne lt le gt ge."""
    def sel(self, dst: str, mask: str, a: str, b: str) -> Self:
        """dst = a where the mask holds, else b."""
    def sels(self, dst: str, mask: str, a: str | Number, b: str | Number) -> Self:
        """dst = a where the mask holds, else b, one of them a scalar."""
    def cvt(self, dst: str, x: str, mode: str = "rint") -> Self:
        """dst = x in the dtype of dst; floats become integers by rint (halves to even), round (halves away from
        zero), floor, ceil or trunc."""
    def quant(self, dst: str, x: str, scale: str | Number, offset: str | Number = 0) -> Self:
        """dst = round(x * scale + offset) in the dtype of dst."""
    def dequant(self, dst: str, x: str, scale: str | Number, offset: str | Number = 0) -> Self:
        """dst = (x - offset) * scale in the dtype of dst."""
    def rowsum(self, dst: str, x: str) -> Self:
        """dst = the sum of each row."""
    def rowmax(self, dst: str, x: str) -> Self:
        """dst = the maximum of each row."""
    def rowmin(self, dst: str, x: str) -> Self:
        """dst = the minimum of each row."""
    def rowprod(self, dst: str, x: str) -> Self:
        """dst = the product of each row."""
    def rowargmax(self, dst: str, x: str) -> Self:
        """dst = the place of the first maximum of each row."""
    def rowargmin(self, dst: str, x: str) -> Self:
        """dst = the place of the first minimum of each row."""
    def colsum(self, dst: str, x: str) -> Self:
        """dst = the sum of each column."""
    def colmax(self, dst: str, x: str) -> Self:
        """dst = the maximum of each column."""
    def colmin(self, dst: str, x: str) -> Self:
        """dst = the minimum of each column."""
    def colprod(self, dst: str, x: str) -> Self:
        """dst = the product of each column."""
    def colargmax(self, dst: str, x: str) -> Self:
        """dst = the place of the first maximum of each column."""
    def colargmin(self, dst: str, x: str) -> Self:
        """dst = the place of the first minimum of each column."""
    def pairreducesum(self, dst: str, x: str) -> Self:
        """dst = the sums of neighbouring columns."""
    def expands(self, dst: str, value: str | Number) -> Self:
        """dst = a tile of one value."""
    def rowexpand(self, dst: str, v: str) -> Self:
        """dst = the first element of each row repeated."""
    def colexpand(self, dst: str, v: str) -> Self:
        """dst = the first element of each column repeated."""
    def rowexpandadd(self, dst: str, x: str, v: str) -> Self:
        """dst = x + v, v one value for each row."""
    def rowexpandsub(self, dst: str, x: str, v: str) -> Self:
        """dst = x - v, v one value for each row."""
    def rowexpandmul(self, dst: str, x: str, v: str) -> Self:
        """dst = x * v, v one value for each row."""
    def rowexpanddiv(self, dst: str, x: str, v: str) -> Self:
        """dst = x / v, v one value for each row."""
    def rowexpandmax(self, dst: str, x: str, v: str) -> Self:
        """dst = the larger of x and v, v one value for each row."""
    def rowexpandmin(self, dst: str, x: str, v: str) -> Self:
        """dst = the smaller of x and v, v one value for each row."""
    def rowexpandexpdif(self, dst: str, x: str, v: str) -> Self:
        """dst = exp(x - v), v one value for each row."""
    def colexpandadd(self, dst: str, x: str, v: str) -> Self:
        """dst = x + v, v one value for each column."""
    def colexpandsub(self, dst: str, x: str, v: str) -> Self:
        """dst = x - v, v one value for each column."""
    def colexpandmul(self, dst: str, x: str, v: str) -> Self:
        """dst = x * v, v one value for each column."""
    def colexpanddiv(self, dst: str, x: str, v: str) -> Self:
        """dst = x / v, v one value for each column."""
    def colexpandmax(self, dst: str, x: str, v: str) -> Self:
        """dst = the larger of x and v, v one value for each column."""
    def colexpandmin(self, dst: str, x: str, v: str) -> Self:
        """dst = the smaller of x and v, v one value for each column."""
    def colexpandexpdif(self, dst: str, x: str, v: str) -> Self:
        """dst = exp(x - v), v one value for each column."""
    def matmul(self, dst: str, a: str, b: str) -> Self:
        """dst = a @ b."""
    def matmul_acc(self, dst: str, a: str, b: str, c: str | None = None) -> Self:
        """dst = dst + a @ b; with four operands dst = a + b @ c."""
    def matmul_bias(self, dst: str, a: str, b: str, bias: str) -> Self:
        """dst = a @ b + bias, one value for each column."""
    def gemv(self, dst: str, a: str, b: str) -> Self:
        """dst = a @ b, a of one row."""
    def gemv_acc(self, dst: str, a: str, b: str, c: str | None = None) -> Self:
        """dst = dst + a @ b, a of one row; with four operands dst = a + b @ c."""
    def gemv_bias(self, dst: str, a: str, b: str, bias: str) -> Self:
        """dst = a @ b + bias, a of one row."""
    def mov(self, dst: str, x: str) -> Self:
        """dst = x, in the dtype of dst."""
    def trans(self, dst: str, x: str) -> Self:
        """dst = x transposed."""
    def reshape(self, dst: str, x: str) -> Self:
        """dst = the elements of x in row-major order."""
    def extract(self, dst: str, x: str, row: str | int = 0, col: str | int = 0) -> Self:
        """dst = the part of x that begins at (row, col)."""
    def subview(self, dst: str, x: str, row: str | int = 0, col: str | int = 0) -> Self:
        """dst = the part of x that begins at (row, col)."""
    def insert(self, dst: str, x: str, row: int = 0, col: int = 0) -> Self:
        """dst = dst with x at (row, col)."""
    def concat(self, dst: str, a: str, b: str) -> Self:
        """dst = the columns of a, then those of b."""
    def interleave(self, dst0: str, dst1: str, a: str, b: str) -> Self:
        """dst0, dst1 = the halves of a and b taken element by element in turns."""
    def deinterleave(self, dst0: str, dst1: str, a: str, b: str) -> Self:
        """dst0, dst1 = the even and the odd elements of a followed by b."""
    def ci(self, dst: str, start: str | Number = 0, descending: int = 0) -> Self:
        """dst = start, start + 1, ... along the columns (start - 1, ... when descending)."""
    def tri(self, dst: str, diagonal: int = 0, upper: int = 0) -> Self:
        """dst = 1 on and below a diagonal (above it when upper), 0 elsewhere."""
    def rand(self, dst: str, seed: str | int, offset: str | int = 0) -> Self:
        """dst = uniform f32 in [0, 1): element k uses the counter offset + k (Philox 4x32-10)."""
    def randn(self, dst: str, seed: str | int, offset: str | int = 0) -> Self:
        """dst = normally distributed f32, counters as in rand."""
    def gather(self, dst: str, x: str, index: str) -> Self:
        """dst = the elements of x at the places index in row-major order."""
    def gatherb(self, dst: str, x: str, offset: str) -> Self:
        """dst = the elements of x at the byte offsets offset."""
    def mgather(self, dst: str, memref: str, index: str) -> Self:
        """dst = the elements of a contiguous memref at the places index in row-major order."""
    def mscatter(self, memref: str, x: str, index: str) -> Self:
        """The elements of a contiguous memref at the places index = x."""
    def sort(self, dst: str, x: str, descending: int = 0) -> Self:
        """dst = each row in order, NaN last."""
    def argsort(self, dst: str, x: str, descending: int = 0) -> Self:
        """dst = the i32 places of each row's sorted elements."""
    def topk(self, dst: str, places: str, x: str, k: int) -> Self:
        """dst, places = the k largest of each row, descending, and their i32 places."""
    def histogram(self, dst: str, x: str, bins: int) -> Self:
        """dst = i32 counts of the integers 0 to bins - 1, in one row."""
    def getval(self, dst: str, x: str, row: str | int = 0, col: str | int = 0) -> Self:
        """The scalar dst = one element of a tile."""
    def print(self, value: str | Number) -> Self:
        """Prints a tile or a scalar."""
    def scalar_li(self, dst: str, value: str | Number) -> Self:
        """dst = a number."""
    def scalar_mov(self, dst: str, x: str | Number) -> Self:
        """dst = x."""
    def scalar_add(self, dst: str, a: str | Number, b: str | Number) -> Self:
        """dst = a + b."""
    def scalar_sub(self, dst: str, a: str | Number, b: str | Number) -> Self:
        """dst = a - b."""
    def scalar_mul(self, dst: str, a: str | Number, b: str | Number) -> Self:
        """dst = a * b."""
    def scalar_div(self, dst: str, a: str | Number, b: str | Number) -> Self:
        """dst = a / b; of integers rounded towards zero."""
    def scalar_rem(self, dst: str, a: str | Number, b: str | Number) -> Self:
        """dst = a % b with the sign of b."""
    def scalar_max(self, dst: str, a: str | Number, b: str | Number) -> Self:
        """dst = the larger of a and b."""
    def scalar_min(self, dst: str, a: str | Number, b: str | Number) -> Self:
        """dst = the smaller of a and b."""
    def scalar_and(self, dst: str, a: str | Number, b: str | Number) -> Self:
        """dst = bitwise a and b."""
    def scalar_or(self, dst: str, a: str | Number, b: str | Number) -> Self:
        """dst = bitwise a or b."""
    def scalar_xor(self, dst: str, a: str | Number, b: str | Number) -> Self:
        """dst = bitwise a exclusive or b."""
    def scalar_shl(self, dst: str, a: str | Number, b: str | Number) -> Self:
        """dst = a shifted left by b."""
    def scalar_shr(self, dst: str, a: str | Number, b: str | Number) -> Self:
        """dst = a shifted right by b."""
    def scalar_neg(self, dst: str, x: str | Number) -> Self:
        """dst = -x."""
    def scalar_abs(self, dst: str, x: str | Number) -> Self:
        """dst = |x|."""
    def scalar_not(self, dst: str, x: str | Number) -> Self:
        """dst = the bitwise complement of x."""
    def scalar_exp(self, dst: str, x: str | Number) -> Self:
        """dst = e to the x."""
    def scalar_log(self, dst: str, x: str | Number) -> Self:
        """dst = the natural logarithm of x."""
    def scalar_sqrt(self, dst: str, x: str | Number) -> Self:
        """dst = the square root of x."""
    def scalar_rsqrt(self, dst: str, x: str | Number) -> Self:
        """dst = 1 / sqrt(x)."""
    def scalar_recip(self, dst: str, x: str | Number) -> Self:
        """dst = 1 / x."""
    def scalar_cmp(self, dst: str, a: str | Number, b: str | Number, mode: str = "eq") -> Self:
        """dst = whether a and b compare so: eq ne lt le gt ge."""
    def scalar_select(self, dst: str, cond: str | Number, a: str | Number, b: str | Number) -> Self:
        """dst = a if cond is not zero, else b."""
    def scalar_cvt(self, dst: str, x: str | Number, mode: str = "rint") -> Self:
        """dst = x in the dtype of dst; floats become integers by rint, round, floor, ceil or trunc."""
    def scalar_load(self, dst: str, memref: str, row: str | int = 0, col: str | int = 0) -> Self:
        """dst = one element of a memref."""
    def scalar_store(self, memref: str, value: str | Number, row: str | int = 0, col: str | int = 0) -> Self:
        """One element of a memref = value."""
