# SPDX-License-Identifier: MIT
"""Functions of the program that a kernel calls: function objects, which see its numbers, and rules that combine states
by them (`pto_lines.cuh`)."""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.dtypes import DType
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Op, Region
from pto_jit.ir.walk import WRITES, statements
from pto_jit.slotted import frozen
from pto_jit.targets.cuda.elements import RULES
from pto_jit.targets.cuda.flatten import unsupported
from pto_jit.targets.cuda.function import FunctionWriter
from pto_jit.targets.source.scalars import register_type


@frozen
class Rule:
    """How states along a line are combined.

    text: the rule, an expression; state: the C type of a state; typ: of the numbers in it, a structure of several;
    fields: how each of them is read; known: the rule is one of `pto_rules.cuh`, whose order makes no difference.
    """

    text: str
    state: str
    typ: str
    fields: tuple[str, ...]
    known: bool

    def of(self, values: Sequence[str], some: str = "true") -> str:
        """A state of such numbers; some: whether it is one, of a rule that is not known."""
        if self.known:
            return values[0]
        return f"{self.state}{{{values[0] if len(values) == 1 else '{' + ', '.join(values) + '}'}, {some}}}"

    def read(self, state: str, k: int) -> str:
        """The number `k` of a state."""
        return state if self.known else f"{state}.value{self.fields[k]}"


class RuleWriter(FunctionWriter):
    """Writes these."""

    def function_of(self, region: Region, types: Sequence[str], result: str, what: str, loc: Loc) -> str:
        """The name of a function object that computes what a region does, of its parameters; what: it is a function
        of."""
        if any(isinstance(s, Op) and s.op in WRITES for s in statements(region.body)):
            raise unsupported(f"a function of `{what}` that writes memory", loc, "store what it returns")
        self.meet_before(region.body)
        name = self.names.fresh("function")
        params = ", ".join(f"{t} {self.name(p.name)}" for t, p in zip(types, region.params, strict=True))
        with self.text.block(f"const auto {name} = [&]({params})", "};"):
            self.block(region.body)
            values = ", ".join(self.scalar(r) for r in region.results)
            made = f"{result}{{{values}}}" if len(region.results) > 1 else f"{result}({values})"
            self.text.line(f"return {made};")
        return name

    def rule_of(self, region: Region, kinds: Sequence[DType], what: str, loc: Loc) -> Rule:
        """The rule of a function that combines two states; what: it is a function of."""
        known = _known(region, kinds)
        if known:
            typ = register_type(kinds[0])
            return Rule(f"pto::{known}<{typ}>()", typ, typ, ("",), True)
        return self.combining_rule(region, kinds, what, loc)

    def combining_rule(self, region: Region, kinds: Sequence[DType], what: str, loc: Loc) -> Rule:
        """The same, by a function object whatever the function is."""
        typ, fields = self.state_type(kinds)
        types = [register_type(k) for k in kinds]
        function = self.function_of(region, types * 2, typ, what, loc)
        if len(kinds) > 1:
            wide, function = function, self.names.fresh("combine")
            both = ", ".join(f"{s}{f}" for s in "xy" for f in fields)
            self.text.line(f"const auto {function} = [&](const {typ}& x, const {typ}& y) {{ return {wide}({both}); }};")
        rule = self.names.fresh("rule")
        self.text.line(f"const auto {rule} = pto::combined_by<{typ}>({function});")
        return Rule(rule, f"pto::Maybe<{typ}>", typ, tuple(fields), False)

    def state_type(self, kinds: Sequence[DType]) -> tuple[str, list[str]]:
        """The type of several numbers, and how each is read: a structure, or the type of the only one."""
        types = [register_type(k) for k in kinds]
        if len(types) == 1:
            return types[0], [""]
        name = self.names.fresh("State")
        parts = "; ".join(f"{t} part{k}" for k, t in enumerate(types))
        self.text.line(f"struct {name} {{ {parts}; }};")
        return name, [f".part{k}" for k in range(len(types))]


def _known(region: Region, kinds: Sequence[DType]) -> str:
    """The rule of `pto_rules.cuh` that a function of two numbers is; "" for others."""
    op = region.body[0] if len(region.body) == 1 and len(kinds) == 1 else None
    if not isinstance(op, Op) or op.op not in RULES or kinds[0].kind == "b":
        return ""
    same = op.results == region.results and op.results[0].type.dtype == kinds[0]  # type: ignore[union-attr]
    return RULES[op.op] if same and set(op.args) == set(region.params) else ""
