# SPDX-License-Identifier: MIT
"""LLVM IR of the loops that measure this machine's limits.

Each module defines `void probe(ptr, ptr, i64 count, i64 repeats)`.  The IR is final: it is given to code generation
without IR passes, which would turn a copy into a call of memcpy, or fold a loop whose result is not used.
"""

from __future__ import annotations

# Independent accumulators: enough for latency times throughput (4-5 cycles, 2 units), few enough for the registers.
_WIDE_CHAINS, _NARROW_CHAINS = 20, 12
# Vectors moved per iteration of a memory probe.
_UNROLL = 8


def _module(attributes: str, body: str, declarations: str = "") -> str:
    return f"""{declarations}
define void @probe(ptr %out, ptr %in, i64 %count, i64 %repeats) #0 {{
entry:
{body}
}}
attributes #0 = {{ nounwind {attributes} }}
!0 = !{{i32 1}}
"""


def _width(lanes: int) -> str:
    bits = lanes * 32
    return f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'


def fma_chains(lanes: int) -> int:
    """How many accumulators the arithmetic probes of this vector length use."""
    return _WIDE_CHAINS if lanes == 16 else _NARROW_CHAINS


def fma_f32(lanes: int) -> str:
    """`count` iterations, in each of which every accumulator takes one fused multiply-add of `lanes` f32."""
    return _accumulate(
        lanes,
        operand=f"<{lanes} x float>",
        step=f"call <{lanes} x float> @llvm.fma.v{lanes}f32(<{lanes} x float> %m, <{lanes} x float> {{acc}}, "
        f"<{lanes} x float> %m2)",
        declaration=f"declare <{lanes} x float> @llvm.fma.v{lanes}f32(<{lanes} x float>, <{lanes} x float>, "
        f"<{lanes} x float>)",
    )


def dot_bf16() -> str:
    """The same with the AVX-512 instruction that adds products of pairs of bf16 to f32: 64 operations each."""
    return _accumulate(
        16,
        operand="<32 x bfloat>",
        step="call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> {acc}, <32 x bfloat> %m, "
        "<32 x bfloat> %m2)",
        declaration="declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float>, <32 x bfloat>, "
        "<32 x bfloat>)",
    )


def tiles_bf16() -> str:
    """`count * repeats` times four products of AMX tiles, 16384 operations each; `in`: 64 bytes of configuration."""
    declarations = """declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilerelease()
declare void @llvm.x86.tilezero(i8 immarg)
declare void @llvm.x86.tdpbf16ps(i8 immarg, i8 immarg, i8 immarg)"""
    zeros = "\n".join(f"  call void @llvm.x86.tilezero(i8 {i})" for i in range(8))
    steps = "\n".join(
        f"  call void @llvm.x86.tdpbf16ps(i8 {2 * i + j}, i8 {4 + i}, i8 {6 + j})" for i in range(2) for j in range(2)
    )
    body = f"""  call void @llvm.x86.ldtilecfg(ptr %in)
{zeros}
  %total = mul i64 %count, %repeats
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{steps}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %total
  br i1 %more, label %loop, label %done
done:
  call void @llvm.x86.tilerelease()
  ret void"""
    return _module("", body, declarations)


def _accumulate(lanes: int, operand: str, step: str, declaration: str) -> str:
    vector, chains = f"<{lanes} x float>", fma_chains(lanes)
    phis = "\n".join(f"  %a{i} = phi {vector} [ %start{i}, %entry ], [ %b{i}, %loop ]" for i in range(chains))
    starts = "\n".join(
        f"  %p{i} = getelementptr {vector}, ptr %in, i64 {i}\n  %start{i} = load {vector}, ptr %p{i}, align 4"
        for i in range(chains)
    )
    steps = "\n".join(f"  %b{i} = {step.format(acc=f'%a{i}')}" for i in range(chains))
    stores = "\n".join(
        f"  %q{i} = getelementptr {vector}, ptr %out, i64 {i}\n  store {vector} %b{i}, ptr %q{i}, align 4"
        for i in range(chains)
    )
    # `repeats` only takes part so that all probes have one signature.
    body = f"""{starts}
  %pm = getelementptr {vector}, ptr %in, i64 {chains}
  %m = load {operand}, ptr %pm, align 2
  %pm2 = getelementptr {vector}, ptr %in, i64 {chains + 1}
  %m2 = load {operand}, ptr %pm2, align 2
  %total = mul i64 %count, %repeats
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
{steps}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %total
  br i1 %more, label %loop, label %done
done:
{stores}
  ret void"""
    return _module(_width(lanes), body, declaration)


