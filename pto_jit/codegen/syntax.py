# SPDX-License-Identifier: MIT
"""Every class of Python's syntax tree and what happens to it in a kernel."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from pto_jit.errors import UnsupportedSyntaxError

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

# Supported classes, with where they are handled.
SUPPORTED: dict[str, str] = {
    **dict.fromkeys(
        ["Constant", "Name", "BinOp", "Call", "Attribute", "Subscript", "Compare", "BoolOp", "UnaryOp", "IfExp",
         "Tuple", "List", "Set", "Dict", "Slice", "NamedExpr", "Lambda", "JoinedStr", "FormattedValue", "ListComp",
         "SetComp", "GeneratorExp", "DictComp"], "expression"),
    **dict.fromkeys(
        ["Assign", "AugAssign", "AnnAssign", "Expr", "Return", "If", "For", "While", "With", "Break", "Continue",
         "Pass", "Assert", "Delete", "FunctionDef", "Nonlocal", "Match", "Raise"], "statement"),
    **dict.fromkeys(["Starred", "keyword", "arguments", "arg", "comprehension", "withitem"], "part of its parent"),
    **dict.fromkeys(
        ["match_case", "MatchValue", "MatchSingleton", "MatchSequence", "MatchMapping", "MatchClass", "MatchStar",
         "MatchAs", "MatchOr"], "pattern"),
    **dict.fromkeys(
        ["Add", "Sub", "Mult", "Div", "FloorDiv", "Mod", "Pow", "MatMult", "BitAnd", "BitOr", "BitXor", "LShift",
         "RShift", "And", "Or", "Not", "Invert", "UAdd", "USub", "Eq", "NotEq", "Lt", "LtE", "Gt", "GtE", "Is",
         "IsNot", "In", "NotIn", "Load", "Store", "Del"], "operator or context"),
}  # fmt: skip

# Refused classes: what Python calls it, and the nearest form that works.
REFUSED: dict[str, tuple[str, str, str]] = {
    "AsyncFunctionDef": ("`async def`", "PTO-S020", "write a plain `def`: loops are made parallel with "
                         "`pl.range(..., parallel=True)`"),
    "AsyncFor": ("`async for`", "PTO-S021", "write `for i in pl.range(..., parallel=True)`"),
    "AsyncWith": ("`async with`", "PTO-S022", "write `with pl.incore():`"),
    "Await": ("`await`", "PTO-S023", "call the function; in-core functions called from a `@pto.jit` body run as tasks"),
    "Yield": ("`yield`", "PTO-S024", "return a tuple, or store the values to a tensor"),
    "YieldFrom": ("`yield from`", "PTO-S024", "return a tuple, or store the values to a tensor"),
    "ClassDef": ("`class`", "PTO-S025", "define the class outside the kernel and use its instances"),
    "Import": ("`import`", "PTO-S026", "import the module at the top of the file"),
    "ImportFrom": ("`from ... import`", "PTO-S026", "import the name at the top of the file"),
    "Global": ("`global`", "PTO-S027", "return the value, or store it to a tensor argument"),
    "Try": ("`try`", "PTO-S028", "test the condition with `if`; compiled code raises no Python exceptions"),
    "TryStar": ("`try`", "PTO-S028", "test the condition with `if`; compiled code raises no Python exceptions"),
    "ExceptHandler": ("`except`", "PTO-S028", "test the condition with `if`; compiled code raises no exceptions"),
    "TypeAlias": ("`type` statement", "PTO-S029", "define the alias outside the kernel"),
    "TypeVar": ("type parameter", "PTO-S029", "leave the type parameters out"),
    "ParamSpec": ("type parameter", "PTO-S029", "leave the type parameters out"),
    "TypeVarTuple": ("type parameter", "PTO-S029", "leave the type parameters out"),
}  # fmt: skip

# Classes that no function body can contain: roots, abstract bases, and names kept for old programs.
ELSEWHERE: frozenset[str] = frozenset(
    "AST Module Interactive Expression FunctionType Suite mod stmt expr expr_context boolop operator unaryop cmpop "
    "excepthandler alias pattern slice type_ignore TypeIgnore type_param AugLoad AugStore Param ExtSlice Index Num Str "
    "Bytes NameConstant Ellipsis TemplateStr Interpolation".split()
)


def refuse(g: Generator, node: ast.AST, construct: str | None = None) -> UnsupportedSyntaxError:
    """The error for a node that kernels cannot contain."""
    name, code, hint = REFUSED.get(
        type(node).__name__,
        (f"this {type(node).__name__}", "PTO-S030", "see the table of supported syntax in docs/language.md"),
    )
    if hasattr(node, "lineno"):
        g.node = node
    error = g.error(UnsupportedSyntaxError, f"{construct or name} is not supported in a kernel", code=code, hint=hint)
    assert isinstance(error, UnsupportedSyntaxError)
    return error
