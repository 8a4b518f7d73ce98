# SPDX-License-Identifier: MIT
"""The `pto-bench` command: pto_jit beside NumPy and other array libraries on this machine.

`docs/benchmarks.md` says how it measures and how to read it.  The reading order of the code: `workload.py` (what is
measured), `implementation.py` (how a library takes part), `worker.py` and `process.py` (one process per library),
`engine.py` (a case from inputs to times), `record.py` (what is kept), `report.py` (what is shown).
"""
