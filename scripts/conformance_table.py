"""Run the conformance suites and write docs/conformance.md, or only show what is asked for.

Without arguments everything runs and the page is written. `--suite node --only Resize --show`
prints the failures of some.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from conformance import summary, trials  # noqa: E402
from conformance.pool import run_trials  # noqa: E402

PAGE = ROOT / "docs" / "conformance.md"


def chosen(arguments: argparse.Namespace) -> list[trials.Trial]:
    """The trials that the command line asks for."""
    found: list[trials.Trial] = []
    for opset in arguments.opset or (0, *trials.OPSETS):
        if opset:
            found += trials.moved_down(opset)
        else:
            found += [t for suite in trials.SUITES for t in trials.collect(suite)]
    found = [t for t in found if not arguments.suite or t.suite in arguments.suite]
    wanted = re.compile(arguments.only)
    return [t for t in found if wanted.search(t.name) or wanted.fullmatch(t.op_type)]


def main() -> int:
    """Returns the exit status: 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", action="append", choices=trials.SUITES)
    parser.add_argument("--opset", type=int, action="append", help="0 is each test's own; or all")
    parser.add_argument("--only", default="", help="a pattern in names, or of an operator")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--optimize", action="store_true", help="let ORT rewrite the graphs first")
    parser.add_argument("--show", action="store_true", help="print failures and write no page")
    parser.add_argument("--json", type=Path, help="write the outcomes here")
    arguments = parser.parse_args()
    start = time.monotonic()
    asked = chosen(arguments)
    found = summary.in_order(run_trials(asked, arguments.jobs, optimize=arguments.optimize))
    numbers = summary.count(found)
    if arguments.json is not None:
        records = [asdict(o) | {"placement": o.placement} for o in found]
        arguments.json.write_text(json.dumps(records))
    print("\n".join(summary.table(found)))
    print(f"{numbers}; {len(found)} trials in {time.monotonic() - start:.0f} s")
    if arguments.show:
        print("\n".join([*summary.failing(found), *summary.left(found)]))
        return 0
    PAGE.write_text(summary.page(found, numbers))
    missed = list(summary.missed_bars(numbers))
    print("\n".join(f"below the bar: {text}" for text in missed) or "every bar is passed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
