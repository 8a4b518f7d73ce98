# SPDX-License-Identifier: MIT
"""The user's names as C identifiers."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from pto_jit.errors import ArgumentError

# Keywords of C and C++, and names that the generated sources use themselves.
RESERVED = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class
    compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype
    default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int
    long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch
    template this thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using
    virtual void volatile wchar_t while xor xor_eq main ri ci pto outer errno NULL EOF I complex imaginary assert
    linux unix stdin stdout stderr threadIdx blockIdx blockDim gridDim warpSize failure lane INFINITY NAN half
    bfloat16""".split()
)

# Names that belong to the run-time library, to the C implementation, and to macros of its headers.
_FOREIGN = re.compile(
    r"(?:pto|PTO)_\w*|_[_A-Z]\w*|U?(?:INT|LONG|LLONG|CHAR|SHRT)\w*_(?:MAX|MIN|C|BIT|WIDTH)|(?:SIZE|PTRDIFF|RAND)_MAX"
    r"|(?:FLT|DBL|LDBL|HUGE|SCHAR)_[A-Z0-9_]+|M_(?:E|PI|LN|LOG|SQRT|1|2)[A-Z0-9_]*"
    r"|u?int(?:_least|_fast)?\d+_t|u?int(?:ptr|max)_t|(?:s?size|ptrdiff|max_align|float|double)_t"
    r"|(?:u?int|m?float|bfloat|poly)\d+(?:x\d+)*_t"  # of arm_neon.h: float32x4_t, float32x4x2_t, and
    r"|v[a-z0-9]+(?:_[a-z0-9]+)*?_(?:[sufp](?:8|16|32|64|128)|bf16|mf8)(?:_\w+)?",  # vaddq_f32, vld1q_s8_x2
    re.ASCII,
)
# What `PTO_..._H` of the library's own headers is made of.
_HEADERS = frozenset("RUNTIME ELEMENTS NEON HOST CUDA_HOST TASKS DISPATCH INTERNAL PLATFORM".split())


def stem_of(name: str) -> str:
    """A program's name in the names of its files, of their guards, and of the functions that other programs call."""
    stem = Identifiers(RESERVED).fresh(name)
    return f"{stem}_2" if stem.upper() in _HEADERS else stem


def checked_name(name: str | None) -> str | None:
    """A name that was asked for, of a program and its functions.

    Raises ArgumentError (PTO-A062) for what is not an identifier of C, or one of the run-time library's.
    """
    if name is not None and (not isinstance(name, str) or stem_of(name) != name):
        wanted = f"such as {stem_of(name)!r}" if isinstance(name, str) else "as a string"
        raise ArgumentError(f"PTO-A062: name={name!r} is not a name for functions of C\n"
                            f"help: give an identifier, {wanted}")  # fmt: skip
    return name


def entry_name(name: str) -> str:
    """The function of a program that `pto_launch` takes: all that a linker has to see of it."""
    return f"pto_entry_{stem_of(name)}"


class Identifiers:
    """A different C identifier for every name of a function, as close to it as can be."""

    def __init__(self, taken: frozenset[str] = RESERVED) -> None:
        self._reserved = taken
        self._taken: set[str] = set()
        self._of: dict[str, str] = {}
        self._bases: dict[str, tuple[str, int]] = {}  # of a wish: what the name starts with, and the next number

    def of(self, name: str) -> str:
        known = self._of.get(name)
        if known is None:
            known = self._of[name] = self.fresh(name)
        return known

    def fresh(self, wish: str) -> str:
        """An identifier nobody has so far."""
        known = self._bases.get(wish)
        if known is None:
            known = identifier(wish), 1
        base, count = known
        reserved, taken = self._reserved, self._taken
        name = base if count == 1 else f"{base}_{count}"
        while name in taken or name in reserved:
            count += 1
            name = f"{base}_{count}"
        self._bases[wish] = base, count + 1
        taken.add(name)
        return name


def identifier(wish: str) -> str:
    """The wish as an identifier of C that is none of the library's."""
    base = wish if wish.isascii() and wish.isidentifier() else "".join(map(_spelled, wish))
    base = f"v{base}" if not base or base[0].isdigit() else base
    return f"v_{base}" if _FOREIGN.fullmatch(base) else base


@lru_cache(256)
def _spelled(character: str) -> str:
    """A character of a name in ASCII, such that names in letters of any script are told apart: `o` for `ö`, `ss` for
    `ß`, `alpha` for the Greek letter, `u6570` for what has no such name."""
    if character.isascii() or not character.isidentifier():
        return character if character.isalnum() and character.isascii() else "_"
    simple = unicodedata.normalize("NFKD", character)
    plain = "".join(c for c in simple if not unicodedata.combining(c))
    if plain.isascii() and plain.isalnum():
        return plain
    if character.casefold().isascii():
        return character.casefold()
    kind, _, name = unicodedata.name(plain[:1] or character, "").partition(" LETTER ")
    name = re.sub(r"\W", "_", name.partition(" WITH ")[0].lower())
    return f"u{ord(character):x}" if not name else name.capitalize() if "CAPITAL" in kind else name
