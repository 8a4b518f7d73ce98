# SPDX-License-Identifier: MIT
"""A small structured writer of LLVM IR text.

The matrix product is a generator of a few thousand instructions per module; writing text costs about a microsecond per
instruction, a tenth of an object builder, and the text is what the tests and the dumps read.  Values carry their
type, so the arithmetic of addresses reads as arithmetic; constants fold here, so that the optimiser has little left
to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pto_jit.errors import InternalError
from pto_jit.slotted import field, mutable

I1, I32, I64, PTR, VOID = "i1", "i32", "i64", "ptr", "void"


def vector(lanes: int, element: str) -> str:
    """``<lanes x element>``, or the element itself for one lane."""
    return f"<{lanes} x {element}>"


@mutable(eq=False)
class Value:
    """An SSA value or a constant of a function under construction."""

    fn: Function
    type: str
    ref: str

    @property
    def constant(self) -> int | None:
        """The integer this is, or None for a run-time value."""
        return int(self.ref) if self.ref.lstrip("-").isdigit() else None

    def _binary(self, op: str, other: Value | int) -> Value:
        return self.fn.binary(op, self, other)

    def __add__(self, other: Value | int) -> Value:
        return self._binary("add", other)

    def __sub__(self, other: Value | int) -> Value:
        return self._binary("sub", other)

    def __mul__(self, other: Value | int) -> Value:
        return self._binary("mul", other)

    def __floordiv__(self, other: Value | int) -> Value:
        """Unsigned division: the sizes here are never negative."""
        return self._binary("udiv", other)

    def __mod__(self, other: Value | int) -> Value:
        return self._binary("urem", other)

    def __and__(self, other: Value | int) -> Value:
        return self._binary("and", other)

    def __or__(self, other: Value | int) -> Value:
        return self._binary("or", other)

    def __lt__(self, other: Value | int) -> Value:
        return self.fn.compare("slt", self, other)

    def __le__(self, other: Value | int) -> Value:
        return self.fn.compare("sle", self, other)

    def __gt__(self, other: Value | int) -> Value:
        return self.fn.compare("sgt", self, other)

    def __ge__(self, other: Value | int) -> Value:
        return self.fn.compare("sge", self, other)

    def equals(self, other: Value | int) -> Value:
        """Integer or pointer equality as an i1."""
        return self.fn.compare("eq", self, other)

    def differs(self, other: Value | int) -> Value:
        """Integer or pointer inequality as an i1."""
        return self.fn.compare("ne", self, other)


@mutable
class Loop:
    """The handle of a loop under construction: its index, its carried values, and what they are afterwards."""

    index: Value
    carried: list[Value]
    following: list[Value] | None = None
    after: list[Value] = field(default_factory=list)

    def carry(self, *values: Value) -> None:
        """Set the carried values of the next iteration; call it once, at the end of the body."""
        self.following = list(values)


class Module:
    """Functions, globals and declarations of one module."""

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}
        self.globals: list[str] = []
        self.declarations: dict[str, str] = {}
        self.calls: list[tuple[str, tuple[str, ...]]] = []

    def function(
        self, name: str, result: str, parameters: Sequence[tuple[str, str]], *, public: bool = False, hot: bool = True,
        rare: bool = False,
    ) -> Function:  # fmt: skip
        """Begin a function; parameters are (type, name) pairs.

        hot: it may be inlined; rare: it runs once where those that it calls do much work, and its code is selected
        without delay.
        """
        made = Function(self, name, result, parameters, public, hot, rare)
        self.functions[name] = made
        return made

    def declare(self, name: str, text: str) -> None:
        """Declare an external function or an intrinsic once."""
        self.declarations.setdefault(name, text)

    def text(self, header: str = "") -> str:
        """The whole module; LLVM does not say so when a call has other arguments than its function has parameters."""
        for name, types in self.calls:
            if name in self.functions and types != tuple(p.type for p in self.functions[name].parameters):
                raise InternalError(f"{name} is called with {', '.join(types)}")
        parts = [header, *self.globals, *self.declarations.values()]
        parts.extend(f.text() for f in self.functions.values())
        return "\n".join(parts) + "\n"


class Function:
    """One function: a list of lines, a counter, and the label of the block being written."""

    def __init__(
        self, module: Module, name: str, result: str, parameters: Sequence[tuple[str, str]], public: bool, hot: bool,
        rare: bool,
    ) -> None:  # fmt: skip
        self.module, self.name, self.result, self.public = module, name, result, public
        self.kind = "#2" if rare else "#0" if hot else "#1"
        self.parameters = [Value(self, type_, f"%{n}") for type_, n in parameters]
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.counter = 0
        self.block = "entry"

    def text(self) -> str:
        """The definition."""
        linkage = "define" if self.public else "define internal"
        signature = ", ".join(f"{p.type}{' noundef' if p.type != PTR else ''} {p.ref}" for p in self.parameters)
        body = "\n".join(["entry:", *self.allocas, *self.lines])
        return f"{linkage} {self.result} @{self.name}({signature}) {self.kind} {{\n{body}\n}}\n"

    # -- values ------------------------------------------------------------------------------------------------------

    def fresh(self, stem: str = "t") -> str:
        """A new name without its sigil."""
        self.counter += 1
        return f"{stem}{self.counter}"

    def emit(self, type_: str, text: str) -> Value:
        """Append ``%t = text`` and give the value."""
        name = f"%{self.fresh()}"
        self.lines.append(f"  {name} = {text}")
        return Value(self, type_, name)

    def line(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {text}")

    def const(self, value: int, type_: str = I64) -> Value:
        """An integer constant."""
        return Value(self, type_, str(value))

    def null(self) -> Value:
        """The null pointer."""
        return Value(self, PTR, "null")

    def widen(self, value: Value) -> Value:
        """An i32 that is not negative as an i64."""
        return self.emit(I64, f"zext i32 {value.ref} to i64")

    def lift(self, value: Value | int, type_: str = I64) -> Value:
        """A Python integer as a value; a value as it is."""
        return self.const(value, type_) if isinstance(value, int) else value

    def binary(self, op: str, a: Value, b: Value | int) -> Value:
        """Integer arithmetic with constants folded."""
        b = self.lift(b, a.type)
        x, y = a.constant, b.constant
        if a.type == I64:
            if x is not None and y is not None:
                match op:
                    case "add":
                        return self.const(x + y)
                    case "sub":
                        return self.const(x - y)
                    case "mul":
                        return self.const(x * y)
                    case "udiv":
                        return self.const(x // y)
                    case "urem":
                        return self.const(x % y)
            if (y == 0 and op in ("add", "sub", "or")) or (y == 1 and op in ("mul", "udiv")):
                return a
            if x == 0 and op == "add":
                return b
            if (x == 0 or y == 0) and op == "mul":
                return self.const(0)
            if x == 1 and op == "mul":
                return b
        return self.emit(a.type, f"{op} {a.type} {a.ref}, {b.ref}")

    def compare(self, kind: str, a: Value, b: Value | int) -> Value:
        """An integer or pointer comparison."""
        if isinstance(b, int):
            b = Value(self, a.type, "null" if a.type == PTR else str(b))
        return self.emit(I1, f"icmp {kind} {a.type} {a.ref}, {b.ref}")

    def select(self, condition: Value, yes: Value | int, no: Value | int) -> Value:
        """``condition ? yes : no``."""
        if isinstance(yes, int):
            yes = self.lift(yes, no.type if isinstance(no, Value) else I64)
        no = self.lift(no, yes.type)
        return self.emit(yes.type, f"select i1 {condition.ref}, {yes.type} {yes.ref}, {no.type} {no.ref}")

    def minimum(self, a: Value, b: Value | int) -> Value:
        """The smaller of two signed i64."""
        return self._extreme("smin", a, b)

    def maximum(self, a: Value, b: Value | int) -> Value:
        """The larger of two signed i64."""
        return self._extreme("smax", a, b)

    def _extreme(self, op: str, a: Value, b: Value | int) -> Value:
        b = self.lift(b, a.type)
        return self.intrinsic(f"llvm.{op}.{a.type}", a.type, [a, b])

    def ceil_div(self, a: Value, b: Value | int) -> Value:
        """``ceil(a / b)`` for non-negative values."""
        return (a + (b - 1)) // b

    def round_up(self, a: Value, unit: Value | int) -> Value:
        """The next multiple of unit."""
        return self.ceil_div(a, unit) * unit

    def intrinsic(self, name: str, result: str, arguments: Sequence[Value]) -> Value:
        """Call an intrinsic, declaring it."""
        types = ", ".join(a.type for a in arguments)
        self.module.declare(name, f"declare {result} @{name}({types})")
        return self.call(name, result, arguments)

    def call(self, name: str, result: str, arguments: Sequence[Value]) -> Value:
        """Call a function of this module or a declared one."""
        self.module.calls.append((name, tuple(a.type for a in arguments)))
        text = f"call {result} @{name}({', '.join(f'{a.type} {a.ref}' for a in arguments)})"
        if result == VOID:
            self.line(text)
            return Value(self, VOID, "")
        return self.emit(result, text)

    # -- memory ------------------------------------------------------------------------------------------------------

    def offset(self, base: Value, byte_offset: Value | int) -> Value:
        """``base + byte_offset``."""
        byte_offset = self.lift(byte_offset)
        if byte_offset.constant == 0:
            return base
        return self.emit(PTR, f"getelementptr i8, ptr {base.ref}, i64 {byte_offset.ref}")

    def load(self, type_: str, pointer: Value, align: int = 1) -> Value:
        """An ordinary load."""
        return self.emit(type_, f"load {type_}, ptr {pointer.ref}, align {align}")

    def store(self, value: Value, pointer: Value, align: int = 1) -> None:
        """An ordinary store."""
        self.line(f"store {value.type} {value.ref}, ptr {pointer.ref}, align {align}")

    def alloca(self, bytes_: int, align: int = 64) -> Value:
        """Stack memory of constant size, allocated once at entry."""
        name = f"%{self.fresh('m')}"
        self.allocas.append(f"  {name} = alloca [{bytes_} x i8], align {align}")
        return Value(self, PTR, name)

    def variable(self, initial: Value) -> Variable:
        """A mutable variable (SSA form is the optimiser's work)."""
        name = f"%{self.fresh('v')}"
        self.allocas.append(f"  {name} = alloca {initial.type}, align 8")
        made = Variable(self, initial.type, Value(self, PTR, name))
        made.set(initial)
        return made

    # -- control -----------------------------------------------------------------------------------------------------

    def label(self, name: str) -> None:
        """Begin a block."""
        self.lines.append(f"{name}:")
        self.block = name

    def jump(self, name: str) -> None:
        """Leave the block unconditionally."""
        self.line(f"br label %{name}")

    def branch(self, condition: Value, yes: str, no: str) -> None:
        """Leave the block by a condition."""
        self.line(f"br i1 {condition.ref}, label %{yes}, label %{no}")

    def give(self, value: Value | int | None = None) -> None:
        """Return; code after it until the next label is dead and must not be written."""
        if value is None:
            self.line("ret void")
        else:
            value = self.lift(value, self.result)
            self.line(f"ret {value.type} {value.ref}")
        self.block = ""

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Code run only when the condition holds; the body may return."""
        yes, done = self.fresh("then"), self.fresh("done")
        self.branch(condition, yes, done)
        self.label(yes)
        yield
        if self.block:
            self.jump(done)
        self.label(done)

    @contextmanager
    def either(self, condition: Value) -> Iterator[Either]:
        """``with f.either(c) as e: ... ; e.otherwise(); ...``; both sides may return."""
        yes, no, done = self.fresh("then"), self.fresh("else"), self.fresh("done")
        self.branch(condition, yes, no)
        self.label(yes)
        handle = Either(self, no, done)
        yield handle
        if self.block:
            self.jump(done)
        if not handle.switched:
            self.label(no)
            self.jump(done)
        self.label(done)

    @contextmanager
    def loop(
        self,
        start: Value | int,
        stop: Value | int,
        step: Value | int = 1,
        carry: Sequence[Value] = (),
        *,
        at_least_once: bool = False,
    ) -> Iterator[Loop]:
        """``for index in range(start, stop, step)`` with values carried round; ``loop.after`` holds them afterwards.

        at_least_once: the caller knows that start < stop; the test stands at the end alone.
        """
        start, stop = self.lift(start), self.lift(stop)
        head, body, done = self.fresh("head"), self.fresh("body"), self.fresh("done")
        before = self.block
        self.jump(head)
        self.label(head)
        index = Value(self, I64, f"%{self.fresh('i')}")
        names = [Value(self, v.type, f"%{self.fresh('c')}") for v in carry]
        spot = len(self.lines)
        handle = Loop(index, names)
        if not at_least_once:
            self.branch(index < stop, body, done)
            self.label(body)
        yield handle
        following = handle.following if handle.following is not None else names
        onward = index + step
        latch = self.block
        if at_least_once:
            self.branch(onward < stop, head, done)
        else:
            self.jump(head)
        phis = [f"  {index.ref} = phi i64 [ {start.ref}, %{before} ], [ {onward.ref}, %{latch} ]"]
        for name, first, later in zip(names, carry, following, strict=True):
            phis.append(f"  {name.ref} = phi {name.type} [ {first.ref}, %{before} ], [ {later.ref}, %{latch} ]")
        self.lines[spot:spot] = phis
        self.label(done)
        handle.after = list(following) if at_least_once else names


@mutable
class Either:
    """The handle of a two-sided condition."""

    fn: Function
    no: str
    done: str
    switched: bool = False

    def otherwise(self) -> None:
        """End the first side and begin the second."""
        if self.fn.block:
            self.fn.jump(self.done)
        self.fn.label(self.no)
        self.switched = True


@mutable
class Variable:
    """A stack slot that the optimiser promotes to a register."""

    fn: Function
    type: str
    slot: Value

    def get(self) -> Value:
        """The present value."""
        return self.fn.load(self.type, self.slot, 8)

    def set(self, value: Value | int) -> None:
        """Assign."""
        self.fn.store(self.fn.lift(value, self.type), self.slot, 8)
