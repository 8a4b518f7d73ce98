# SPDX-License-Identifier: MIT
# ruff: noqa: F821, UP037  (indices are names that nothing defines; sizes are text)
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false
"""A small convolutional network in index notation: no loop, no shape and no range is written down.

    python tutorials/comprehensions.py            runs it and prints what was inferred
    python tutorials/comprehensions.py --loops    prints the kernels that come of it

Read from above: a convolution with padding, pooling, a layer with softmax, and what does not fit.
"""

from __future__ import annotations

import argparse

import numpy as np

import pto_jit as pto
import pto_jit.language as pl


@pto.comprehension
def convolution(image: pl.f32["C", "H", "W"], kernel: pl.f32["O", "C", "KH", "KW"], bias: pl.f32["O"]):
    """As large as the image: reads outside of it are 0, and only `pl.exists` says how far h and w go."""
    with pl.exists(image[c, h, w]):
        out[o, h, w] = pl.sum(pl.pad(image[c, h + kh - 1, w + kw - 1], 0.0) * kernel[o, c, kh, kw])
    out[o, h, w] = pl.relu(out[o, h, w] + bias[o])
    return out


@pto.comprehension
def pool(x: pl.f32["C", "H", "W"]):
    """The largest of each 2 x 2 window. An odd row or column is left over: 0:H//2 is what fits."""
    kh, kw = pl.axis(0, 2), pl.axis(0, 2)
    out[c, h, w] = pl.max(x[c, 2 * h + kh, 2 * w + kw])
    return out


# The text form, with a function that another one calls: one kernel.
classifier = pto.comprehension("""
def linear(float(C, H, W) x, float(N, C, H, W) weight) -> (y) {
    y(n) +=! x(c, h, w) * weight(n, c, h, w)
}
def classify(float(C, H, W) x, float(N, C, H, W) weight) -> (p) {
    y = linear(x, weight)
    top max=! y(n)
    total +=! exp(y(n) - top)
    p(n) = exp(y(n) - top) / total
}""").classify


def network(image: np.ndarray, kernel: np.ndarray, bias: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Probabilities of the classes, from an image `[C, H, W]`."""
    return classifier(pool(convolution(image, kernel, bias)), weight)


def reference(image: np.ndarray, kernel: np.ndarray, bias: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The same with NumPy."""
    height, width = image.shape[1:]
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1)))
    out = np.zeros((len(kernel), height, width), np.float32)
    for kh in range(3):
        for kw in range(3):
            out += np.einsum("chw,oc->ohw", padded[:, kh : kh + height, kw : kw + width], kernel[:, :, kh, kw])
    out = np.maximum(out + bias[:, None, None], 0)
    h, w = height // 2, width // 2
    pooled = out[:, : 2 * h, : 2 * w].reshape(len(kernel), h, 2, w, 2).max((2, 4))
    y = np.einsum("chw,nchw->n", pooled, weight)
    e = np.exp(y - y.max())
    return e / e.sum()


def arguments(height: int, width: int, channels: int = 3, filters: int = 8, classes: int = 5) -> list[np.ndarray]:
    """An image and weights."""
    rng = np.random.default_rng(0)
    weight = (classes, filters, height // 2, width // 2)
    shapes = (channels, height, width), (filters, channels, 3, 3), (filters,), weight
    return [rng.standard_normal(s).astype(np.float32) * 0.3 for s in shapes]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--loops", action="store_true", help="print the kernels")
    given = parser.parse_args()
    if given.loops:
        for part in (convolution, pool, classifier):
            print(part.loops(), end="\n\n")
        return
    data = arguments(17, 20)
    np.testing.assert_allclose(network(*data), reference(*data), rtol=1e-4, atol=1e-5)
    print(pool.explain())
    print("\nfor an image of 17 x 20:", pool.infer(x=(8, 17, 20)))
    try:
        classifier(np.ones((8, 8, 10), np.float32), np.ones((5, 8, 9, 10), np.float32))
    except pto.ShapeError as error:
        print(f"\nwhat does not fit is said in the words of the program:\n{error}")


if __name__ == "__main__":
    main()
