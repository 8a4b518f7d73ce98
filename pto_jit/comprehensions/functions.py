# SPDX-License-Identifier: MIT
"""The functions that the text form knows: the names of C's mathematics library, and what they are in the language."""

from __future__ import annotations

from pto_jit.comprehensions.nodes import Apply, Binary, Expression, Number
from pto_jit.errors import Loc

# name in the text -> (name in `pl`, number of arguments)
_DIRECT = {
    "exp": ("exp", 1), "exp2": ("exp2", 1), "expm1": ("expm1", 1), "log": ("log", 1), "log2": ("log2", 1),
    "log1p": ("log1p", 1), "sqrt": ("sqrt", 1), "rsqrt": ("rsqrt", 1), "sin": ("sin", 1), "cos": ("cos", 1),
    "tan": ("tan", 1), "tanh": ("tanh", 1), "erf": ("erf", 1), "floor": ("floor", 1), "ceil": ("ceil", 1),
    "trunc": ("trunc", 1), "rint": ("round", 1), "nearbyint": ("round", 1), "round": ("round", 1),
    "fabs": ("abs", 1), "abs": ("abs", 1), "fmax": ("maximum", 2), "fmin": ("minimum", 2), "pow": ("pow", 2),
    "fmod": ("fmod", 2), "atan2": ("atan2", 2), "fma": ("fma", 3), "isnan": ("isnan", 1), "isinf": ("isinf", 1),
    "isfinite": ("isfinite", 1), "sigmoid": ("sigmoid", 1), "relu": ("relu", 1), "silu": ("silu", 1),
    "gelu": ("gelu", 1), "sign": ("sign", 1), "square": ("square", 1), "min": ("minimum", 2), "max": ("maximum", 2),
}  # fmt: skip


def _pl(name: str, *args: Expression) -> Expression:
    return Apply(name, args)


_COMPOSED = {
    "atan": (1, lambda x: _pl("atan2", x, Number(1.0))),
    "fdim": (2, lambda x, y: _pl("maximum", Binary("-", x, y), Number(0.0))),
    "fdivide": (2, lambda x, y: Binary("/", x, y)),
}  # fmt: skip

# Functions of `mathematics` and `special`, imported by the definition that calls one: name -> number of arguments.
_SPECIAL = {
    **dict.fromkeys(
        "lgamma tgamma sinpi cospi erfc erfcx normcdf erfinv erfcinv normcdfinv logb j0 j1 y0 y1 cyl_bessel_i0 "
        "cyl_bessel_i1 asin acos sinh cosh asinh acosh atanh log10 exp10 cbrt rcbrt".split(),
        1,
    ),
    **dict.fromkeys(("copysign", "nextafter", "remainder", "hypot", "rhypot", "ldexp"), 2),
}

NAMES = frozenset(_DIRECT) | frozenset(_COMPOSED) | frozenset(_SPECIAL)


def base(name: str) -> str:
    """`expf` is `exp`; other names are themselves."""
    return name[:-1] if name not in NAMES and name.endswith("f") and name[:-1] in NAMES else name


def arity(name: str) -> int:
    """The number of arguments of a function of `NAMES`."""
    return _SPECIAL.get(name) or (_DIRECT.get(name) or ("", _COMPOSED[name][0]))[1]


def apply(name: str, args: tuple[Expression, ...], loc: Loc) -> Expression:
    """The call of a function of `NAMES`."""
    if name in _SPECIAL:
        from pto_jit.semantic import mathematics, special

        return Apply(name, args, mathematics.FUNCTIONS.get(name) or getattr(special, name), loc=loc)
    if name in _DIRECT:
        return Apply(_DIRECT[name][0], args, loc=loc)
    made = _COMPOSED[name][1](*args)
    return type(made)(**{**{n: getattr(made, n) for n in made.__slots__}, "loc": loc})
