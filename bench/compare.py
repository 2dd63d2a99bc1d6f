"""Compare two files of `bench/run.py --save`: `python bench/compare.py before.json after.json`."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

NOISE = 0.05  # a change smaller than this, or than both spreads together, says nothing


def verdict(before: dict[str, Any], after: dict[str, Any]) -> tuple[float, str]:
    """How much faster it got, with the CPU provider's own change taken out, and a word for it."""
    drift = after["cpu_ms"] / before["cpu_ms"]
    gain = before["mlx_ms"] * drift / after["mlx_ms"]
    unsure = max(NOISE, before["spread"] + after["spread"])
    if abs(gain - 1) <= unsure:
        return gain, "same"
    return gain, "faster" if gain > 1 else "SLOWER"


def main() -> int:
    """Print the comparison; the exit status is 1 when a case got slower or lost claimed nodes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    given = parser.parse_args()
    old, new = (json.loads(path.read_text()) for path in (given.before, given.after))
    if old["machine"] != new["machine"]:
        print(f"not the same machine or versions:\n  {old['machine']}\n  {new['machine']}")
    print(f"{'case':<26}{'before ms':>11}{'after ms':>11}{'gain':>7}  verdict")
    gains, slower = [], 0
    for name in (n for n in old["cases"] if n in new["cases"]):
        before, after = old["cases"][name], new["cases"][name]
        gain, word = verdict(before, after)
        if before["claimed"] != after["claimed"]:
            word += f", claimed {before['claimed']} -> {after['claimed']}"
        slower += "SLOWER" in word
        gains.append(gain)
        print(f"{name:<26}{before['mlx_ms']:>11.3f}{after['mlx_ms']:>11.3f}{gain:>7.2f}  {word}")
    for name in sorted(old["cases"].keys() ^ new["cases"].keys()):
        print(f"{name:<26} only in {'before' if name in old['cases'] else 'after'}")
    if gains:
        print(f"geometric mean of the gains: {statistics.geometric_mean(gains):.3f}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
