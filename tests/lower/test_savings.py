# SPDX-License-Identifier: MIT
"""What docs/savings.md says: each pass saves memory on chip, instructions or traffic."""

from __future__ import annotations

import pytest

from tests.lower.savings import (
    PAIRS,
    PASSES,
    ascend_by_rows,
    ascend_form,
    ascend_pair,
    scratch,
    source_of,
    source_of_calls,
    unified_buffer,
)


@pytest.mark.parametrize(
    ("kernel", "without"),
    [("softmax", "fused"), ("silu_mul", "fused"), ("matmul_bias_gelu", "fused"), ("matmul_bias_gelu", "coalesced"),
     ("attention", "coalesced"), ("mlp", "reuse")],
)  # fmt: skip
def test_a_pass_saves_scratch_memory(kernel: str, without: str) -> None:
    assert without in PASSES
    assert scratch(source_of(kernel, None)) < scratch(source_of(kernel, without))


def test_fused_rows_need_scratch_memory_for_one_row_at_most() -> None:
    assert scratch(source_of("layer_norm", None)) == 0
    assert scratch(source_of("softmax", None)) == 4 * 256 + 64  # a row of exponentials, and a cache line behind it


def test_calls_are_inlined() -> None:
    functions = [{f.name for f in source_of_calls(inlined).functions} for inlined in (True, False)]
    assert functions == [{"doubled"}, {"row", "doubled"}]


@pytest.mark.parametrize("kernel", ["softmax", "matmul_bias_gelu"])
def test_buffers_share_memory_on_ascend(kernel: str) -> None:
    used, apart = unified_buffer(ascend_form(kernel))
    assert used < apart


def test_blocks_of_rows_save_instructions_on_ascend() -> None:
    after, before = ascend_by_rows("softmax")
    assert before == 7 and after == 7 / 16


@pytest.mark.parametrize("name", PAIRS)
def test_one_kernel_moves_less_than_one_for_each_operation(name: str) -> None:
    apart, specs, together, given = PAIRS[name]
    before, after = ascend_pair(apart, specs), ascend_pair(together, given)
    assert after[0] == 1 < before[0]
    assert after[1] * 2 < before[1] and after[2] < before[2]
