"""Measure which operators are right for any shape once compiled, and write docs/safety.md.

Every operator's body is compiled with `mx.compile(shapeless=True)` for the shapes of its test cases
and called again with others. A declaration of SHAPELESS that this does not confirm is an error.

    python scripts/safety.py            write the page
    python scripts/safety.py --check    fail when it is not what is measured here
"""

from __future__ import annotations

import argparse
import ctypes
import difflib
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "safety.md"
sys.path[:0] = [p for p in (str(ROOT / "tests"),) if p not in sys.path]

from ort_mlx import registry
from ort_mlx.describe import safety_text
from ort_mlx.registry import OpDef
from ort_mlx.safety import EAGER, SHAPELESS
from support.case import Case
from support.nodes import call, safety_of

RIGHT, WRONG, RAISES = "right", "silently wrong", "raises"
CRASHES, UNKNOWN = "ends the process", "not measured"


@dataclass(frozen=True)
class Measurement:
    """What the compiled body of an operator did with other shapes."""

    op: OpDef
    measured: str
    note: str = ""

    @property
    def is_false(self) -> bool:
        """Whether the declaration claims more than was measured."""
        return self.op.safety is SHAPELESS and self.measured != RIGHT

    @property
    def may_be_raised(self) -> bool:
        """Whether more could be declared, as far as the cases tell."""
        return self.op.safety not in (SHAPELESS, EAGER) and self.measured == RIGHT


def cases_of(o: OpDef) -> Iterator[Case]:
    """The test cases of one translation."""
    from ops.test_laws import all_cases

    wanted = (o.domain, o.name)
    return (c for c in all_cases()[0] if (c.domain, c.op_type) == wanted and c.opdef is o)


def _compile_without_fusing() -> None:
    """Fusing on the CPU calls a C++ compiler, which takes seconds for some of these."""
    library = (
        Path(mx.__file__).parent / "lib" / f"libmlx.{'dylib' if sys.platform == 'darwin' else 'so'}"
    )
    no_fuse = 2  # of mlx::core::CompileMode
    ctypes.CDLL(str(library))["_ZN3mlx4core16set_compile_modeENS0_11CompileModeE"](no_fuse)


def _is_compiling() -> bool:
    calls = []
    compiled = mx.compile(lambda x: (calls.append(1), x + 1)[1])
    for _ in range(2):
        compiled(mx.ones((2,)))
    return len(calls) == 1


def measure(o: OpDef) -> Measurement:
    """Compile and re-run every case of an operator."""
    if max(map(safety_of, cases_of(o)), default=o.safety) is EAGER:
        return Measurement(o, UNKNOWN, "reads data")
    if o.returns_host:
        return Measurement(o, UNKNOWN, "its result is known on the host")
    if o.joint_prepares:
        return Measurement(o, UNKNOWN, "inputs are prepared together")
    every = tried = False
    empty = ""
    for c in cases_of(o):
        # What is declared is about the forms of a node that allow the most.
        if c.holds is not None or safety_of(c) != max(map(safety_of, cases_of(o))):
            continue
        outcome = _outcome(c)
        if outcome is None:
            continue
        measured, changes_everything, note = outcome
        if _has_empty_arrays(c):  # MLX keeps what it traced for those
            empty = empty or ("" if measured == RIGHT else f"not for empty arrays: {c}")
            continue
        tried = True
        if measured != RIGHT:
            return Measurement(o, measured, f"{c}: {note}" if note else str(c))
        every = every or changes_everything
    if not every:
        return Measurement(o, UNKNOWN, "no case changes every dimension" if tried else "no case")
    return Measurement(o, RIGHT, empty)


def _has_empty_arrays(c: Case) -> bool:
    dtype = next(iter(c.variants()))[1]
    return any(a is not None and a.size == 0 for turn in (0, 1) for a in c.arrays(dtype, turn))


def _outcome(c: Case) -> tuple[str, bool, str] | None:
    """Verdict, whether every dimension changed, and a note; None when the case cannot tell."""
    try:
        run, (first, second) = call(c, *next(iter(c.variants())))
        wanted = _tuple(run(*second))
        mx.eval(wanted)
    except Exception:  # its host parameters do not fit the other shapes
        return None
    if not any(a.ndim for a in first) or [a.shape for a in first] == [a.shape for a in second]:
        return None
    compiled = mx.compile(run, shapeless=True)
    try:
        mx.eval(compiled(*first))
        got = _tuple(compiled(*second))
        mx.eval(got)
    except Exception as error:
        return RAISES, False, str(error).split("\n")[0][:80]
    pairs = [
        pair
        for x, y in zip(first, second, strict=True)
        for pair in zip(x.shape, y.shape, strict=False)
    ]
    return _verdict(got, wanted), all(a != b or a == 1 for a, b in pairs), ""


