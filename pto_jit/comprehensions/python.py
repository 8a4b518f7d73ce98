# SPDX-License-Identifier: MIT
"""The Python form: a function in index notation, read from its syntax tree and never run.

Names on the left of `O[i, j] = ...` and those declared with `pl.axis` are indices, and so is every name that nothing
defines.  Numbers and functions from around the function are taken as they are when it is defined.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping
from types import FunctionType
from typing import Any, NoReturn

import numpy as np

from pto_jit.comprehensions.nodes import (
    Apply,
    Binary,
    CallStatement,
    Cast,
    Definition,
    Expression,
    Extent,
    HostFunction,
    Name,
    Number,
    Pad,
    Parameter,
    Range,
    Read,
    Return,
    Select,
    Statement,
    Unary,
    names_in,
)
from pto_jit.dtypes import Annotated, DType, from_numpy
from pto_jit.errors import CompilationError, Loc, UnsupportedSyntaxError
from pto_jit.language import Symbol, TensorSpec, constexpr
from pto_jit.source import Located, SourceFile, locate

_MISSING = object()
_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_REDUCTIONS = ("sum", "prod", "min", "max")
_ALIASES = {"abs": "abs", "round": "round"}  # builtins of one argument


def read_function(fn: FunctionType) -> Definition:
    """The definition that a function spells. Raises CompilationError at the place of what cannot be read."""
    return _FunctionReader(fn, locate(fn)).definition()


def _lefts(node: ast.FunctionDef) -> set[str]:
    """The indices on the left of any statement of the function."""
    targets = [t for s in ast.walk(node) if isinstance(s, ast.Assign) for t in s.targets]
    targets += [s.target for s in ast.walk(node) if isinstance(s, ast.AugAssign)]
    return {
        n.id for t in targets if isinstance(t, ast.Subscript) for n in ast.walk(t.slice) if isinstance(n, ast.Name)
    }


class Reader:
    """Reads statements; `cells` and `globals` are the names around."""

    def begin(self, file: SourceFile, cells: dict[str, Any], names: Mapping[str, Any]) -> None:
        self.file, self.cells, self.globals = file, cells, names
        self.parameters: dict[str, Parameter] = {}
        self.sizes: set[str] = set()
        self.lets: dict[str, Expression] = {}
        self.axes: dict[str, tuple[Expression, Expression, Loc] | None] = {}
        self.tensors: set[str] = set()
        self.left: frozenset[str] = frozenset()
        self.body: list[Statement | CallStatement] = []
        self.returns: tuple[Return, ...] | None = None

    def loc(self, node: ast.AST) -> Loc:
        return self.file.loc(node)

    def fail(self, code: str, message: str, node: ast.AST, hint: str,
             kind: type[CompilationError] = CompilationError) -> NoReturn:  # fmt: skip
        raise kind(message, self.loc(node), code=code, hint=hint)

    # -- statements -----------------------------------------------------------------------------------------------

    def statement(self, stmt: ast.stmt, exists: tuple[Expression, ...]) -> None:
        if self.returns is not None:
            self.fail("PTO-R067", "nothing follows the `return` of a comprehension", stmt, "return last")
        if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant):
            return
        if isinstance(stmt, ast.Pass):
            return
        if isinstance(stmt, ast.Return) and not exists:
            self.returned(stmt)
        elif isinstance(stmt, ast.With):
            self.with_exists(stmt, exists)
        elif isinstance(stmt, (ast.Assign, ast.AnnAssign)) and stmt.value is not None:
            targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
            if len(targets) != 1:
                self.fail("PTO-R068",
                          "a statement of a comprehension has one target", stmt, "write a statement for each")
            self.assignment(stmt, targets[0], stmt.value, exists)
        elif isinstance(stmt, ast.AugAssign):
            self.augmented(stmt, exists)
        else:
            self.fail("PTO-R069", f"`{type(stmt).__name__}` has no meaning in a comprehension", stmt,
                      "write statements `O[i] = ...`, `with pl.exists(...)` and `return`; loops are inferred",
                      UnsupportedSyntaxError)  # fmt: skip

    def returned(self, stmt: ast.Return) -> None:
        value = stmt.value
        items = value.elts if isinstance(value, ast.Tuple) else [value] if value is not None else []
        found: list[Return] = []
        for item in items:
            if not isinstance(item, ast.Name):
                self.fail("PTO-R070", "a comprehension returns tensors by name", item, "write it in a statement first")
            found.append(Return(item.id, loc=self.loc(item)))
        self.returns = tuple(found)

    def with_exists(self, stmt: ast.With, exists: tuple[Expression, ...]) -> None:
        held: list[Expression] = []
        for item in stmt.items:
            call = item.context_expr
            if not isinstance(call, ast.Call) or self.called(call.func) != "exists" or item.optional_vars:
                self.fail("PTO-R071", "the only `with` of a comprehension is `with pl.exists(...)`", item.context_expr,
                          "write `with pl.exists(A[i]):`", UnsupportedSyntaxError)  # fmt: skip
            held += [self.expression(a) for a in call.args]
        for inner in stmt.body:
            self.statement(inner, (*exists, *held))

    def assignment(self, stmt: ast.stmt, target: ast.expr, value: ast.expr, exists: tuple[Expression, ...]) -> None:
        if isinstance(target, ast.Subscript):
            op, fresh, inner = self.reduction(target, value)
            self.add(stmt, target, op, fresh, self.expression(inner), exists)
            return
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        if not all(isinstance(n, ast.Name) for n in names):
            self.fail("PTO-R072", "a statement writes `O[i, j]`, a name for an expression, or names of axes", target,
                      "write the elements of a tensor: `O[i] = ...`")  # fmt: skip
        texts = [n.id for n in names if isinstance(n, ast.Name)]
        values = value.elts if isinstance(value, ast.Tuple) and isinstance(target, ast.Tuple) else [value]
        axes = [isinstance(v, ast.Call) and self.called(v.func) == "axis" for v in values]
        if len(values) == len(texts) > 1 and not any(axes):
            named = [self.expression(v) for v in values]  # all of them before any of the names
            for text, node, e in zip(texts, names, named, strict=True):
                self.let(text, node, e)
            return
        if len(values) == len(texts) and all(axes):
            for text, v in zip(texts, values, strict=True):
                self.axis(text, v)
            return
        callee = self.value_of(value.func) if isinstance(value, ast.Call) else None
        definition = getattr(callee, "definition", None)
        if isinstance(value, ast.Call) and isinstance(definition, Definition):
            self.call(stmt, texts, value, definition)
            return
        if len(texts) != 1:
            self.fail("PTO-R073",
                      "only axes and calls of comprehensions give several names", target, "name one expression")
        self.let(texts[0], target, self.expression(value))

    def let(self, text: str, target: ast.expr, value: Expression) -> None:
        """A name for an expression."""
        if text in self.parameters or text in self.sizes:
            self.fail("PTO-R014", f"`{text}` is an input: inputs are immutable", target, "use another name")
        self.lets[text] = value

    def axis(self, text: str, call: ast.expr) -> None:
        assert isinstance(call, ast.Call)
        if len(call.args) not in (0, 2) or call.keywords:
            self.fail("PTO-R074", "`pl.axis` takes no bounds or two", call, "write `pl.axis()` or `pl.axis(0, N)`")
        ends = [self.expression(a) for a in call.args]
        self.axes[text] = (ends[0], ends[1], self.loc(call)) if ends else None

    def call(self, stmt: ast.stmt, texts: list[str], value: ast.Call, definition: Definition) -> None:
        names: list[str] = []
        for a in value.args:
            if not isinstance(a, ast.Name):
                self.fail("PTO-R075", "a comprehension is called with tensors by name", a, "name the tensor first")
            names.append(a.id)
        if value.keywords:
            self.fail("PTO-R075", "a comprehension is called with tensors in order", value, "leave out the keywords")
        self.tensors |= set(texts)
        self.body.append(CallStatement(tuple(texts), definition, tuple(names), self.loc(stmt)))

    def indices(self, target: ast.Subscript) -> list[str]:
        if not isinstance(target.value, ast.Name):
            self.fail("PTO-R072", "a statement writes `O[i, j]`, a name for an expression, or names of axes", target,
                      "write the elements of a tensor: `O[i] = ...`")  # fmt: skip
        items = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
        for item in items:
            if not isinstance(item, ast.Name):
                self.fail("PTO-R076", "subscripts on the left are plain names", item,
                          "use an index of its own for each dimension")  # fmt: skip
        return [i.id for i in items if isinstance(i, ast.Name)]

    def reduction(self, target: ast.Subscript, value: ast.expr) -> tuple[Any, bool, ast.expr]:
        """The operation of a statement, whether it starts anew, and what is reduced."""
        name = self.called(value.func) if isinstance(value, ast.Call) else None
        if not isinstance(value, ast.Call) or name not in _REDUCTIONS:
            return None, True, value
        if len(value.args) != 1 or any(k.arg != "init" for k in value.keywords):
            self.fail("PTO-R077", f"`pl.{name}` in a comprehension takes one expression (and `init=`)", value,
                      "axes are not given: what is not on the left is reduced")  # fmt: skip
        if not value.keywords:
            return name, True, value.args[0]
        if ast.unparse(value.keywords[0].value) != ast.unparse(target):
            self.fail("PTO-R078", "`init=` is the element that is written", value.keywords[0].value,
                      f"write `init={ast.unparse(target)}`")  # fmt: skip
        return name, False, value.args[0]

    def augmented(self, stmt: ast.AugAssign, exists: tuple[Expression, ...]) -> None:
        ops = {ast.Add: "sum", ast.Sub: "sum", ast.Mult: "prod"}
        op = ops.get(type(stmt.op))
        if isinstance(stmt.target, ast.Subscript) and isinstance(stmt.op, (ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)):
            old = self.subscript(ast.Subscript(stmt.target.value, stmt.target.slice, ast.Load()), self.loc(stmt.target))
            value = Binary(_BINARY[type(stmt.op)], old, self.expression(stmt.value), self.loc(stmt))
            self.add(stmt, stmt.target, None, True, value, exists)
            return
        if not isinstance(stmt.target, ast.Subscript) or op is None:
            self.fail("PTO-R079", "only `+=`, `-=`, `*=` and divisions of elements update them", stmt,
                      "for others write `O[i] = pl.max(..., init=O[i])`")  # fmt: skip
        value = self.expression(stmt.value)
        if isinstance(stmt.op, ast.Sub):
            value = Unary("-", value, value.loc)
        self.add(stmt, stmt.target, op, False, value, exists)

    def add(self, stmt: ast.stmt, target: ast.Subscript, op: Any, fresh: bool, value: Expression,
            exists: tuple[Expression, ...]) -> None:  # fmt: skip
        assert isinstance(target.value, ast.Name)
        indices = tuple(self.indices(target))
        used = {n.name for e in (value, *exists) for n in names_in(e)} | set(indices)
        ranges = tuple(
            Range(name, bounds[0], bounds[1], bounds[2])
            for name, bounds in sorted(self.axes.items(), key=lambda item: item[0])
            if bounds is not None and name in used
        )
        self.tensors.add(target.value.id)
        self.body.append(
            Statement(target.value.id, indices, op, fresh, value, ranges, exists, self.loc(stmt), self.loc(target))
        )

    # -- names ----------------------------------------------------------------------------------------------------

    def around(self, name: str) -> Any:
        """What a name means around the function; `_MISSING` when nothing."""
        if name in self.cells:
            return self.cells[name]
        return self.globals.get(name, getattr(builtins, name, _MISSING))

    def value_of(self, node: ast.expr) -> Any:
        """The object that a name or an attribute of one is; None when it is none of around."""
        if isinstance(node, ast.Name):
            found = None if node.id in self.parameters or node.id in self.lets else self.around(node.id)
            return None if found is _MISSING else found
        if isinstance(node, ast.Attribute):
            return getattr(self.value_of(node.value), node.attr, None)
        return None

    def called(self, node: ast.expr) -> str | None:
        """The name of the `pl` function that is called, None when it is none."""
        return getattr(self.value_of(node), "__pto_builtin__", None)

    # -- expressions ----------------------------------------------------------------------------------------------

    def expression(self, node: ast.expr) -> Expression:
        loc = self.loc(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
            return Number(node.value, loc)
        if isinstance(node, ast.Name):
            return self.name(node, loc)
        if isinstance(node, ast.Subscript):
            return self.subscript(node, loc)
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return Binary(_BINARY[type(node.op)], self.expression(node.left), self.expression(node.right), loc)
        if isinstance(node, ast.UnaryOp):
            operand = self.expression(node.operand)
            op = {ast.USub: "-", ast.Not: "!", ast.Invert: "~"}.get(type(node.op))
            return Unary(op, operand, loc) if op else operand
        if isinstance(node, ast.BoolOp):
            op = "&&" if isinstance(node.op, ast.And) else "||"
            value = self.expression(node.values[0])
            for other in node.values[1:]:
                value = Binary(op, value, self.expression(other), loc)
            return value
        if isinstance(node, ast.Compare) and all(type(o) in _COMPARE for o in node.ops):
            return self.compare(node, loc)
        if isinstance(node, ast.IfExp):
            return Select(*(self.expression(n) for n in (node.test, node.body, node.orelse)), loc=loc)
        if isinstance(node, ast.Call):
            return self.call_expression(node, loc)
        if isinstance(node, ast.Attribute):
            value = self.value_of(node)
            if isinstance(value, (bool, int, float, np.generic)):
                return Number(value.item() if isinstance(value, np.generic) else value, loc)
        self.fail("PTO-R080", f"`{ast.unparse(node)}` has no meaning in a comprehension", node,
                  "write elements of tensors, numbers, and functions of them", UnsupportedSyntaxError)  # fmt: skip

    def name(self, node: ast.Name, loc: Loc) -> Expression:
        name = node.id
        if name in self.left or name in self.axes:
            return Name(name, loc)
        if name in self.lets:
            return self.lets[name]
        if name in self.parameters or name in self.sizes or name in self.tensors:
            return Name(name, loc)
        value = self.around(name)
        if isinstance(value, (bool, int, float, np.generic)):
            return Number(value.item() if isinstance(value, np.generic) else value, loc)
        return Name(name, loc)

    def subscript(self, node: ast.Subscript, loc: Loc) -> Expression:
        base = node.value
        if isinstance(base, ast.Attribute) and base.attr == "shape" and isinstance(base.value, ast.Name):
            if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int) and node.slice.value >= 0:
                return Extent(base.value.id, node.slice.value, loc)
            self.fail("PTO-R081", "an axis of `shape` is a number", node.slice, "write `A.shape[0]`")
        if not isinstance(base, ast.Name):
            self.fail("PTO-R080", f"`{ast.unparse(node)}` has no meaning in a comprehension", node,
                      "elements are read from tensors by name", UnsupportedSyntaxError)  # fmt: skip
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for item in items:
            captured = isinstance(item, ast.Name) and not self.is_local(item.id)
            if isinstance(item, ast.Name) and captured and isinstance(self.around(item.id), (int, np.integer)):
                self.fail("PTO-R082", f"`{item.id}` is a variable around the comprehension "
                          f"(= {self.around(item.id)!r}), and looks like an index", item,
                          f"declare the index: `{item.id} = pl.axis()`; the number is `0 + {item.id}`")  # fmt: skip
        return Read(base.id, tuple(self.expression(i) for i in items), loc) if items else Name(base.id, loc)

    def is_local(self, name: str) -> bool:
        known = (self.left, self.axes, self.lets, self.parameters, self.sizes, self.tensors)
        return any(name in names for names in known)

    def compare(self, node: ast.Compare, loc: Loc) -> Expression:
        operands = [self.expression(n) for n in (node.left, *node.comparators)]
        tests = [
            Binary(_COMPARE[type(op)], a, b, loc)
            for op, a, b in zip(node.ops, operands[:-1], operands[1:], strict=True)
        ]
        value: Expression = tests[0]
        for test in tests[1:]:
            value = Binary("&&", value, test, loc)
        return value

    def call_expression(self, node: ast.Call, loc: Loc) -> Expression:
        function = self.value_of(node.func)
        if isinstance(node.func, ast.Name) and (p := self.parameters.get(node.func.id)) and p.dtype is None:
            return self.host_call(p.name, node, loc)
        if function is None:
            self.fail("PTO-R030", f"`{ast.unparse(node.func)}` is not a function that is known here", node.func,
                      "elements are read with square brackets; functions are defined before")  # fmt: skip
        keywords = tuple((k.arg or "", self.constant(k.value)) for k in node.keywords)
        if any(isinstance(a, ast.Starred) for a in node.args) or any(not k for k, _ in keywords):
            self.fail("PTO-R080", f"`{ast.unparse(node)}` has no meaning in a comprehension", node,
                      "write the arguments one by one", UnsupportedSyntaxError)  # fmt: skip
        name = getattr(function, "__pto_builtin__", None)
        if name in _REDUCTIONS:
            other = f", or `pl.{name}imum(a, b)` for two values" if name in ("min", "max") else ""
            self.fail("PTO-R083", f"`pl.{name}` stands inside an expression: a statement has one reduction, outermost",
                      node, f"write it as a statement of its own{other}")  # fmt: skip
        if name == "cast":
            wanted = self.value_of(node.args[1]) if len(node.args) == 2 else None
            dtype = wanted if isinstance(wanted, DType) or wanted is None else from_numpy(wanted)
            if dtype is None:
                self.fail("PTO-R084", "`pl.cast` takes a value and a dtype", node, "write `pl.cast(x, pl.f32)`")
            return Cast(dtype, self.expression(node.args[0]), loc)
        args = tuple(self.expression(a) for a in node.args)
        if isinstance(function, DType):
            if len(args) != 1:
                self.fail("PTO-R084", f"a conversion to {function} takes one value", node, f"write `pl.{function}(x)`")
            return Cast(function, args[0], loc)
        if name == "pad":
            read = Read(args[0].name, (), args[0].loc) if args and isinstance(args[0], Name) else args and args[0]
            if len(args) != 2 or not isinstance(read, Read):
                self.fail("PTO-R085", "`pl.pad` takes an element of a tensor and a value", node,
                          "write `pl.pad(x[i], 0.0)`")  # fmt: skip
            return Pad(read, args[1], loc)
        if function in (min, max) and len(args) >= 2:
            value = args[0]
            for other in args[1:]:
                value = Apply("minimum" if function is min else "maximum", (value, other), loc=loc)
            return value
        if function in (abs, round) and len(args) == 1:
            return Apply(_ALIASES[function.__name__], args, loc=loc)
        if isinstance(name, str):
            return Apply(name, args, None, keywords, loc)
        if not callable(function):
            self.fail("PTO-R030", f"`{ast.unparse(node.func)}` is not a function", node.func, "call functions only")
        return Apply(getattr(function, "__name__", "f"), args, function, keywords, loc)

    def host_call(self, name: str, node: ast.Call, loc: Loc) -> Expression:
        """A call of a function that is a compile-time parameter."""
        keywords = tuple((k.arg or "", self.constant(k.value)) for k in node.keywords)
        return Apply(name, tuple(map(self.expression, node.args)), HostFunction(name), keywords, loc)

    def constant(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self.constant(node.operand)
        value = self.value_of(node)
        if isinstance(value, (bool, int, float, str)):
            return value
        self.fail("PTO-R086", f"the keyword argument `{ast.unparse(node)}` is not a constant", node,
                  "keyword arguments are compile-time values")  # fmt: skip


class _FunctionReader(Reader):
    """Reads a whole function."""

    def __init__(self, fn: FunctionType, located: Located) -> None:
        cells: dict[str, Any] = {}
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            try:
                cells[name] = cell.cell_contents
            except ValueError:  # not assigned yet: an index, most likely
                continue
        self.fn, self.node = fn, located.node
        self.begin(located.file, cells, fn.__globals__)

    def definition(self) -> Definition:
        node = self.node
        if not isinstance(node, ast.FunctionDef):
            self.fail("PTO-R061", "a comprehension is a `def`", node, "write it as a function of its own")
        for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            self.parameter(argument)
        if node.args.vararg or node.args.kwarg or node.args.defaults or any(node.args.kw_defaults):
            self.fail("PTO-R062", "the parameters of a comprehension have neither defaults nor stars", node,
                      "name each parameter")  # fmt: skip
        self.left = frozenset(_lefts(node))
        for stmt in node.body:
            self.statement(stmt, ())
        if self.returns is None:
            self.fail("PTO-R063", f"`{node.name}` returns nothing", node, "return the tensors that it makes")
        return Definition(node.name, tuple(self.parameters.values()), self.returns, tuple(self.body), False,
                          self.fn.__doc__, self.loc(node))  # fmt: skip


    def parameter(self, argument: ast.arg) -> None:
        kind = self.fn.__annotations__.get(argument.arg, _MISSING)
        if isinstance(kind, str):
            try:
                kind = eval(kind, {**self.fn.__globals__, **self.cells})
            except Exception as error:  # whatever the annotation does
                self.fail("PTO-R064", f"the annotation of `{argument.arg}` cannot be evaluated: {error}", argument,
                          'write `pl.f32["M", "N"]`')  # fmt: skip
        loc = self.loc(argument)
        if isinstance(kind, TensorSpec):
            sizes = tuple(
                s.name if isinstance(s, Symbol) else f"{argument.arg}_{k}" if s is None else s
                for k, s in enumerate(kind.shape)
            )
            kind = Annotated(kind.dtype, sizes)
        if isinstance(kind, Annotated):
            sizes = tuple(s.name if isinstance(s, Symbol) else s for s in kind.sizes)
            for size in sizes:
                named = isinstance(size, str) and size.isidentifier()
                if not named and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
                    self.fail("PTO-R065", f"{size!r} is not a size", argument, "a size is a name or a whole number")
            self.sizes |= {s for s in sizes if isinstance(s, str)}
            self.parameters[argument.arg] = Parameter(argument.arg, kind.dtype, sizes, loc)
            if sizes:
                self.tensors.add(argument.arg)
        elif isinstance(kind, DType):
            self.parameters[argument.arg] = Parameter(argument.arg, kind, (), loc)
        elif kind is constexpr:
            self.parameters[argument.arg] = Parameter(argument.arg, None, (), loc)
        else:
            self.fail("PTO-R066", f"`{argument.arg}` needs a type: a comprehension's shapes are named", argument,
                      f'write `{argument.arg}: pl.f32["M", "N"]` for a tensor, `{argument.arg}: pl.f32` for a number, '
                      f"`{argument.arg}: pl.constexpr` for a compile-time value")  # fmt: skip
