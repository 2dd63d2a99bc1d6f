"""What ORT CPU passes has to pass with our provider, without crashes and hangs.

`make test` runs a part. Everything, at older opsets and optimized by ORT too, is slow.
`python scripts/conformance_table.py --show --only NAME` runs a few of them.
"""

from __future__ import annotations

import os

import pytest

from conformance import summary, trials
from conformance.outcomes import PASSED, Outcome
from conformance.pool import run_trials
from conformance.trials import Trial

JOBS = 1 if "PYTEST_XDIST_WORKER" in os.environ else 2
EVERY = 12  # of the node tests; of the moved ones, which have less to say each, a fifth of that


def assert_conformant(asked: list[Trial], optimize: bool = False) -> list[Outcome]:
    found = run_trials(asked, JOBS, optimize=optimize)
    assert len(found) == len(asked)
    bad = summary.broken_bars(found)
    assert not bad, "\n".join([f"{len(bad)} of {len(found)}:", *bad[:20]])
    return found


@pytest.mark.parametrize("suite", trials.SUITES)
def test_a_part_of_each_suite(suite: str) -> None:
    asked = trials.collect(suite)
    assert len(asked) == trials.COUNTS[suite]
    found = assert_conformant(asked[:: EVERY if len(asked) > 200 else 3])
    assert any(o.mlx == PASSED for o in found)


def test_a_part_moved_down() -> None:
    moved = [t for i, o in enumerate(trials.OPSETS) for t in trials.moved_down(o)[i :: 5 * EVERY]]
    assert_conformant(moved)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_everything_at_its_own_opset() -> None:
    found = assert_conformant([t for suite in trials.SUITES for t in trials.collect(suite)])
    assert not list(summary.missed_bars(summary.count(found)))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("opset", trials.OPSETS)
def test_node_tests_moved_down(opset: int) -> None:
    assert_conformant(trials.moved_down(opset))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_everything_optimized_by_ort() -> None:
    asked = [t for suite in trials.SUITES for t in trials.collect(suite)]
    assert_conformant(asked, optimize=True)
