"""Time cases on MLX and on ORT's CPU provider, in turns, in one process.

Without arguments every case runs:

    python bench/run.py
    python bench/run.py --case conv --case vad    only those whose name contains one of these
    python bench/run.py --save before.json        keep the figures for bench/compare.py
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import onnxruntime as ort
from cases import Case, cases

import ort_mlx


def session_of(source: bytes | str, on_mlx: bool, **options: Any) -> Any:
    """A session on MLX or on ORT's CPU provider."""
    made = ort.SessionOptions()
    made.log_severity_level = 4
    if on_mlx:
        ort_mlx.enable(made, **options)
        return ort.InferenceSession(source, made, enable_fallback=0)
    return ort.InferenceSession(source, made, providers=["CPUExecutionProvider"])


def once(session: Any, feed: dict[str, Any]) -> float:
    """Seconds of one Run."""
    start = time.perf_counter()
    session.run(None, feed)
    return time.perf_counter() - start


def measure(case: Case, seconds: float, **options: Any) -> dict[str, Any]:
    """Medians of interleaved Runs, so that both sides see the same machine."""
    source = case.model()
    start = time.perf_counter()
    ours = session_of(source, on_mlx=True, **options)
    opened = time.perf_counter() - start
    theirs = session_of(source, on_mlx=False)
    feed = case.feed()
    first = once(ours, feed)
    once(theirs, feed)
    if first < seconds / 2:
        once(ours, feed)
    mine: list[float] = []
    reference: list[float] = []
    end = time.perf_counter() + seconds
    least = 3 if first < 5 else 1
    while len(mine) < least or (time.perf_counter() < end and len(mine) < 2000):
        mine.append(once(ours, feed))
        reference.append(once(theirs, feed))
    report = ort_mlx.report(ours)
    apart = max(
        (
            float(np.max(np.abs(a.astype(np.float64) - b), initial=0))
            for a, b in zip(ours.run(None, feed), theirs.run(None, feed), strict=True)
        ),
        default=0.0,
    )
    return {
        "mlx_ms": statistics.median(mine) * 1e3,
        "cpu_ms": statistics.median(reference) * 1e3,
        "spread": _spread(mine),
        "first_ms": first * 1e3,
        "open_ms": opened * 1e3,
        "runs": len(mine),
        "claimed": f"{report.taken}/{report.nodes}",
        "max_abs": apart,
    }


def _spread(times: list[float]) -> float:
    """Half of the distance between the quartiles, relative to the median."""
    if len(times) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(times, n=4)
    return (high - low) / 2 / middle


def machine() -> dict[str, str]:
    """What the figures depend on."""
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "device": str(mx.default_device()),
        "mlx": mx.__version__,
        "onnxruntime": ort.__version__,
        "ort_mlx": ort_mlx.__version__,
    }


HEAD = f"{'case':<26}{'MLX ms':>10}{'+-':>5}{'CPU ms':>10}{'ratio':>8}{'first':>9}{'open':>8}"


def row(name: str, made: dict[str, Any]) -> str:
    """One line of the table; a ratio above 1 is faster than the CPU provider."""
    return (
        f"{name:<26}{made['mlx_ms']:>10.3f}{made['spread']:>5.0%}{made['cpu_ms']:>10.3f}"
        f"{made['cpu_ms'] / made['mlx_ms']:>8.2f}{made['first_ms']:>9.1f}{made['open_ms']:>8.1f}"
        f"  {made['claimed']}"
    )


def main() -> int:
    """Run the chosen cases; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", action="append", default=[], help="part of a case's name")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each case")
    parser.add_argument("--device", default="auto", help="auto, gpu or cpu")
    parser.add_argument("--save", type=Path, help="write the figures to this file")
    parser.add_argument("--list", action="store_true", help="only print the names")
    given = parser.parse_args()
    chosen = [c for c in cases() if not given.case or any(part in c.name for part in given.case)]
    if given.list or not chosen:
        print("\n".join(c.name for c in chosen) or "no case of that name")
        return 0 if chosen else 1
    print(*(f"{k}: {v}" for k, v in machine().items()), sep="\n")
    print(HEAD, flush=True)
    figures: dict[str, Any] = {}
    for case in chosen:
        figures[case.name] = measure(case, given.seconds, device=given.device)
        print(row(case.name, figures[case.name]), flush=True)
    ratios = [f["cpu_ms"] / f["mlx_ms"] for f in figures.values()]
    print(f"geometric mean of the ratios: {statistics.geometric_mean(ratios):.3f}")
    if given.save:
        given.save.write_text(json.dumps({"machine": machine(), "cases": figures}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