def copy(lanes: int, *, streaming: bool, x86: bool) -> str:
    """Copies `count` blocks of `8 * lanes` f32, `repeats` times, optionally with stores that bypass the caches."""
    vector = f"<{lanes} x float>"
    mark = ", !nontemporal !0" if streaming else ""
    moves = "\n".join(
        f"""  %s{i} = getelementptr {vector}, ptr %from, i64 {i}
  %v{i} = load {vector}, ptr %s{i}, align {lanes * 4}
  %d{i} = getelementptr {vector}, ptr %to, i64 {i}
  store {vector} %v{i}, ptr %d{i}, align {lanes * 4}{mark}"""
        for i in range(_UNROLL)
    )
    fence, declaration = "", ""
    if streaming:
        # Streaming stores are weakly ordered: what is timed includes that they have become visible.
        fence = "  call void @llvm.x86.sse.sfence()" if x86 else "  fence seq_cst"
        declaration = "declare void @llvm.x86.sse.sfence()" if x86 else ""
    head = f"""  %from = getelementptr {vector}, ptr %in, i64 %base
  %to = getelementptr {vector}, ptr %out, i64 %base"""
    return _module(_width(lanes), _nest(f"{head}\n{moves}", "", fence, "  ret void"), declaration)


def read(lanes: int) -> str:
    """Reads `count` blocks of `8 * lanes` 32-bit words, `repeats` times, and combines them so that none is left out."""
    vector = f"<{lanes} x i32>"
    loads = "\n".join(
        f"""  %s{i} = getelementptr {vector}, ptr %from, i64 {i}
  %v{i} = load {vector}, ptr %s{i}, align {lanes * 4}
  %x{i} = xor {vector} %acc{i}, %v{i}"""
        for i in range(_UNROLL)
    )
    head = f"  %from = getelementptr {vector}, ptr %in, i64 %base"
    inner = "\n".join(f"  %acc{i} = phi {vector} [ %outer{i}, %repeat ], [ %x{i}, %loop ]" for i in range(_UNROLL))
    outer = "\n".join(
        f"  %outer{i} = phi {vector} [ zeroinitializer, %entry ], [ %x{i}, %after ]" for i in range(_UNROLL)
    )
    finish = "\n".join(
        f"  %q{i} = getelementptr {vector}, ptr %out, i64 {i}\n  store {vector} %x{i}, ptr %q{i}, align 4"
        for i in range(_UNROLL)
    )
    return _module(_width(lanes), _nest(f"{head}\n{loads}", inner, "", f"{finish}\n  ret void", outer))


def _nest(body: str, inner_phis: str, after: str, finish: str, outer_phis: str = "") -> str:
    return f"""  br label %repeat
repeat:
  %r = phi i64 [ 0, %entry ], [ %rnext, %after ]
{outer_phis}
  br label %loop
loop:
  %i = phi i64 [ 0, %repeat ], [ %next, %loop ]
{inner_phis}
  %base = mul i64 %i, {_UNROLL}
{body}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %after
after:
{after}
  %rnext = add i64 %r, 1
  %again = icmp ult i64 %rnext, %repeats
  br i1 %again, label %repeat, label %done
done:
{finish}"""


def block_bytes(lanes: int) -> int:
    """Bytes that one iteration of a memory probe covers in each of its streams."""
    return _UNROLL * lanes * 4
