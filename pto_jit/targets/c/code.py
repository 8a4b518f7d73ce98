# SPDX-License-Identifier: MIT
"""Writing one C function through the interface that the CPU target's writers use (`targets.cpu.code.Code`).

Expressions stay text as long as they are short; what is long or reads memory gets a name.  `tidy` puts names that are
used once back into the place of their use and leaves out what nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import gcd
from typing import Any

from pto_jit.targets.c.builder import CBuilder
from pto_jit.targets.c.tidy import Line, words_of
from pto_jit.targets.c.values import (
    ATOM,
    CHOICE,
    UNARY,
    CPointer,
    CSlot,
    CValue,
    ctype_of,
    lift,
    memory_ctype,
)
from pto_jit.targets.cpu.code import Code
from pto_jit.targets.cpu.constants import I1, I32, I64, PTR, Index, storage_type
from pto_jit.targets.source.identifiers import Identifiers


class Function:
    """The name of the function being written, as the shared writers ask for it."""

    def __init__(self, name: str) -> None:
        self.name = name


class Braces:
    """A block of lines; the constants that it declares and what it checks are forgotten at its end."""

    __slots__ = ("checked", "code", "head", "since")

    def __init__(self, code: CCode, head: str) -> None:
        self.code, self.head = code, head

    def __enter__(self) -> None:
        code = self.code
        code.line(f"{self.head} {{".lstrip())
        code.depth += 1
        self.since, self.checked = len(code._new), len(code._checks)

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is not None:
            return
        code = self.code
        code.forget(self.since)
        code._uncheck(self.checked)
        code.depth -= 1
        code.line("}")
        code.ended = False


class CCode(Code):
    """The lines of one C function that returns a status and takes the worker first."""

    def __init__(self, name: str, names: Identifiers, module: Any) -> None:
        self.function: Any = Function(name)
        self.module: Any = module
        self.names = names
        self.worker: Any = CPointer("worker", "")
        self.output: list[Line] = []
        self.lines: Any = None  # machine code that knows places has them there
        self.prologue: list[Line] = []
        self.declared: dict[str, str] = {}
        """The C type of every name that the function declares, its parameters too."""
        self.depth = 1
        self.b: Any = CBuilder(self)
        self.operations: Any = None
        self.ended = False
        self._known: dict[tuple[str, str], str] = {}  # constants in scope: C type and expression -> name
        self._new: list[tuple[str, str]] = []  # the keys of `_known`, the last ones last
        self._checked: set[str] = set()  # conditions that were checked to be false here
        self._checks: list[str] = []  # the same, the last ones last
        self.not_negative: set[str] = set()  # names of integers that are at least 0
        self._out = self.output

    # -- lines ----------------------------------------------------------------------------------------------------

    def add(self, *terms: Index) -> Index:
        if len(terms) == 2:
            x, y = terms
            if isinstance(y, int):
                if isinstance(x, int):
                    return x + y
                return self.b.add(x, y) if y else x
            if isinstance(x, int) and x == 0:
                return y
        return super().add(*terms)

    def mul(self, *factors: Index) -> Index:
        if len(factors) == 2:
            x, y = factors
            if isinstance(x, int):
                x, y = y, x
            if isinstance(y, int):
                if isinstance(x, int):
                    return x * y
                if y == 1 or y == 0:
                    return x if y else 0
                return self.b.times(x, y)
        return super().mul(*factors)

    def line(self, text: str) -> None:
        if self._out is self.prologue and text.endswith((" = 0;", " = NULL;")):
            return  # which is how variables begin
        self._out.append(Line(self.depth, text))

    def braces(self, head: str) -> Braces:
        """`head {`, the lines written inside, `}`."""
        return Braces(self, head)

    def declare(self, wish: str, ctype: str, expression: str, level: int = ATOM, *, kind: str = "pure",
                keep: bool = False) -> str:  # fmt: skip
        """A constant of the function with a name like `wish`; the name it got, or has where it is in scope already.

        kind: "pure" (a function of names), "read" (reads memory or a variable), "own" (writes memory that this name
        alone stands for) or "fixed" (has effects); keep: the name says something, so it gets that one, and is not put
        back into the place of its use.
        """
        if kind == "pure" and not keep and self._out is not self.prologue:
            key = ctype, expression
            known = self._known.get(key)
            if known is not None:
                return known
            name = self._known[key] = self.names.fresh(wish)
            self._new.append(key)
        else:
            name = self.names.fresh(wish)
        self.declared[name] = ctype
        self._out.append(Line(self.depth, expression, name, ctype, level, kind, keep))
        return name

    def forget(self, since: int) -> None:
        """The constants declared after the first `since` ones are out of scope."""
        for key in self._new[since:]:
            del self._known[key]
        del self._new[since:]

    def _uncheck(self, since: int) -> None:
        """What was checked after the first `since` conditions is not known here."""
        self._checked.difference_update(self._checks[since:])
        del self._checks[since:]

    def variable(self, wish: str, ctype: str, first: str = "", *, here: bool = False) -> CSlot:
        """A variable, declared at the start of the function (as 0, if nothing else is said) or `here`."""
        if not first and not here:
            first = "NULL" if ctype.endswith("*") else "false" if ctype == "bool" else "0"
        name = self.names.fresh(wish or "v")
        self.declared[name] = ctype
        text = f"{ctype}{'' if ctype.endswith('*') else ' '}{name}{f' = {first}' if first else ''};"
        (self._out if here else self.prologue).append(
            Line(self.depth if here else 1, text, name=name, kind="variable")
        )
        return CSlot(name, ctype)

    def array(self, wish: str, ctype: str, count: int) -> str:
        """The name of an array, declared at the start of the function."""
        name = self.names.fresh(wish)
        self.declared[name] = f"{ctype} *"
        self.prologue.append(Line(1, f"{ctype} {name}[{count}];", name=name))
        return name

    def named(self, value: CValue, wish: str = "n", text: str | None = None, keep: bool = False) -> CValue:
        """The same value as a name."""
        shown, level = (value.text, value.level) if text is None else (text, 0)
        if shown.isidentifier():
            return value
        name = self.declare(wish, value.ctype, shown, level, keep=keep)
        return CValue(value.type, name, ctype=value.ctype)

    def read(self, place: str, typ: Any, ctype: str) -> CValue:
        """What lies in memory or in a variable now."""
        name = self.declare("v", ctype, place, ATOM if not place.startswith("*") else UNARY, kind="read")
        return CValue(typ, name, ctype=ctype)

    def read_as(self, address: Any, dtype: Any) -> CValue:
        """An element of a dtype as it lies in memory."""
        typ = storage_type(dtype)
        if isinstance(address, CSlot):
            return self.read(address.variable, typ, address.holds)
        ctype = memory_ctype(dtype)
        return self.read(address.element_text(ctype), typ, ctype)

    def pointer(
        self, expression: str, element: str, wish: str = "p", kind: str = "pure", keep: bool = False
    ) -> CPointer:
        """A pointer by name; `kind` as in `declare`."""
        name = self.declare(wish, f"{element or 'void'} *", expression, 0, kind=kind, keep=keep)
        return CPointer(name, element)

    def typed(self, pointer: CPointer, element: str) -> CPointer:
        """A pointer to elements of a C type."""
        if not element or pointer.element == element or pointer.base == "NULL":
            return pointer
        text = f"({pointer.text})" if pointer.place else pointer.base
        return self.pointer(f"({element} *){text}", element, pointer.base)

    # -- what LLVM's functions have blocks for --------------------------------------------------------------------

    @property
    def terminated(self) -> bool:
        """Whether what would come next can never run."""
        return self.ended

    def alloca(self, typ: Any, name: str = "", count: int = 1, align: int | None = None) -> CSlot:
        assert count == 1
        return self.variable(name, ctype_of(typ))

    @contextmanager
    def at_entry(self) -> Iterator[None]:
        saved, depth = self._out, self.depth
        self._out, self.depth = self.prologue, 1
        yield
        self._out, self.depth = saved, depth

    # -- index arithmetic -----------------------------------------------------------------------------------------

    constant = staticmethod(lift)

    def bytes(self, size: int, extents: Sequence[Index]) -> Index:
        out: Index = size
        for extent in extents:
            if isinstance(out, int) and isinstance(extent, int):
                out = min(out * extent, (1 << 63) - 1)
            else:
                x, y = lift(out), lift(extent)
                out = CValue(I64, f"pto_bytes({x.text}, {y.text})")
        return out

    def _extreme(self, name: str, x: Index, y: Index) -> Index:
        if isinstance(x, int) and isinstance(y, int):
            return min(x, y) if name == "pto_min" else max(x, y)
        if x is y or (not isinstance(x, int) and not isinstance(y, int) and x.poly == y.poly):
            return x
        a, b = lift(x), lift(y)
        left, right = a.text, b.text
        if len(left) + len(right) > 64:
            left, right = self.named(a).text, self.named(b).text
        out = CValue(I64, f"{name}({left}, {right})")
        return self.named(out) if "(" in left or "(" in right else out

    def min(self, x: Index, y: Index) -> Index:
        return self._extreme("pto_min", x, y)

    def max(self, x: Index, y: Index) -> Index:
        return self._extreme("pto_max", x, y)

    def compare(self, op: str, x: Index, y: Index) -> Any:
        if isinstance(x, int) or isinstance(y, int):
            if op == ">=" and not isinstance(x, int) and y == 0 and x.text in self.not_negative:
                return True
        elif x is y or x.poly == y.poly:
            return op in ("<=", ">=", "==")
        return super().compare(op, x, y)

    def at_least_zero(self, x: Index) -> bool:
        """Whether a number is known not to be negative."""
        return x >= 0 if isinstance(x, int) else x.text in self.not_negative

    def offset(self, pointer: Any, distance: Index, inbounds: bool = True) -> Any:
        if isinstance(distance, int) and distance == 0:
            return pointer
        assert isinstance(pointer, CPointer)
        return pointer.moved(lift(distance).poly or {})

    # -- control flow ---------------------------------------------------------------------------------------------

    @contextmanager
    def when(self, condition: Any, likely: bool | None = None) -> Iterator[None]:
        if condition is True:
            yield
        elif condition is False:
            since, checked, saved, self._out = len(self._new), len(self._checks), self._out, []
            yield
            self._out = saved
            self._uncheck(checked)
            self.forget(since)
        else:
            with self.braces(f"if ({lift(condition).text})"):
                yield

    def choose(
        self, condition: Any, then: Callable[[], Sequence[Any]], other: Callable[[], Sequence[Any]]
    ) -> list[Any]:
        if isinstance(condition, bool):
            return list(then() if condition else other())
        condition = self._decided(lift(condition))
        saved, at, checked = self._out, len(self._out), len(self._checks)
        first, second = [], []
        self.depth += 1
        since = len(self._new)
        self._out = first
        xs = [lift(x) for x in then()]
        self.forget(since)
        self._out = second
        self._uncheck(checked)
        ys = [lift(y) for y in other()]
        self.forget(since)
        self._uncheck(checked)
        self.depth -= 1
        self._out = saved
        assert at == len(saved)
        made = {line.name for lines in (first, second) for line in lines if line.name}
        if not first and not (made and any(word in made for y in ys for word in words_of(y.text))):
            return self._selected(condition, xs, ys, second)
        out: list[Any] = []
        for x, y in zip(xs, ys, strict=True):
            wish, ctype, (one, two), joined = _alternatives(x, y)
            if one == two:
                out.append(x)
                continue
            slot = self.variable(wish, ctype, here=True)
            out.append(joined(slot.variable))
            first.append(Line(self.depth + 1, f"{slot.variable} = {one};"))
            second.append(Line(self.depth + 1, f"{slot.variable} = {two};"))
        self.line(f"if ({condition.text}) {{")
        saved += first
        self.line("} else {")
        saved += second
        self.line("}")
        return out

    def _selected(
        self, condition: CValue, xs: Sequence[CValue], ys: Sequence[CValue], otherwise: Sequence[Line]
    ) -> list[Any]:
        """`choose` where there is something to be done only when the condition does not hold."""
        if not condition.text.isidentifier():
            condition = CValue(I1, self.declare("whole", "bool", condition.text, condition.level, keep=True))
        if otherwise:
            self.line(f"if (!{condition.text}) {{")
            self._out += otherwise
            self.line("}")
        out: list[Any] = []
        for x, y in zip(xs, ys, strict=True):
            if x is y:
                out.append(x)
                continue
            wish, ctype, (one, two), joined = _alternatives(x, y)
            text = f"{condition.text} ? {one} : {two}"
            out.append(x if one == two else joined(self.declare(wish, ctype, text, CHOICE, keep=True)))
        return out

    def _decided(self, condition: CValue) -> CValue:
        """A condition that is asked more than once: a long one gets a name, by which it is known from then on."""
        if len(condition.text) > 40:
            condition.rename(self.declare("apart", "bool", condition.text, condition.level, keep=True))
        return condition

    def loop(
        self, start: Index, stop: Index, step: int | Index = 1, init: Sequence[Any] = (),
        body: Callable[[Any, list[Any]], Sequence[Any]] | None = None, name: str = "loop",
    ) -> list[Any]:  # fmt: skip
        assert body is not None and not init
        if self.compare("<", start, stop) is False:
            return []
        first, last, by = lift(start), lift(stop), lift(step)
        if last.name is None and not isinstance(stop, int):
            last = self.named(last)
        i = self.names.fresh({"main": "j", "row": "i"}.get(name, "k"))
        self.declared[i] = "int64_t"
        change = f"++{i}" if by.text == "1" else f"{i} += {by.text}"
        with self.braces(f"for (int64_t {i} = {first.text}; {i} < {last.text}; {change})"):
            body(CValue(I64, i), [])
        return []

    # -- failures and calls ---------------------------------------------------------------------------------------

    def call(self, name: str, result: Any, args: Sequence[Any], attributes: Sequence[str] = ()) -> Any:
        return self.called(name, [lift(a) for a in args], result)

    def copy(
        self, to: Any, source: Any, size: int, extents: Sequence[Any], out: Sequence[Any], into: Sequence[Any]
    ) -> None:
        """As `Code.copy`."""
        if not extents:
            self.line(f"memcpy({lift(to).text}, {lift(source).text}, {size});")
            return
        numbers = ", ".join(lift(self.constant(v)).text for v in (*extents, *out, *into))
        self.module.calls.add("pto_copy")
        where = f"{lift(to).text}, {lift(source).text}"
        self.line(f"pto_copy({len(extents)}, {where}, {size}, (const int64_t[]){{{numbers}}});")

    def called(self, function: Any, args: Sequence[CValue], result: Any = None) -> Any:
        """A call; functions of the runtime are used as they are."""
        if function.startswith("llvm.memset"):
            self.line(f"memset({args[0].text}, 0, (size_t){args[2].at(UNARY)});")
            return None
        if function.startswith("llvm.prefetch"):
            return None
        if function.startswith("pto_mm_"):
            product = self.module.product(function.removesuffix("_mt"))
            args = [self._element_pointer(a, t) for a, t in zip(args, product.ctypes, strict=True)]
            product.divided |= function.endswith("_mt")
        self.module.calls.add(function)
        text = f"{function}({', '.join(a.text for a in args)})"
        if result == PTR:
            wish = "block" if function == "pto_scratch_push" else "memory"
            return CPointer(self.declare(wish, "void *", text, kind="fixed", keep=True), "")
        if result == I32:
            return CValue(I32, text)
        self.line(f"{text};")
        return None

    def _element_pointer(self, value: CValue, element: str) -> CValue:
        return self.typed(value, element) if element and isinstance(value, CPointer) else value

    def leave_with(self, status: Any) -> None:
        self.line(f"return {lift(status).text};")

    def check(self, ok: Any, site: int, *values: Index) -> None:
        if ok is True:
            return
        numbers = [lift(v).text for v in values] + ["0"] * (3 - len(values))
        self.module.calls.add("pto_fail")
        failed = "true" if ok is False else self.b.not_(ok).text
        if failed in self._checked:
            return
        self._checked.add(failed)
        self._checks.append(failed)
        self.line(f"if ({failed}) return pto_fail(worker, {site}, {', '.join(numbers)});")

    def check_status(self, status: Any) -> None:
        self.need_status()
        self.line(f"if ((status = {lift(status).text}) != PTO_OK) return status;")

    def need_status(self) -> None:
        if "status" not in self.declared:
            self.declared["status"] = "int32_t"
            self.prologue.append(Line(1, "int32_t status;", name="status", kind="variable"))

    def check_memory(self, pointer: CPointer) -> None:
        """Leave when an allocation failed; the run-time library has recorded the reason."""
        self.line(f"if ({pointer.base} == NULL) return PTO_NO_MEMORY;")

    def finish(self) -> None:
        """Nothing is open."""


def _alternatives(x: CValue, y: CValue) -> tuple[str, str, tuple[str, str], Callable[[str], CValue]]:
    """Of a value that is `x` or `y`: what it may be called, its C type, the texts of both, and the value that a name
    for it stands for."""
    if x.type == PTR:
        element = next((p.element for p in (y, x) if isinstance(p, CPointer) and p.element), "")
        base = next((p.base for p in (y, x) if isinstance(p, CPointer) and p.element), "p")
        return f"{base}_at", f"{element or 'void'} *", (x.text, y.text), lambda name: CPointer(name, element)
    if x.type != I64:
        return "n", x.ctype, (x.text, y.text), lambda name: CValue(x.type, name, ctype=x.ctype)
    unit = gcd(*(x.poly or {}).values(), *(y.poly or {}).values()) or 1  # strides in bytes stay multiples of elements
    texts = [CValue(I64, poly={m: c // unit for m, c in (v.poly or {}).items()}).text for v in (x, y)]
    wish = "stride" if unit > 1 else "n"
    return wish, x.ctype, (texts[0], texts[1]), lambda name: CValue(I64, poly={(name,): unit})
