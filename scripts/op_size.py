"""Print how long an op is and how many there are; fail above or below the bars.

The length of an operator is that of its decorated functions, from the decorator to the last line,
blank lines left out, added up over the functions for its schema versions. Functions that they call
are not in it: those are in the second figure, all code of the package `ops` for each operator.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from pathlib import Path
from statistics import median

from ort_mlx import ops, registry

MOST_LINES = 12
LEAST_OPS = 250


def code_lines(text: str) -> int:
    """How many lines are not blank."""
    return sum(bool(line.strip()) for line in text.splitlines())


def lengths() -> Counter[tuple[str, str]]:
    """Lines of each registered operator, by domain and name."""
    found: Counter[tuple[str, str]] = Counter()
    for made in registry.all_ops():
        found[made.domain, made.name] += code_lines(inspect.getsource(made.fn))
    return found


def main() -> int:
    """Print the figures; returns the exit status."""
    lines = lengths()
    middle = median(lines.values())
    everything = sum(code_lines(f.read_text()) for f in Path(ops.__path__[0]).glob("*.py"))
    print(
        f"{len(lines)} operators (at least {LEAST_OPS}) of a median of {middle:g} lines "
        f"(at most {MOST_LINES}); with all that they call, {everything / len(lines):.0f} on average"
    )
    return int(middle > MOST_LINES or len(lines) < LEAST_OPS)


if __name__ == "__main__":
    sys.exit(main())
