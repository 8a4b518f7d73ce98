# SPDX-License-Identifier: MIT
"""Matrix products of tiles: operands staged in shared memory, ahead of time where a loop reads them.

A loaded tile that only products read goes straight from global to shared memory.  In a sequential loop its copy for a
later iteration is under way while the current one computes; elsewhere the threads wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.dtypes import DType
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Const, For, Op, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import statements, uses
from pto_jit.slotted import frozen, replace
from pto_jit.targets.cuda.kernels import SharedTile
from pto_jit.targets.cuda.loops import jump_out_of, written_tensor
from pto_jit.targets.cuda.roles import (
    Role,
    accumulated,
    blocks_share_operands,
    exchanges_last,
    place_of_load,
    read_in_inner_blocks,
    roles_of,
    suits_warpgroups,
    turned_operands,
    wants_whole_rows,
)
from pto_jit.targets.cuda.shapes import is_high
from pto_jit.targets.cuda.thin import multiplies_matrices
from pto_jit.targets.cuda.values import Axis, Tile
from pto_jit.targets.cuda.vectors import VectorWriter
from pto_jit.targets.source.scalars import memory_type

_PADDING = {"m": "Spread::padded_rows", "n": "Spread::padded_columns", "k": "Spread::padded_depth", "": "pto::padded"}


@frozen
class Staged:
    """A tile in shared memory; `at` is where it starts, `turned`: it stands there as its transpose.

    rows and columns are those of the stored tile.
    """

    dtype: DType
    name: str
    rows: Axis
    columns: Axis
    at: str
    turned: bool = False
    lead: tuple[Axis, ...] = ()


class ProductWriter(VectorWriter):
    """Writes kernels with products; `staged` has what is in shared memory."""

    staged: dict[str, Staged]
    quiet = False
    ahead = True
    buffer = "buffer"

    def prepare(self) -> None:
        super().prepare()
        self.staged = {}
        body, mutable = self.func.body, self.facts.mutable
        products = [s for s in statements(body) if isinstance(s, Op) and s.op == "dot"]
        self.roles = roles_of(body, mutable) if products else {}
        self.stored_turned = turned_operands(body, mutable) if products else {}
        self.pipelined: dict[str, str] = {}  # staged loads of a loop, with the number of the buffer in use
        self.shared_names: dict[tuple[str, Role, str, str, str], str] = {}
        # Exact products do so much with what they read that registers count for more.
        self.grouped = all(map(_on_tensor_cores, products)) and blocks_share_operands(body, self.chain, self.roles)
        self.whole_rows = wants_whole_rows(body, self.roles)
        self.fragments = any(map(multiplies_matrices, products))
        # Where the innermost axis of the grid grows, its longest iterations of a group of rows come first.
        self.grouped |= self.fragments and len(self.chain) > 1 and self.chain[-1].var.name in self.late
        self.warpgroups = suits_warpgroups(body, self.roles) if products else False
        self.unfinished = False  # whether products go on while the loop that adds them up copies operands
        self.packed: dict[str, str] = {}  # left operands in registers that are rounded already
        self.kept_early: set[str] = set()
        self.packed_early: set[str] = set()
        if products:
            self.kept_early, self.packed_early = read_in_inner_blocks(body, self.roles, mutable, self.whole_rows)

    def made(self, var: Var) -> None:
        if var.name in self.packed_early:
            self._pack(var)
        if var.name not in self.kept_early:
            return
        roles = [("m", "k") if k == 0 else ("k", "n") for s in statements(self.func.body)
                 if isinstance(s, Op) and s.op == "dot" for k, a in enumerate(s.args[:2]) if a == var]  # fmt: skip
        if len(set(roles)) == 1:
            self.staged[var.name] = self._in_shared(self.tiles[var.name], var, roles[0], passing=False)

    def _pack(self, var: Var) -> None:
        """Round a left operand of products in inner blocks once: half the registers, and nothing to do in there."""
        tile, dtype = self.tiles[var.name], var.type.dtype  # type: ignore[union-attr]
        rows, _ = self.slots(tile)
        name = self.packed[var.name] = self.names.fresh(f"{self.name(var.name)}_packed")
        self.text.line(f"uint32_t {name}[Spread::padded_depth({tile.columns.capacity}) / 16][{rows} / 2][4];")
        self.text.line(f"pto::pack_tile<Spread, {memory_type(dtype)}>({name}, {tile.array}, {tile.columns.valid});")

    # -- shared memory --------------------------------------------------------------------------------------------

    def _store_of(
        self, wish: str, dtype: DType, role: Role, rows: Axis, columns: Axis, copies: str, *, passing: bool = False
    ) -> str:
        """The name of shared memory for a tile; `passing` ones, read by the next product alone, share it."""
        key = (dtype.name, role, rows.capacity, columns.capacity, copies)
        known = self.shared_names.get(key)
        shares = passing or copies != "1"
        if known is not None and shares and self._is_left(known):
            return known  # loops that follow each other take over what the one before has left
        name = self.names.fresh(("left" if "m" in role else "right") if passing else f"{wish}_shared")
        over = self._larger(key) if shares else ""
        over = self._passed_on(key) if passing and not over else over
        self.shared.append(SharedTile(name, memory_type(dtype), dtype.bytes, role, rows.capacity, columns.capacity,
                                      copies, over, self.warpgroups))  # fmt: skip
        if shares:
            self.shared_names[key] = name
        return name

    def _is_left(self, name: str) -> bool:
        """Whether no loop around has tiles in this memory."""
        over = {t.name: t.over or t.name for t in self.shared}
        return over[name] not in {over[n] for n in self.pipelined.values()}

    def _larger(self, key: tuple[str, Role, str, str, str]) -> str:
        """The memory of a tile of the same kind with more rows that is left; "" without any."""
        over = {t.name: t.over for t in self.shared}
        for (*kind, rows, columns, copies), name in self.shared_names.items():
            same = (*kind, columns, copies) == (*key[:2], *key[3:]) and not over[name] and self._is_left(name)
            if same and rows.isdigit() and key[2].isdigit() and int(rows) > int(key[2]):
                return name
        return ""

    def _passed_on(self, key: tuple[str, Role, str, str, str]) -> str:
        """The memory of an operand of the same type on the same side, of any size, that an earlier product alone has
        read."""
        over = {t.name: t.over for t in self.shared}
        for (dtype, role, *_, copies), name in self.shared_names.items():
            same = (dtype, "m" in role, copies) == (key[0], "m" in key[1], "1")
            if same and not over[name] and self._is_left(name):
                return name
        return ""

    def prologue(self) -> list[str]:
        """Declarations of shared memory, for the start of the kernel."""
        if not self.shared:
            return []
        lines = [f"PTO_SHARED_{'PANELS' if self.warpgroups else 'MEMORY'}(memory);"]
        before = "memory"
        for tile in self.shared:
            if tile.over:
                continue
            others = [t for t in self.shared if t.over == tile.name]
            for one in (tile, *others):
                lines += self._size_of(one)
            room = f"{tile.name}_size"
            for one in others:
                wanted = f"{one.name}_size"
                if one.size != tile.size:
                    wanted = f"({wanted} * {one.size} / {tile.size})"  # both are multiples of 16 bytes
                room = f"pto::larger({room}, {wanted})"
            lines.append(f"{tile.type}* const {tile.name} = reinterpret_cast<{tile.type}*>({before});")
            lines += [f"{one.type}* const {one.name} = reinterpret_cast<{one.type}*>({tile.name});"
                      if one.type != tile.type else f"{one.type}* const {one.name} = {tile.name};"
                      for one in others]  # fmt: skip
            before = f"{tile.name} + {room}" if tile.copies == "1" else f"{tile.name} + {tile.copies} * {room}"
        return lines

    def _size_of(self, tile: SharedTile) -> list[str]:
        rows, columns = (
            f"{_PADDING[r]}({c})" if r in _PADDING else f"pto::tight<{tile.type}>({c})" if r == "~" else (
                c if r == "=" else r)
            for r, c in zip(tile.role, (tile.rows, tile.columns), strict=True)
        )
        size = f"{tile.name}_rows * pto::pitch<{tile.type}>({tile.name}_columns)"
        if tile.panels:
            size = f"pto::stored_size<WARPGROUPS, {tile.type}>({tile.name}_rows, {tile.name}_columns)"
        return [f"constexpr int {tile.name}_rows = {rows};", f"constexpr int {tile.name}_columns = {columns};",
                f"constexpr int {tile.name}_size = {size};"]  # fmt: skip

    # -- loads ----------------------------------------------------------------------------------------------------

    def staged_load(self, op: Op) -> bool:
        name = op.results[0].name
        role = self.roles.get(name)
        if role is None:
            return super().staged_load(op)
        tile, at, strides = self.region(op)
        dtype = tile.dtype
        if name in self.pipelined:
            memory = self.pipelined[name]
            self.staged[name] = Staged(
                dtype, memory, tile.rows, tile.columns, f"{memory} + {self.buffer} * {memory}_size", lead=tile.lead
            )
            return True
        self.reads_memory(op.args[0])
        memory = self._store_of(self.name(name), dtype, role, tile.rows, tile.columns, "1", passing=self._passes(name))
        self.text.line("Spread::synchronise();")
        self._stage(memory, memory, tile, at, strides)
        self.text.line("pto::commit_copies();")
        self.text.line("pto::wait_for_copies<0>();")
        self._meet()
        self.staged[name] = Staged(dtype, memory, tile.rows, tile.columns, memory, lead=tile.lead)
        return True

    def _meet(self) -> None:
        """The threads meet when copies are done, so that all see them."""
        if self.warpgroups:
            self.text.line("pto::show_copies<WARPGROUPS>();")
        self.text.line("Spread::synchronise();")
        self.read.clear()
        self.written.clear()

    def _passes(self, name: str) -> bool:
        """Whether the next product of the block is the only one to read a staged tile."""
        reader, where = self.readers[name]
        if reader.op == "transpose":
            name = reader.results[0].name
            reader, where = self.readers.get(name, (reader, where))
        alone = self.facts.uses[name] == 1 and where == self.current_block
        return alone and reader.op == "dot" and self._next_product_is(reader)

    def _next_product_is(self, product: Op) -> bool:
        """Whether, from the current statement on, `product` comes before any other product of the block."""
        for s in self.following():
            if s is product:
                return True
            if any(isinstance(inner, Op) and inner.op == "dot" for inner in statements((s,))):
                return False
        return False

    def _stage(self, memory: str, to: str, tile: Tile, at: str, strides: tuple[str, str]) -> None:
        layout = ", WARPGROUPS" if self.warpgroups else ""
        self.text.line(
            f"pto::stage_tile<{memory}_rows, {memory}_columns, Spread::THREADS{layout}>({to}, {at}, {strides[0]}, "
            f"{strides[1]}, {tile.there(tile.rows.valid)}, {tile.columns.valid});"
        )

    def _transpose(self, op: Op) -> None:
        source = op.args[0]
        assert isinstance(source, Var)
        known = self.staged.get(source.name)
        role = self.stored_turned.get(op.results[0].name) if known is None else None
        if role is not None:  # products read it as it stands
            passing = self._passes(op.results[0].name)
            known = self._in_shared(self.tiles[source.name], source, role, passing=passing)
        if known is None or not exchanges_last(op):
            super()._transpose(op)
        else:
            self.staged[op.results[0].name] = replace(known, turned=not known.turned)

    # -- loops ----------------------------------------------------------------------------------------------------

    def _plain_loop(self, loop: For, var: str, start: str, stop: str, step: str, down: bool) -> None:
        loads = self._prefetched(loop)
        if not loads:
            super()._plain_loop(loop, var, start, stop, step, down)
            return
        for op, _ in loads:
            tile_type = op.results[0].type
            assert isinstance(tile_type, TileType)
            rank = tile_type.rank
            rows, columns = (self.axis(e) for e in op.args[2 * rank - 1 : 1 + 2 * rank])
            name = op.results[0].name
            self.pipelined[name] = self._store_of(
                self.name(name), tile_type.dtype, self.roles[name], rows, columns, "STAGES"
            )
        stage = self.names.fresh(f"stage_{var}")
        with self.text.block(f"const auto {stage} = [&](const int64_t {var}, const int into)", "};"):
            self._stage_all(loads)
        summed = accumulated(loop, self.roles)
        alone = summed is not None and {op.results[0].name for op, _ in loads} >= self._loaded(summed)
        jumps = jump_out_of(loop.body) is not None  # then nothing may be left to do at the end of an iteration
        unfinished = self.warpgroups and alone and not jumps
        in_turns = alone and summed is not None and _on_tensor_cores(summed) and not jumps
        ahead = "STAGES - 1 - WARPGROUPS" if unfinished else "STAGES - 1"
        later = f"({ahead})" if step == "1" else f"({ahead}) * {step}"
        self.text.line("Spread::synchronise();  // nobody reads what an earlier loop staged")
        with self.text.block(f"for (int ahead = 0; ahead < {ahead}; ++ahead)"):
            first = f"{start} + ahead" if step == "1" else f"{start} + ahead * {step}"
            first = first.removeprefix("0 + ")
            self.text.line(f"if ({first} < {stop}) {stage}({first}, ahead);")
            self.text.line("pto::commit_copies();")
        outer, self.buffer = self.buffer, self.names.fresh("buffer")
        buffer = self.buffer
        self.text.line(f"int {buffer} = 0;")
        copy = f"{var} + {later} < {stop}) {stage}({var} + {later}, ({buffer} + {ahead}) % STAGES);"
        early = self.names.fresh("early") if in_turns else ""
        if in_turns:
            self.text.line("// Warps copy before a product or after it, in turns, so that others multiply meanwhile.")
            self.text.line(f"const bool {early} = Spread::copies_early<STAGES, "
                           f"{'WARPGROUPS' if self.warpgroups else 'false'}>();")  # fmt: skip
        with self.text.block(
            f"for (int64_t {var} = {start}; {var} < {stop}; {var} += {step}, {buffer} = ({buffer} + 1) % STAGES)"
        ):
            self.text.line(f"pto::wait_for_stage<STAGES{' - WARPGROUPS' if unfinished else ''}>();")
            self._meet()
            self.text.line(f"if ({early} && {copy}" if in_turns else f"if ({copy}")
            self.text.line(f"{'if (STAGES == 1) ' if in_turns else ''}pto::commit_stage<Spread, STAGES>();")
            self.unfinished = unfinished
            self.block(loop.body)
            self.unfinished = False
            if in_turns:  # over what the product before the previous one read: all threads have waited for that
                self.text.line(f"if (!{early} && {copy}")
                self.text.line("if (STAGES > 1) pto::commit_copies();")
            if unfinished:
                self.text.line("pto::wait_for_products<WARPGROUPS, 1>();")
        if jumps:
            self.text.line("pto::wait_for_copies<0>();  // those of iterations that a `break` has left out")
        if unfinished:
            assert summed is not None
            self._complete(self.tiles[summed.results[0].name].array)
        self.buffer = outer
        for op, _ in loads:
            del self.pipelined[op.results[0].name]

    def _loaded(self, dot: Op) -> set[str]:
        """The loads of a product's operands, which may be turned."""
        made = {r.name: s for s in statements(self.func.body) if isinstance(s, Op) for r in s.results}
        sources = [made[a.name] for a in dot.args[:2] if isinstance(a, Var)]
        sources = [made[s.args[0].name] if s.op == "transpose" and isinstance(s.args[0], Var) else s for s in sources]
        return {s.results[0].name for s in sources}

    def _complete(self, array: str | None) -> None:
        self.text.line(f"pto::complete_products<WARPGROUPS>({array});")

    def _prefetched(self, loop: For) -> list[tuple[Op, list[Op]]]:
        """The staged loads directly in a loop that can be issued ahead, with what their places are made of."""
        if not self.ahead or not self.roles or not isinstance(loop.step, Const) or loop.step.value <= 0 or (
            loop.var.name in self.declared
        ):
            return []
        written = {self.facts.roots[x.name] for s in statements(loop.body) if (x := written_tensor(s)) is not None}
        written |= {twin for root in written for twin in self.twins.get(root, ())}
        made = {r.name: s for s in loop.body if isinstance(s, Op) for r in s.results}
        direct = {id(s) for s in loop.body}
        elsewhere = {
            r.name for s in statements(loop.body) if isinstance(s, Op) and id(s) not in direct for r in s.results
        }
        out: list[tuple[Op, list[Op]]] = []
        for op in loop.body:
            if not isinstance(op, Op) or not op.results or op.results[0].name not in self.roles:
                continue
            if not isinstance(op.args[0], Var) or self.facts.roots[op.args[0].name] in written:
                continue
            needed = place_of_load(op, made, elsewhere | self.facts.mutable, loop.body)
            if needed is not None:
                out.append((op, needed))
        return out

    def _stage_all(self, loads: Sequence[tuple[Op, list[Op]]]) -> None:
        """The body of the function that issues the copies of one iteration."""
        self.quiet = True
        seen: set[str] = set()
        for op, needed in loads:
            for other in needed:
                if other.results[0].name not in seen:
                    seen.add(other.results[0].name)
                    self.operation(other)
            tile, at, strides = self.region(op)
            memory = self.pipelined[op.results[0].name]
            self._stage(memory, f"{memory} + into * {memory}_size", tile, at, strides)
        self.quiet = False

    def check(self, condition: str, error: str, message: str, loc: Loc, first: str, second: str) -> None:
        if not self.quiet:
            super().check(condition, error, message, loc, first, second)

    # -- products -------------------------------------------------------------------------------------------------

    def _dot(self, op: Op) -> None:
        result = op.results[0]
        a, b = op.args[0], op.args[1]
        assert isinstance(result.type, TileType) and isinstance(a, Var) and isinstance(b, Var)
        if is_high(result):
            self.multiply_batches(op)
            return
        if b.name in self.rows_streamed:
            self.multiply_row(op)
            return
        left, right = self._operand(a), self._operand(b)
        (rows, depth), (inner, columns) = _meaning(left), _meaning(right)
        self._check_contraction(op, depth, inner)
        target = self._accumulator(op, rows, columns, (left.lead, right.lead))
        tensor_cores = _on_tensor_cores(op)
        self.tensor_cores = self.tensor_cores or tensor_cores
        padded = f"Spread::padded_depth({depth.capacity})"
        if tensor_cores and isinstance(left, Tile) and self.whole_rows:
            right = self._in_shared(right, b, ("k", "n"))
            if a.name in self.packed:
                self.text.line(f"pto::multiply_packed<Spread, {self._pitch(right)}, {_bool(right.turned)}>({target}, "
                               f"{self.packed[a.name]}, {right.at});")  # fmt: skip
                return
            register = self.materialised(left)
            self.text.line(
                f"pto::multiply_from_registers<Spread, {padded}, {self._pitch(right)}, {_bool(right.turned)}>"
                f"({target}, {register.array}, {depth.valid}, {right.at});"
            )
        else:
            left, right = self._in_shared(left, a, ("m", "k")), self._in_shared(right, b, ("k", "n"))
            if self.warpgroups:
                self._multiply_staged(padded, left, right, target)
                return
            function = "multiply_on_tensor_cores" if tensor_cores else "multiply"
            self.text.line(
                f"pto::{function}<Spread, {padded}, {self._pitch(left)}, {_bool(left.turned)}, {self._pitch(right)}, "
                f"{_bool(right.turned)}>({target}, {left.at}, {right.at});"
            )

    def _multiply_staged(self, depth: str, left: Staged, right: Staged, target: str) -> None:
        """A product by warpgroups, where a version of the kernel has them."""
        sides = ", ".join(f"{s.name}_rows, {s.name}_columns, {_bool(s.turned)}" for s in (left, right))
        self.text.line(
            f"pto::multiply_staged<Spread, WARPGROUPS, {depth}, {sides}>({target}, {left.at}, {right.at});"
        )
        if not self.unfinished:
            self._complete(target)

    def _elementwise(self, op: Op) -> None:
        if self._rounded_by_readers(op):
            wide = replace(self.tile(op.args[0]), dtype=op.results[0].type.dtype)  # type: ignore[union-attr]
            self.put(op.results[0], wide, stable=self.stable(op.args))
        else:
            super()._elementwise(op)

    def _rounded_by_readers(self, op: Op) -> bool:
        """Whether a cast to 16 bits is left to what reads its result: stores, and products that it is the left operand
        of, in registers."""
        source, result = op.args[0], op.results[0]
        if op.op != "cast" or not isinstance(source, Var) or result.name in self.facts.mutable:
            return False
        kind, wide = result.type.dtype, source.type.dtype  # type: ignore[union-attr]
        if kind.kind != "f" or kind.bits != 16 or wide.kind != "f" or wide.bits != 32:
            return False
        readers = [s for s in statements(self.func.body) if result in uses(s)]
        return all(isinstance(s, Op) and self._rounds(s, result, kind) for s in readers)

    def _rounds(self, reader: Op, tile: Var, kind: DType) -> bool:
        """Whether an operation rounds the elements of a tile that it reads to the type that they should have."""
        if [k for k, a in enumerate(reader.args) if a == tile] != [0]:
            return False
        if reader.op == "dot":
            return self.whole_rows and multiplies_matrices(reader) and reader.args[1].type.dtype == kind  # type: ignore
        return reader.op == "store" and reader.args[1].type.dtype == kind  # type: ignore[union-attr]

    def _operand(self, operand: Var) -> Tile | Staged:
        return self.staged.get(operand.name) or self.tiles[operand.name]

    def _pitch(self, staged: Staged) -> str:
        return f"pto::pitch<{memory_type(staged.dtype)}>({staged.name}_columns)"

    def _in_shared(self, operand: Tile | Staged, var: Var, role: Role, *, passing: bool = True) -> Staged:
        """An operand in shared memory; one in registers is put there."""
        if isinstance(operand, Staged):
            return operand
        tile = self.materialised(operand)
        memory = self._store_of(self.name(var.name), tile.dtype, role, tile.rows, tile.columns, "1", passing=passing)
        self.text.line("Spread::synchronise();")
        self.text.line(
            f"pto::keep_tile<Spread, {memory}_rows, {memory}_columns>({memory}, {tile.array}, {tile.rows.valid}, "
            f"{tile.columns.valid});"
        )
        self.text.line("Spread::synchronise();")
        self.read.clear()
        self.written.clear()
        return Staged(tile.dtype, memory, tile.rows, tile.columns, memory, lead=tile.lead)


def _on_tensor_cores(dot: Op) -> bool:
    """Whether both operands are of one 16-bit type of floats."""
    left, right = (a.type.dtype for a in dot.args[:2])  # type: ignore[union-attr]
    return left.kind == "f" and left.bits == 16 and right == left


def _meaning(operand: Tile | Staged) -> tuple[Axis, Axis]:
    """Rows and columns as the product sees them."""
    if isinstance(operand, Staged) and operand.turned:
        return operand.columns, operand.rows
    return operand.rows, operand.columns


def _bool(value: bool) -> str:
    return "true" if value else "false"
