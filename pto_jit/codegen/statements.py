# SPDX-License-Identifier: MIT
"""Statements."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen import builtins
from pto_jit.codegen.builtins.promote import quoted
from pto_jit.codegen.indices import comprehension, is_comprehension
from pto_jit.codegen.intrinsics import left_debugger
from pto_jit.codegen.patterns import match
from pto_jit.codegen.regions import Status, Target
from pto_jit.codegen.syntax import refuse
from pto_jit.codegen.texts import check_by
from pto_jit.codegen.values import RunTimeValueUsed, Scalar, is_runtime
from pto_jit.errors import CompilationError, InternalError, Note, PtoError, UnsupportedSyntaxError
from pto_jit.ir.nodes import Scope

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


class Statements:
    """Executes statement nodes in the current frame; each gives a status (None: control falls through)."""

    def __init__(self, generator: Generator) -> None:
        self.g = generator
        assignments = generator.assignments
        self._table: dict[type[ast.AST], Callable[[Any], Status]] = {
            ast.Expr: self.expression,
            ast.Assign: assignments.plain,
            ast.AugAssign: assignments.augmented,
            ast.AnnAssign: assignments.annotated,
            ast.If: self.if_,
            ast.For: lambda node: self.g.loop_statements.for_(node),
            ast.While: lambda node: self.g.loop_statements.while_(node),
            ast.With: self.with_,
            ast.Return: self.return_,
            ast.Break: self.break_,
            ast.Continue: self.continue_,
            ast.Pass: lambda node: None,
            ast.Nonlocal: lambda node: None,
            ast.Assert: self.assert_,
            ast.Delete: self.delete,
            ast.FunctionDef: self.function,
            ast.Match: lambda node: match(self.g, node),
            ast.Raise: self.raise_,
        }

    def block(self, stmts: Sequence[ast.stmt]) -> Status:
        """Execute statements until control leaves."""
        g = self.g
        recovery = g.recovery
        done = 0
        for k, stmt in enumerate(stmts):
            if k < done:  # together with one before it
                if g.watch is not None:
                    g.watch(g.frame, stmt)
                continue
            mark = recovery.mark()
            try:
                if is_comprehension(g, stmt):
                    g.node = stmt
                    done = k + 1 + comprehension(g, stmt, stmts[k + 1 :])
                    status = None
                    if g.watch is not None:
                        g.watch(g.frame, stmt)
                else:
                    status = self.statement(stmt)
            except (CompilationError, InternalError) as error:
                if mark is None:
                    raise
                status = recovery.recover(error, stmt, mark)
            if status is None and g.targets and any(t.vars["left"] is not False for t in g.targets):
                status = g.control.after_statement(stmt)
            if status is not None:
                return status
        return None

    def statement(self, stmt: ast.stmt) -> Status:
        g = self.g
        g.node = stmt
        handler = self._table.get(type(stmt))
        if handler is None:
            raise refuse(g, stmt)
        try:
            status = handler(stmt)
        except (PtoError, RecursionError):
            raise
        except RunTimeValueUsed as error:
            raise g.misused(error) from None
        except Exception as error:
            if left_debugger(error):
                raise
            place = g.e.loc
            raise InternalError(f"{type(error).__name__} while compiling {place}: {error}") from error
        if g.watch is not None:
            g.watch(g.frame, stmt)
        return status

    # -- simple statements --------------------------------------------------------------------------------------

    def expression(self, node: ast.Expr) -> Status:
        if not isinstance(node.value, ast.Constant):
            value = self.g.expressions.visit(node.value)
            if value is not None and self.g.find_runtime(value) is not None:
                from pto_jit.codegen.unused import check_unused  # for what drops a value

                check_unused(self.g, node.value)
        return None

    def delete(self, node: ast.Delete) -> Status:
        g = self.g
        for target in node.targets:
            g.node = target
            if isinstance(target, ast.Name):
                g.lookup(ast.copy_location(ast.Name(target.id, ast.Load()), target))
                g.unbind(g.frame.owner(target.id) or g.frame, target.id)
            elif isinstance(target, ast.Subscript):
                base = g.expressions.visit(target.value)
                item = g.static(g.expressions.visit(target.slice), "the index of `del`")
                g.node = target
                g.static(base if is_runtime(base) else None, "the object of `del`")
                g.check_mutable(base, "`del`")
                g.python(lambda b, i: b.__delitem__(i), base, item)
            elif isinstance(target, ast.Attribute):
                base = g.expressions.visit(target.value)
                g.node = target
                g.static(base if is_runtime(base) else None, "the object of `del`")
                g.check_mutable(base, "`del`")
                g.python(delattr, base, target.attr)
            else:
                raise refuse(g, target)
        return None

    def function(self, node: ast.FunctionDef) -> Status:
        g = self.g
        value: Any = g.expressions.make_function(node)
        for decorator in reversed(node.decorator_list):
            wrapper = g.expressions.visit(decorator)
            g.node = decorator
            value = g.calls.call(wrapper, (value,), {})
        g.bind(g.frame, node.name, value, node)
        return None

    # -- decisions ----------------------------------------------------------------------------------------------

    def if_(self, node: ast.If) -> Status:
        g = self.g
        test = g.expressions.condition(node.test)
        g.node = node.test
        cond = g.operators.truth(test)
        if not isinstance(cond, Scalar):
            return self.block(node.body if cond else node.orelse)
        live = g.frame.names.live_after.get(node)
        g.node = node

        def side(body: list[ast.stmt], truth: bool) -> Status:
            g.choices.reveal(node.test, truth)
            return self.block(body)

        return g.control.run_if(cond, lambda: side(node.body, True), lambda: side(node.orelse, False), node, live)

    def assert_(self, node: ast.Assert) -> Status:
        g = self.g
        test = g.expressions.condition(node.test)
        g.node = node.test
        test = g.operators.truth(test)
        runtime = is_runtime(test)
        if not runtime and test:
            return None
        g.node = node
        if runtime and isinstance(node.msg, ast.JoinedStr):
            check_by(g, builtins.truth(g, test), node.msg)
            return None
        text = "" if node.msg is None else g.static(g.expressions.visit(node.msg), "the message of an assertion")
        g.node = node
        if not runtime:
            detail = f": {text}" if text != "" else ""
            raise g.error(CompilationError, f"assertion failed at compile time{detail}", code="PTO-N025",
                          hint="the condition is known while compiling, and it is false")  # fmt: skip
        builtins.call("assert_", g, (test, str(text)), {})
        return None

    def raise_(self, node: ast.Raise) -> Status:
        g = self.g
        value = None if node.exc is None else g.expressions.visit(node.exc)
        g.node = node
        if isinstance(value, type) and issubclass(value, BaseException):
            value = g.python(value)
        if not isinstance(value, BaseException):
            raise g.error(CompilationError, "`raise` needs an exception", code="PTO-N026",
                          hint="raise ValueError(...) on a path that is decided at compile time")  # fmt: skip
        if g.inner is not None:
            raise g.error(
                UnsupportedSyntaxError,
                "`raise` under run-time control flow",
                code="PTO-S031",
                hint="compiled code raises no exceptions: use `pl.assert_(cond, msg)`, checked with debug=True",
                notes=(Note("this branch or loop is decided at run time", g.inner.loc),),
            )
        cause = None if node.cause is None else g.expressions.visit(node.cause)
        if isinstance(cause, BaseException):
            value.__cause__ = cause
        if isinstance(value, CompilationError):
            raise value.at(g.e.loc)
        raise g.error(CompilationError, f"{type(value).__name__}: {value}", code="PTO-N027",
                      hint="raised by the kernel itself, on a path taken at compile time") from value  # fmt: skip

    # -- leaving ------------------------------------------------------------------------------------------------

    def return_(self, node: ast.Return) -> Status:
        g = self.g
        value = None if node.value is None else g.expressions.visit(node.value)
        g.node = node
        return g.calls.return_value(value, node)

    def break_(self, node: ast.Break) -> Status:
        g = self.g
        loop = g.loop_stack[-1]
        return g.control.leave_loop("break", node) if loop is None else g.control.leave(loop[0], node)

    def continue_(self, node: ast.Continue) -> Status:
        g = self.g
        loop = g.loop_stack[-1]
        return g.control.leave_loop("next", node) if loop is None else g.control.leave(loop[1], node)

    # -- scopes -------------------------------------------------------------------------------------------------

    def with_(self, node: ast.With) -> Status:
        g = self.g
        call = node.items[0].context_expr
        manager = call.func if isinstance(call, ast.Call) else call
        g.node = call
        kind = g.expressions.visit(manager)
        if getattr(kind, "__pto_builtin__", None) != "incore" or len(node.items) > 1:
            g.node = call
            raise g.error(
                UnsupportedSyntaxError,
                "`with` other than `pl.incore`",
                code="PTO-S032",
                hint="kernels know one context, `with pl.incore():`; do the rest outside the kernel",
            )
        if not isinstance(call, ast.Call) or node.items[0].optional_vars is not None:
            g.node = call
            raise g.error(
                UnsupportedSyntaxError,
                "`pl.incore` is called and gives nothing to bind",
                code="PTO-S033",
                hint="write `with pl.incore():`",
            )
        args, kwargs = g.calls.arguments(call)
        g.node = call
        name = kwargs.pop("name", args[0] if args else None)
        if kwargs or len(args) > 1:
            raise g.error(CompilationError, "pl.incore takes `name=` alone", code="PTO-N028",
                          hint='write `with pl.incore(name="body"):`')  # fmt: skip
        name = g.static(name, "the name of a scope")
        if name is not None and not (isinstance(name, str) and name.isidentifier()):
            g.node = call
            raise g.error(CompilationError, f"{quoted(name)} is not a name for a scope", code="PTO-N029",
                          hint="a scope's name is an identifier")  # fmt: skip
        return self.scope(name, False, lambda: self.block(node.body), node)

    def scope(self, name: str | None, named: bool, run: Callable[[], Status], node: ast.AST) -> Status:
        """Compile `run` as an in-core scope, or in place when it is inside one."""
        g = self.g
        if g.in_scope:
            return run()
        loc = g.loc(node)
        label = name if named and name is not None else g.scope_name(name)
        g.scope_depth += 1
        block = g.e.push()
        mark = len(g.control.pending)
        status = g.control.close_pending(mark, run())
        g.e.pop(block)
        g.scope_depth -= 1
        if block:
            g.e.append(Scope(label, tuple(block), named, loc))
        kind = status.kind if isinstance(status, Target) else ""
        if kind == "entry" and not g.scope_depth:
            assert isinstance(status, Target)
            return g.control.return_now(status, node)
        if kind.startswith("leave "):
            return g.control.leave_loop(kind.split()[1], node)
        return status