def _verdict(got: tuple[Any, ...], wanted: tuple[Any, ...]) -> str:
    for g, w in zip(got, wanted, strict=True):
        if g.shape != w.shape or not np.allclose(_numpy(g), _numpy(w), 1e-4, 1e-5, equal_nan=True):
            return WRONG
    return RIGHT


def _tuple(result: Any) -> tuple[Any, ...]:
    made = result if isinstance(result, (tuple, list)) else (result,)
    return tuple(m for m in made if isinstance(m, mx.array))


def _numpy(a: Any) -> Any:
    return np.array(a.astype(mx.float32) if a.dtype == mx.bfloat16 else a).astype(np.float64)


def measurements() -> list[Measurement]:
    """One measurement for each translation, made in another process: a wrong claim may end it."""
    ops = registry.all_ops()
    made: list[Measurement] = []
    while len(made) < len(ops):
        made += [
            Measurement(o, *line)
            for o, line in zip(ops[len(made) :], _worker(len(made)), strict=False)
        ]
        if len(made) < len(ops):
            made.append(Measurement(ops[len(made)], CRASHES))
    return made


def _worker(start: int) -> Iterator[list[str]]:
    """Verdict and note of each operator from `start` on, until the process ends."""
    command = [sys.executable, __file__, "--from", str(start)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as worker:
        assert worker.stdout is not None
        for line in worker.stdout:
            yield json.loads(line)


def work(start: int) -> int:
    """What a worker does; its output is read by `_worker`."""
    _compile_without_fusing()
    assert _is_compiling(), "MLX compiles nothing on the CPU without a C++ compiler in PATH"
    for o in registry.all_ops()[start:]:
        made = measure(o)
        print(json.dumps([made.measured, made.note]), flush=True)
    return 0


def page(made: list[Measurement]) -> str:
    """docs/safety.md."""
    raised = [f"{m.op}" for m in made if m.may_be_raised]
    lines = [
        "<!-- Generated by scripts/safety.py: do not edit. -->",
        "# Which operators may one closure serve for any shape?",
        "",
        f"Measured on MLX {importlib.metadata.version('mlx')}. The body of every operator was",
        "compiled with `mx.compile(shapeless=True)` for the shapes of its test cases, and called",
        "again with every dimension changed. An operator is declared `SHAPELESS` only where all of",
        "its cases came out right; `make test` fails when a declaration and this page differ from",
        "what is measured. `raises` is harmless, `silently wrong` is why a declaration is never",
        "believed. Dimensions of 0 are not part of the promise: a closure is only ever used for",
        "the shapes in its key, and those notes say where MLX itself would get them wrong.",
        "",
        "| operator | versions | declared | measured | note |",
        "| --- | --- | --- | --- | --- |",
    ]
    for m in made:
        versions = ", ".join(str(v) for v in m.op.since)
        note = m.note.replace("|", "\\|")
        lines.append(f"| {m.op} | {versions} | {safety_text(m.op)} | {m.measured} | {note} |")
    lines += [
        "",
        "## Declared with more care than was needed",
        "",
        "Right in every case here, which is no proof for the forms that no case has: "
        + (", ".join(raised) or "none")
        + ".",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write or check the page; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing, fail on a difference")
    parser.add_argument("--from", type=int, dest="start", help="used by the script itself")
    given = parser.parse_args()
    if given.start is not None:
        return work(given.start)
    made = measurements()
    text = page(made)
    false = [
        f"{m.op}: declared SHAPELESS, measured {m.measured} ({m.note})" for m in made if m.is_false
    ]
    print("\n".join(false) or "every declaration of SHAPELESS is confirmed")
    current = PAGE.read_text() if PAGE.exists() else ""
    if given.check and current != text:
        changes = difflib.unified_diff(current.splitlines(), text.splitlines(), lineterm="")
        print("docs/safety.md is not current; run scripts/safety.py", *changes, sep="\n")
    if not given.check:
        PAGE.write_text(text)
    return 1 if false or (given.check and current != text) else 0


if __name__ == "__main__":
    sys.exit(main())
